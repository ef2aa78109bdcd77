"""Chrome traces of tools that are not known: ranges by thread, and who reads which trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.exported import with_texts
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.chrome_trace import CHROME_TRACE
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_ON = {"pid": 1, "tid": 1}


def _write(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def _read(folder: Path, *events: dict[str, Any]) -> Trace:
    return convert([_write(folder, *events)], Options())


def _rows(trace: Trace) -> list[tuple[object, ...]]:
    return with_texts(trace.frame("spans")).select("name", "start_ns", "duration_ns", "thread_id", "parent_id").rows()


def test_an_end_ends_what_its_thread_began_last(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        {"ph": "B", "name": "outer", "ts": 1, **_ON},
        {"ph": "B", "name": "other", "ts": 2, "pid": 1, "tid": 2},
        {"ph": "B", "name": "inner", "ts": 2.001, **_ON},
        {"ph": "E", "ts": 3, **_ON},
        {"ph": "E", "ts": 4, **_ON},
        {"ph": "E", "ts": 9, "pid": 1, "tid": 2},
    )
    assert _rows(trace) == [("outer", 0, 3000, 1, None), ("other", 1000, 7000, 2, None), ("inner", 1001, 999, 1, 0)]


def test_an_end_may_stand_before_its_begin(tmp_path: Path) -> None:
    begin, end = {"ph": "B", "name": "read", "ts": 1, **_ON}, {"ph": "E", "ts": 3, **_ON}
    assert _rows(_read(tmp_path, end, begin)) == _rows(_read(tmp_path, begin, end)) == [("read", 0, 2000, 1, None)]


def test_what_overlaps_by_its_id_is_paired_by_it(tmp_path: Path) -> None:
    events = [
        {"ph": ph, "cat": "rpc", "name": "call", "id": i, "ts": ts, **_ON}
        for ph, i, ts in [("b", 1, 0), ("b", 2, 5), ("e", 1, 8), ("e", 2, 9)]
    ]
    trace = _read(tmp_path, *events)
    assert [row[1:3] for row in _rows(trace)] == [(0, 8000), (5000, 4000)]
    assert with_texts(trace.frame("ranges")).select("domain", "style").unique().rows() == [("rpc", "StartEnd")]


def test_threads_that_are_texts_stay_apart(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": tid, "ts": 0, "dur": 9, "pid": "app", "tid": tid} for tid in ("main", "io")]
    trace = _read(tmp_path, *events)
    assert {row[3] for row in _rows(trace)} == {-3, -2}
    assert trace.frame("spans")["parent_id"].null_count() == 2


def test_a_counter_is_a_series_for_each_of_its_numbers(tmp_path: Path) -> None:
    sample = {"ph": "C", "name": "heap", "ts": 2, "args": {"used": 5, "free": 7.5}, **_ON}
    trace = _read(tmp_path, {"ph": "X", "name": "a", "ts": 0, "dur": 9, **_ON}, sample)
    counters = with_texts(trace.frame("counters")).select("counter", "time_ns", "value")
    assert counters.rows() == [("heap free", 2000, 7.5), ("heap used", 2000, 5.0)]


def test_the_ledger_says_that_the_tool_is_not_known(tmp_path: Path) -> None:
    trace = _read(tmp_path, {"ph": "X", "name": "gemm", "cat": "gpu", "ts": 0, "dur": 9, **_ON})
    assert dict(trace.frame("ledger").select("kind", "count").rows())["unknown_tool"] == 1
    assert with_texts(trace.frame("spans"))["level"].to_list() == ["layer"]


@pytest.mark.parametrize(
    ("events", "reads"),
    [
        ([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1, **_ON}], "torch_profiler"),
        ([{"ph": "X", "cat": "Kernel", "name": "gemm", "ts": 0, "dur": 1, **_ON}], "torch_profiler"),
        ([{"ph": "M", "name": "process_name", "args": {"name": "python"}, **_ON}], "torch_profiler"),
        ([{"ph": "X", "cat": "anything", "name": "a", "ts": 0, "dur": 1, **_ON}], "chrome_trace"),
        ([{"ph": "X", "name": "a", "ts": 0, "dur": 1, **_ON}], "chrome_trace"),
    ],
)
def test_categories_of_pytorchs_make_a_trace_pytorchs(events: list[dict[str, Any]], reads: str, tmp_path: Path) -> None:
    (claimant,) = claimants_of(Probe(_write(tmp_path, *events)), all_ingesters())
    assert claimant.name == reads


def _of_autograd(
    number: int, name: str, host: tuple[float, float], device: tuple[float, float]
) -> list[dict[str, Any]]:
    """An operator and its time on device 0, as torch.autograd.profiler wrote them up to torch 1.7: start, duration."""
    on_host, on_device = {"tid": 1, "pid": "CPU functions"}, {"tid": 0, "pid": "CUDA functions"}
    arrow = {"name": name, "id": number, "cat": "cpu_to_cuda"}
    return [
        {"name": name, "ph": "X", "ts": host[0], "dur": host[1], **on_host, "args": {}},
        {**arrow, "ph": "s", "ts": host[0], **on_host},
        {**arrow, "ph": "f", "ts": device[0], **on_device},
        {"name": name, "ph": "X", "ts": device[0], "dur": device[1], **on_device, "args": {}},
    ]


def test_the_lane_of_cuda_functions_is_a_device(tmp_path: Path) -> None:
    """A convolution in another operator, with a short one in it; 90 us of work, not the 292 that rows add up to."""
    path = tmp_path / "trace.json"
    events = [
        *_of_autograd(0, "aten::conv2d", (0, 30), (100, 100)),
        *_of_autograd(1, "aten::cudnn_convolution", (5, 20), (105, 90)),
        *_of_autograd(2, "aten::contiguous", (7, 2), (110, 2)),
    ]
    path.write_text(json.dumps(events), encoding="utf-8")
    trace = convert([path], Options())
    spans = with_texts(trace.frame("spans"))
    work = spans.filter(spans["level"] == "kernel").select("name", "device_id", "duration_ns", "parent_id")
    names = dict(spans.select("span_id", "name").rows())
    assert [(*row[:3], names[row[3]]) for row in work.rows()] == [
        ("aten::cudnn_convolution", 0, 90_000, "aten::cudnn_convolution")
    ]
    ledger = dict(trace.frame("ledger").select("kind", "count").rows())
    assert ledger["events_left_out"] == 2
    assert "unknown_tool" not in ledger


@pytest.mark.parametrize(
    "content",
    [
        '[{"args":{"name":"main","x":{"a":[1]}},"ph":"M","pid":1},{"name":"a","ph":"X","ts":1,"dur":2,"pid":1,"tid":0}]',
        '[\n{"attr":{"x":{"ph":1}},"name":"a","ph":"X","ts":1,"dur":2,"pid":1,"tid":0}]',
        '{"schemaVersion":1,"traceEvents":[{"name":"a","cat":"Line 21","ph":"X","ts":1,"dur":2,"pid":0,"tid":0}]}',
        '{"hosts":[{"a":[{"b":1}]}],"traceEvents":[{"name":"a","ph":"X","ts":1,"dur":2,"pid":0,"tid":0}]}',
    ],
)
def test_events_are_known_wherever_their_phase_stands(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content, encoding="utf-8")
    assert [i.name for i in claimants_of(Probe(tmp_path / "t.json"), all_ingesters())] == ["chrome_trace"]
    trace = convert([tmp_path / "t.json"], Options())
    assert trace.frame("spans")["duration_ns"].to_list() == [2_000]


@pytest.mark.parametrize("content", ['[{"name":"a","id":1}]', '[{"args":{"ph":1}}]', '{"a":{"traceEvents":[]}}'])
def test_what_has_no_phase_is_not_taken_for_events(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content, encoding="utf-8")
    assert not CHROME_TRACE.sniff(Probe(tmp_path / "t.json"))


@pytest.mark.parametrize("start", [13_984_392_629_999_074, 1_764_187_878_291_110_000])
def test_nanoseconds_in_the_field_of_microseconds_are_read_as_what_they_are(start: int, tmp_path: Path) -> None:
    events = [
        {"name": "a", "ph": "B", "ts": start, "pid": "p", "tid": "t"},
        {"name": "b", "ph": "X", "ts": start + 100, "dur": 250, "pid": "p", "tid": "t"},
        {"name": "a", "ph": "E", "ts": start + 1_000_001, "pid": "p", "tid": "t"},
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    trace = convert([tmp_path / "t.json"], Options())
    assert trace.frame("spans").select("start_ns", "duration_ns").rows() == [(0, 1_000_001), (100, 250)]
    assert dict(trace.frame("ledger").select("kind", "count").rows())["unit_taken"] == 3
