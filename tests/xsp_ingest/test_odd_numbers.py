"""Numbers that no profiler writes, and settings of the caller's: files are read or refused, and times stay exact."""

from __future__ import annotations

import decimal
import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.files.json_window import outer_keys
from xsp_ingest.ingester import Options
from xsp_ingest.link.link import Source, link
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.staging.selection import range_of
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

_ENDLESS = "9" * 5_000
_OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 8.25}


def _written(tmp_path: Path, *events: dict[str, Any], **head: Any) -> Path:  # noqa: ANN401 (any JSON)
    """A trace of these events; DIGITS stands for a number of thousands of digits."""
    path = tmp_path / "trace.json"
    text = json.dumps({"schemaVersion": 1, **head, "traceEvents": [_OPERATOR, *events]})
    path.write_text(text.replace('"DIGITS"', _ENDLESS), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "C", "cat": "hardware_counters", "name": "n", "pid": 0, "ts": 2, "args": {"sm__cycles": "DIGITS"}},
        {"ph": "C", "cat": "mtia_counters", "name": "n", "pid": 0, "ts": "DIGITS", "args": {"a": 1}},
        {"ph": "C", "cat": "mtia_counters", "name": "n", "pid": 0, "ts": 2, "args": {"a": int("9" * 400)}},
        {"ph": "X", "cat": "cuda_profiler_range", "name": "r", "ts": "DIGITS", "dur": 1, "args": {"a": "DIGITS"}},
        {"ph": "X", "cat": "cuda_profiler_range", "name": "r", "ts": "abc", "dur": 1, "args": {"a": int("9" * 400)}},
        {"ph": "X", "cat": "cuda_profiler_range", "name": "r", "ts": [1], "dur": 1, "args": {}},
        {"ph": "X", "cat": "cpu_op", "name": "Torch-Compiled Region: 9999999999999999999999999/0", "pid": 1, "tid": 1,
         "ts": 20, "dur": 5},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#\uff11", "pid": 1, "tid": 1, "ts": 0, "dur": 50},
    ],
    ids=lambda event: f"{event['cat']} {event['name']} {event['ts']}"[:40],
)  # fmt: skip
def test_a_trace_with_such_an_event_is_read(tmp_path: Path, event: dict[str, Any]) -> None:
    trace = convert([_written(tmp_path, event)], Options())
    assert "aten::mm" in trace.frame("spans")["name"].to_list()
    advise(StepView.of(trace))


@pytest.mark.parametrize("text", [f"{_ENDLESS}s..", "\uff11s..2s"])
def test_no_such_time_begins_a_range(text: str) -> None:
    with pytest.raises(XspError, match="is no range of time"):
        range_of(text)


@pytest.mark.parametrize("option", ["model_ranges", "layer_ranges"])
def test_no_bracket_alone_is_a_pattern_of_ranges(option: str) -> None:
    with pytest.raises(XspError, match="is no pattern for ranges"):
        Options(**{option: ("(",)})  # type: ignore[arg-type]


def test_the_callers_decimals_change_no_time(tmp_path: Path) -> None:
    path = _written(tmp_path, {**_OPERATOR, "ts": 1_700_000_000_123_456.789, "dur": 1_234.567})
    expected = convert([path], Options()).frame("spans")
    with decimal.localcontext(decimal.Context(prec=3, Emax=5, traps=[decimal.FloatOperation])) as context:
        assert convert([path], Options()).frame("spans").equals(expected)
        advise(StepView.of(convert([path], Options())))
        assert not context.flags[decimal.FloatOperation]


@pytest.mark.parametrize("first", [b"", b"{", b'{"schemaVersion": 1, '])
def test_a_format_is_told_from_all_members_of_a_gzip(tmp_path: Path, first: bytes) -> None:
    content = _written(tmp_path).read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(first) + gzip.compress(content[len(first) :]))
    assert convert([path], Options()).frame("runs")["format"].to_list() == ["torch_profiler"]


def test_keys_are_those_of_the_outermost_object_alone() -> None:
    head = b' {"a" : [{"schemaVersion": 1, "x": "\\"b\\": {"}], "c": "d", "traceEvents": [{"e": 1'
    assert list(outer_keys(head)) == [b"a", b"c", b"traceEvents"]


