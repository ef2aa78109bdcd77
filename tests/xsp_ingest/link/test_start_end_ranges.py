"""NVTX start/end ranges hold what their process does while they alone are open, on any thread. Times in us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from tests.helpers.synth_nsys import PROCESS, THREAD, NsightFile
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

WORKER = THREAD + 1
Launch = tuple[int, int]  # when, on which thread


def _trace(ranges: list[dict[str, object]], launches: list[Launch], folder: Path) -> Trace:
    file = NsightFile()
    for each in ranges:
        times = {name: None if each[name] is None else each[name] * 1_000 for name in ("start", "end")}  # type: ignore[operator]
        file.range(**each | times)  # type: ignore[arg-type]
    for at, thread in launches:
        call, work = (at * 1_000, at * 1_000 + 2_000), (at * 1_000 + 10**6, at * 1_000 + 10**6 + 5_000)
        file.launch(call, work, f"k{at}", thread=thread)
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    trace = convert([file.write(path)], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _holders(trace: Trace) -> dict[str, str | None]:
    """By kernel the name of its layer."""
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    names = dict(spans.select("span_id", "name").iter_rows())
    work = spans.filter(pl.col("level") == "kernel")
    return {name: names.get(layer) for name, layer in work.select("name", "layer_id").iter_rows()}


def _range(text: str, start: int, end: int, **more: object) -> dict[str, object]:
    return {"start": start, "end": end, "text": text, "style": "StartEnd", "end_thread": THREAD, **more}


def test_on_one_thread_they_say_the_same_as_push_and_pop(tmp_path: Path) -> None:
    ranges = [("step", 0, 100), ("a", 10, 40), ("b", 50, 90), ("step", 100, 200), ("a", 110, 140), ("b", 150, 190)]
    launches = [(15, THREAD), (55, THREAD), (115, THREAD), (155, THREAD)]
    started = _trace([_range(*each) for each in ranges], launches, tmp_path)
    pushed = _trace([_range(*each, style="PushPop", end_thread=None) for each in ranges], launches, tmp_path)
    assert _holders(started) == {"k15": "a", "k55": "b", "k115": "a", "k155": "b"}
    columns = ["name", "parent_id", "layer_id", "step", "attribution"]
    assert started.frame("spans").select(columns).equals(pushed.frame("spans").select(columns))


@pytest.mark.parametrize("closed_by", [THREAD, WORKER])
def test_what_another_thread_does_meanwhile_lies_in_them(closed_by: int, tmp_path: Path) -> None:
    ranges = [_range("a", 10, 40, end_thread=closed_by), _range("b", 50, 90, end_thread=closed_by)]
    trace = _trace(ranges, [(5, WORKER), (15, WORKER), (55, WORKER), (60, THREAD), (95, WORKER)], tmp_path)
    assert _holders(trace) == {"k5": None, "k15": "a", "k55": "b", "k60": "b", "k95": None}
    assert "ranges_cross" not in ledger_counts(trace)


def test_of_ranges_in_one_another_it_is_the_innermost(tmp_path: Path) -> None:
    ranges = [_range("outer", 0, 100, end_thread=WORKER), _range("inner", 20, 50, thread=WORKER + 1, end_thread=WORKER)]
    trace = _trace(ranges, [(10, WORKER), (30, WORKER), (60, WORKER)], tmp_path)
    assert _holders(trace) == {"k10": "outer", "k30": "inner", "k60": "outer"}


def test_where_they_cross_neither_holds_it_and_that_is_said(tmp_path: Path) -> None:
    ranges = [_range("a", 0, 60), _range("b", 40, 100, thread=WORKER + 1)]
    trace = _trace(ranges, [(10, WORKER), (50, WORKER), (70, WORKER)], tmp_path)
    assert _holders(trace) == {"k10": "a", "k50": None, "k70": "b"}
    assert ledger_counts(trace)["ranges_cross"] == 1


def test_on_one_thread_crossing_ranges_are_doubtful(tmp_path: Path) -> None:
    trace = _trace([_range("a", 0, 60), _range("b", 40, 100)], [(10, THREAD), (50, THREAD), (70, THREAD)], tmp_path)
    assert _holders(trace) == {"k10": "a", "k50": "b", "k70": "b"}
    assert ledger_counts(trace)["ambiguous_parent"] == 1


def test_what_a_thread_marks_itself_goes_first(tmp_path: Path) -> None:
    own = _range("own", 30, 50, thread=WORKER, style="PushPop", end_thread=None)
    trace = _trace([_range("a", 20, 60), own], [(25, WORKER), (35, WORKER)], tmp_path)
    assert _holders(trace) == {"k25": "a", "k35": "own"}


def test_a_range_that_another_thread_closes_does_not_hold_its_threads_other_ranges(tmp_path: Path) -> None:
    ahead = _range("prefetch", 0, 100, end_thread=WORKER)
    trace = _trace([ahead, _range("block", 10, 50, style="PushPop", end_thread=None)], [(20, THREAD)], tmp_path)
    assert _holders(trace) == {"k20": "block"}
    assert trace.frame("spans").filter(pl.col("level") == "layer")["parent_id"].to_list() == [None, None]
    assert ledger_counts(trace)["ranges_cross"] == 1  # the range that counts nothing


def test_another_process_has_its_own(tmp_path: Path) -> None:
    trace = _trace([_range("a", 0, 100, process=PROCESS + 1)], [(10, WORKER)], tmp_path)
    assert _holders(trace) == {"k10": None}


def test_a_range_that_never_closed_is_open_to_the_end(tmp_path: Path) -> None:
    trace = _trace([_range("a", 0, 0) | {"end": None}], [(10, WORKER), (900, WORKER)], tmp_path)
    assert _holders(trace) == {"k10": "a", "k900": "a"}


def test_many_threads_and_ranges_keep_every_kernel_once(tmp_path: Path) -> None:
    ranges = [
        _range(f"r{n}", 7 * n, 7 * n + 5 + 13 * (n % 4), thread=THREAD + n % 3, end_thread=THREAD + n % 2)
        for n in range(60)
    ]
    launches = [(4 * n, THREAD + n % 5) for n in range(110)]
    trace = _trace(ranges, launches, tmp_path)
    assert len(_holders(trace)) == 110
    assert trace.frame("spans").filter(pl.col("level") == "kernel")["duration_ns"].sum() == 5_000 * 110
