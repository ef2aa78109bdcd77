"""Hot paths answer what a loop that follows their definition does; `python -m benchmarks --guard` takes their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.generate import grow
from benchmarks.generate_nsys import grow_nsys
from benchmarks.guard import Guard, Pair, check
from benchmarks.programs.hot_paths import (
    correlations,
    kernels,
    nested_spans,
    plain_busy,
    plain_join,
    plain_parents,
    plain_rows,
)
from xsp.batch.unit import Settings, Status, Unit
from xsp.batch.work import process
from xsp_ingest.files.sqlite import Database, table_names
from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.link.nest import nest
from xsp_ingest.link.spans import pair_keys
from xsp_model.columns.arrays import lookup
from xsp_model.columns.intervals import union_length

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_SPANS = 1_500_000  # as many as take the compiled way
_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
_COLUMNS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")


def test_nesting_is_that_of_a_stack() -> None:
    thread, start, end = nested_spans(_SPANS)
    rank = np.zeros(len(start), dtype=np.int8)
    assert nest(thread, start, end, rank, threads=8).parent.tolist() == plain_parents(thread, start, end)


def test_correlation_is_that_of_a_dict() -> None:
    calls, work = correlations(500_000, 700_000)
    assert lookup(*pair_keys(calls, work)).tolist() == plain_join(calls, work)


def test_busy_time_is_that_of_a_loop() -> None:
    start, end = kernels(1_000_000)
    assert union_length(start, end) == plain_busy(start, end)


def test_scanning_in_pieces_finds_the_events_of_the_plain_scan(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    grow(path, 3_000_000, lanes=2, replays=1)
    heights = [document.events.height for document in scanner.documents(path, 1_000)]
    assert len(heights) > 1
    assert sum(heights) == scan_plain.scan(path).events.height


def test_kernels_are_read_as_the_rows_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "capture.sqlite"
    grow_nsys(path, 20_000)
    database = Database(path, table_names(path))
    assert database.integers(_TABLE, _COLUMNS).select(_COLUMNS).rows() == plain_rows(path, _TABLE, _COLUMNS)


def test_a_unit_of_a_batch_is_done(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    grow(path, 3_000_000, steps=2)
    assert process(Unit("trace", (str(path),)), Settings(str(tmp_path / "out"), redo=True)).status is Status.DONE


def test_a_ratio_under_its_bound_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    costs_s = iter([0.0, 1.0, 0.0, 9.0] * 6)
    pair = Pair(lambda: None, lambda: None)
    assert check([Guard("fast", 8, lambda _: pair), Guard("slow", 9, lambda _: pair)], lambda: next(costs_s)) == [
        "slow"
    ]
    assert "WARNING: slow: 9.00 is not over 9.00" in capsys.readouterr().out
