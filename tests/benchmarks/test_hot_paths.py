"""Hot paths stay so many times cheaper than a loop that follows their definition: ratios, as seconds differ by machine.

Each side takes turns and its cheapest turn of processor time counts, so that a busy machine changes little. The bounds
are twice what was measured, or more: they catch a path that fell back to Python per row, not a few percent.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.generate import grow
from benchmarks.generate_nsys import grow_nsys
from benchmarks.programs.hot_paths import correlations, kernels, nested_spans, plain_busy, plain_parents
from xsp.batch.unit import Settings, Status, Unit
from xsp.batch.work import process
from xsp_ingest.formats.nsys_sqlite.database import Database, table_names
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.link.keys import pair_keys
from xsp_ingest.link.nest import nest
from xsp_model.arrays import places
from xsp_model.intervals import union_length

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TURNS = 2
_SPANS = 1_500_000  # as many as take the compiled way
_COLUMNS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName")


def _times_cheaper(ours: Callable[[], object], reference: Callable[[], object]) -> float:
    ours()  # loads machine code, or compiles it
    costs: dict[Callable[[], object], list[float]] = {ours: [], reference: []}
    for _ in range(_TURNS):
        for side, found in costs.items():
            start = time.process_time()
            side()
            found.append(time.process_time() - start)
    return min(costs[reference]) / min(costs[ours])


def test_nesting_is_cheaper_than_a_stack_in_python() -> None:
    thread, start, end = nested_spans(_SPANS)
    rank = np.zeros(len(start), dtype=np.int8)
    assert nest(thread, start, end, rank, threads=8).parent.tolist() == plain_parents(thread, start, end)
    ratio = _times_cheaper(
        lambda: nest(thread, start, end, rank, threads=8), lambda: plain_parents(thread, start, end)
    )  # fmt: skip
    assert ratio > 1.4


def test_correlation_is_cheaper_than_a_dict() -> None:
    calls, work = correlations(500_000, 700_000)

    def plain() -> list[int]:
        known = {key: at for at, key in enumerate(calls.iter_rows())}
        return [known.get(key, -1) for key in work.iter_rows()]

    assert places(*pair_keys(calls, work)).tolist() == plain()
    assert _times_cheaper(lambda: places(*pair_keys(calls, work)), plain) > 8


def test_busy_time_is_cheaper_than_a_loop() -> None:
    start, end = kernels(1_000_000)
    assert union_length(start, end) == plain_busy(start, end)
    assert _times_cheaper(lambda: union_length(start, end), lambda: plain_busy(start, end)) > 3


def test_scanning_is_cheaper_than_the_json_module(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = grow(path, 34_000_000, lanes=2, replays=1)
    assert len(json.loads(path.read_bytes())["traceEvents"]) >= events

    def compiled() -> int:
        return sum(1 for _ in scanner.documents(path, scanner.PIECE_ROWS))

    assert _times_cheaper(compiled, lambda: json.loads(path.read_bytes())) > 4


def test_reading_kernels_is_cheaper_than_fetching_rows(tmp_path: Path) -> None:
    path = tmp_path / "capture.sqlite"
    grow_nsys(path, 200_000)
    database = Database(path, table_names(path))
    table = "CUPTI_ACTIVITY_KIND_KERNEL"

    def plain() -> int:
        listed = ", ".join(f'"{column}"' for column in _COLUMNS)
        with closing(sqlite3.connect(path)) as connection:
            return len(connection.execute(f'SELECT {listed} FROM "{table}"').fetchall())  # noqa: S608

    assert database.integers(table, _COLUMNS).height == plain()
    assert _times_cheaper(lambda: database.integers(table, _COLUMNS), plain) > 1.2


def test_a_unit_of_a_batch_costs_little_beside_its_json(tmp_path: Path) -> None:
    """Converting and reporting a small trace is many small queries: each takes long beside the rows that it is over."""
    path = tmp_path / "trace.json"
    grow(path, 3_000_000, steps=2)
    settings = Settings(str(tmp_path / "out"), redo=True)

    def whole() -> Status:
        return process(Unit("trace", (str(path),)), settings).status

    def plain() -> list[object]:
        """The file read ten times: what a script does that looks at one trace in ten ways."""
        return [json.loads(path.read_bytes()) for _ in range(10)]

    assert whole() is Status.DONE
    assert _times_cheaper(whole, plain) > 0.5