def test_an_argument_of_that_name_makes_no_trace_pytorchs(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    begun = {"ph": "X", "name": "work", "cat": "mine", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path.write_text(json.dumps({"traceEvents": [{**begun, "args": {"schemaVersion": 2}}]}), encoding="utf-8")
    assert convert([path], Options()).frame("runs")["format"].to_list() == ["chrome_trace"]


@pytest.mark.parametrize("microseconds", [2_400_000_000_000_000, 4_700_000_000_000_000, 9_200_000_000_000_000])
def test_what_is_longer_ago_than_a_clock_shows_is_counted_and_left_out(tmp_path: Path, microseconds: int) -> None:
    """A group of events at 0, and another beyond 73 years."""
    far = [{**_OPERATOR, "name": "far", "ts": sign * microseconds} for sign in (1, -1)]
    trace = convert([_written(tmp_path, *far)], Options())
    assert trace.frame("spans")["name"].to_list() == ["aten::mm"]
    missing = trace.frame("ledger").filter(pl.col("kind") == "missing_start")
    assert missing["count"].to_list() == [2]


def test_events_that_last_longer_in_sum_than_64_bits_hold_are_refused() -> None:
    """No event is longer than a day, and yet."""
    spans = pl.DataFrame({"row": range(110_000), "start_ns": 0, "duration_ns": MAX_DURATION_NS, "thread_id": 1})
    tables = {**{name: frame_of(name) for name in RAW_TABLES}, "spans": frame_of("spans", spans)}
    with pytest.raises(XspError, match=r"a[.]json: what it recorded lasts over 292 years in sum"):
        link([RawTrace(tables, RunFacts())], [Source("any", "a.json", None, None)], "auto")


@pytest.mark.parametrize("table", ["spans", "allocations", "counters", "page_faults"])
def test_times_that_a_reader_let_pass_are_refused_before_they_overflow(table: str) -> None:
    """As a reader of another distribution may."""
    spans = pl.DataFrame({"row": [0], "level": "operator", "kind": "operator", "start_ns": 0, "duration_ns": 1})
    tables = {**{name: frame_of(name) for name in RAW_TABLES}, "spans": frame_of("spans", spans)}
    far = {"spans": spans.with_columns(start_ns=1 << 62)}.get(table, pl.DataFrame({"time_ns": [1 << 62]}))
    tables[table] = pl.concat([tables[table], frame_of(table, far)])
    with pytest.raises(XspError, match=r"a[.]json: its times are over 146 years from the start of the trace"):
        link([RawTrace(tables, RunFacts())], [Source("any", "a.json", None, None)], "auto")


def test_runs_whose_dates_are_centuries_apart_are_refused(tmp_path: Path) -> None:
    for rank, year in ((0, -280), (1, 280)):
        base = year * 31_556_952 * 10**9
        content = {"baseTimeNanoseconds": base, "distributedInfo": {"rank": rank}, "traceEvents": [_OPERATOR]}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"schemaVersion": 1, **content}), encoding="utf-8")
    with pytest.raises(XspError, match=r"rank1[.]json: its times are over 146 years from the start of the trace"):
        convert([tmp_path], Options())


_HALF = "half \ud800"  # of a surrogate pair
_CAPTURE = {**_OPERATOR, "cat": "cuda_runtime", "name": "cudaStreamBeginCapture_v10000", "args": {"correlation": 1}}


@pytest.mark.parametrize(
    ("events", "head"),
    [
        ([], {"deviceProperties": [{"id": 0, "name": _HALF}]}),
        ([{**_OPERATOR, "name": _HALF}], {}),
        ([{**_OPERATOR, "args": {"Call stack": f"{_HALF}.py(3): f"}}], {}),
        ([{**_OPERATOR, "cat": "user_annotation", "name": f"{{'Module': '{_HALF}'}}"}], {}),
        ([_CAPTURE, {**_CAPTURE, "name": f"cudaLaunchKernel{_HALF}", "args": {"correlation": 2, "kernel": _HALF}}], {}),
        ([{"ph": "C", "cat": "hardware_counters", "name": "n", "pid": 0, "ts": 2, "args": {_HALF: 1}}], {}),
        ([{**_OPERATOR, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 1}},
          {"ph": "X", "cat": "cuda_profiler_range", "name": "__cupti_profiler__", "ts": 1, "dur": 1,
           "args": {_HALF: 1}}], {}),
        ([{**_OPERATOR, "cat": "kernel", "name": "k", "args": {"correlation": 1, "graph node id": 1, "stream": 7,
           "module_fqn": _HALF, "Collective name": _HALF, "Process Group Name": _HALF, "dtype": _HALF}}], {}),
    ],
    ids=["device", "name", "stack", "module", "capture", "counter", "range", "annotation"],
)  # fmt: skip
def test_half_of_a_surrogate_pair_is_a_question_mark(
    tmp_path: Path, events: list[dict[str, Any]], head: dict[str, Any]
) -> None:
    trace = convert([_written(tmp_path, *events, **head)], Options())
    texts = [text for table in TABLES for text in _texts(trace.frame(table))]
    assert any("half ?" in text for text in texts)


def _texts(frame: pl.DataFrame) -> list[str]:
    columns = frame.select(pl.col(pl.String, pl.Categorical).cast(pl.String))
    return [text for column in columns for text in column.drop_nulls()]


def test_the_bytes_of_a_message_beyond_64_bits_are_unknown(tmp_path: Path) -> None:
    sizes = {"Input Dims": [[1 << 40, 1 << 40]], "Input type": ["float"]}
    call = {**_OPERATOR, "name": "nccl:all_reduce", "cat": "user_annotation", "args": sizes}
    operator = {**_OPERATOR, "name": "c10d::allreduce_", "args": sizes}
    trace = convert([_written(tmp_path, call, operator)], Options())
    assert trace.frame("collectives")["input_bytes"].drop_nulls().is_empty()
