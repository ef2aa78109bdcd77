"""Numbers that no profiler writes, and settings of the caller's: files are read or refused, and times stay exact."""

from __future__ import annotations

import decimal
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from xsp_analyze.findings import advise
from xsp_analyze.frames.step_frames import StepFrames
from xsp_ingest.convert import convert
from xsp_ingest.files.json_window import outer_keys
from xsp_ingest.ingester import Options
from xsp_ingest.staging.selection import range_of
from xsp_model import XspError

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
    advise(StepFrames.of(trace))


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
        advise(StepFrames.of(convert([path], Options())))
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
