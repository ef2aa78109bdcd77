"""Says what a part of a program cost, for who started it: a line of standard output."""

from __future__ import annotations

import json
import resource
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["cpu_s", "parts_in", "print_times"]

_MARK = "MEASURED "


@contextmanager
def print_times(part: str) -> Iterator[None]:
    """Prints the processor time (of ended children too) and the wall time of the block, in s."""
    wall, cpu = time.perf_counter(), cpu_s()
    yield
    record = {"part": part, "cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}
    print(_MARK + json.dumps(record), flush=True)


def cpu_s() -> float:
    """Processor time that this process and its ended children used so far."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def parts_in(lines: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Processor and wall time in s of each part that a program told of."""
    records = (json.loads(line.removeprefix(_MARK)) for line in lines if line.startswith(_MARK))
    return {each["part"]: (each["cpu_s"], each["wall_s"]) for each in records}
