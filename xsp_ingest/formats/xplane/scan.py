"""Scans the lines of a plane into columns: every event, and those of its statistics that are wanted.

A small plane is scanned by the interpreter, a large one by machine code; both run `sweep.sweep` and give the same.
Two passes: the first counts, so that the second writes into columns of that size.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.formats.xplane import sweep
from xsp_ingest.formats.xplane.sweep import EVENT, LINE, STAT
from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_model.columns.arrays import Ints

    Scanned = tuple[Ints, Ints, Ints, int, int]

__all__ = ["SCAN_LINES", "scan_compiled", "scan_lines", "scan_plain"]

SCAN_LINES = CompiledFunction(
    "scan_lines",
    "sweep",
    ("uint8", *("int64",) * 4, NUMBER, *("int64",) * 4),
    (sweep.__name__,),
    ("_varint", "_past", "_eight_bytes", "_stat", "_is_in", "_event"),
)


def scan_lines(
    data: memoryview,
    starts: Sequence[int],
    ends: Sequence[int],
    statistic_ids: Sequence[int],
    skipped: Sequence[int] = (),
) -> Scanned:
    """The lines that lie from each start to its end; `skipped` are ids of events. All ids must be in order.

    Gives arrays with a row for each column of LINE, EVENT and STAT, the place of the first damage or -1, and how
    many events were skipped.
    """
    size = sum(ends) - sum(starts)
    scan = scan_compiled if size >= limits().plane_scan_min_bytes and _can_run() else scan_plain
    return scan(data, starts, ends, statistic_ids, skipped)


def scan_plain(
    data: memoryview,
    starts: Sequence[int],
    ends: Sequence[int],
    statistic_ids: Sequence[int],
    skipped: Sequence[int] = (),
) -> Scanned:
    """By the interpreter."""
    return _two_passes(sweep.sweep, data, (list(starts), list(ends), list(statistic_ids), list(skipped)))


def scan_compiled(
    data: memoryview,
    starts: Sequence[int],
    ends: Sequence[int],
    statistic_ids: Sequence[int],
    skipped: Sequence[int] = (),
) -> Scanned:
    """By machine code."""
    lists = tuple(np.array(each, dtype=np.int64) for each in (starts, ends, statistic_ids, skipped))
    return _two_passes(_machine_code(), np.frombuffer(data, dtype=np.uint8), lists)


def _two_passes(run: Callable[..., int], data: Any, lists: tuple[Any, ...]) -> Scanned:  # noqa: ANN401
    lines = np.zeros(len(LINE) * len(lists[0]), dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    counts = np.zeros(3, dtype=np.int64)
    damage = run(data, *lists, 0, lines, none, none, counts)
    if damage >= 0:
        return _columns(lines, LINE), _columns(none, EVENT), _columns(none, STAT), damage, 0
    events = np.zeros(len(EVENT) * counts[0], dtype=np.int64)
    stats = np.zeros(len(STAT) * counts[1], dtype=np.int64)
    run(data, *lists, 1, lines, events, stats, counts)
    return _columns(lines, LINE), _columns(events, EVENT), _columns(stats, STAT), -1, int(counts[2])


def _columns(values: Ints, names: Sequence[str]) -> Ints:
    return values.reshape(len(names), -1) if len(values) else values.reshape(len(names), 0)


@cache
def _can_run() -> bool:
    from xsp_ingest.machine.native import can_compile, is_at_hand  # noqa: PLC0415 (small planes need no compiler)

    return is_at_hand(SCAN_LINES) or can_compile()


@cache
def _machine_code() -> Callable[..., int]:
    from xsp_ingest.machine.native import native  # noqa: PLC0415 (as above)

    return native(SCAN_LINES)
