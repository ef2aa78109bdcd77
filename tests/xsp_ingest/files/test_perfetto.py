"""Perfetto's protobuf, of any tool and as XSP writes it, read as the trace events of Chrome."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import FixtureCase, trace_of
from tests.helpers.synth_hlo import length_delimited, number
from xsp_analyze.export.perfetto import PERFETTO
from xsp_ingest.convert import convert
from xsp_ingest.files.perfetto import is_perfetto
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_model import Trace

_FIXTURES = Path(__file__).parents[3] / "fixtures"
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_SPANS = (
    *("level", "kind", "name", "duration_ns", "process_id", "thread_id", "device_id", "stream_id", "correlation_id"),
    *("step", "phase", "attribution", "parent_id", "layer_id"),
)


def _packet(content: bytes, sequence: int = 1) -> bytes:
    return length_delimited(1, content + number(10, sequence))


def _event(time: int, kind: int, content: bytes = b"", *, more: bytes = b"", sequence: int = 1) -> bytes:
    return _packet(number(8, time) + more + length_delimited(11, number(9, kind) + content), sequence)


def _thread(uuid: int, pid: int, tid: int, name: str) -> bytes:
    described = number(1, pid) + number(2, tid) + length_delimited(5, name)
    return _packet(length_delimited(60, number(1, uuid) + length_delimited(4, described)))


def _read(path: Path, content: bytes) -> Trace:
    path.write_bytes(content)
    return convert([path], Options())


def _rows(trace: Trace) -> list[tuple[object, ...]]:
    columns = (pl.col("name").cast(pl.String), "start_ns", "duration_ns", "process_id", "thread_id")
    return trace.frame("spans").sort("start_ns", "name").select(*columns).rows()


def _sdk() -> bytes:
    """As Perfetto's SDK writes it: a clock of the sequence that counts on in µs, a track by default, numbered texts."""
    clocks = length_delimited(1, number(1, 6) + number(2, 5_000_000))
    clocks += length_delimited(1, number(1, 1) + number(2, 1_700_000_000_000_000_000))
    clocks += length_delimited(1, number(1, 64) + number(2, 77) + number(3, 1) + number(4, 1000))
    defaults = number(58, 64) + length_delimited(11, number(11, 7))
    head = length_delimited(6, clocks) + number(13, 1) + length_delimited(59, defaults)
    interned = length_delimited(12, length_delimited(2, number(1, 3) + length_delimited(2, "decode")))
    return (
        _packet(head)
        + _thread(7, 12, 34, "main")
        + _event(10, _BEGIN, number(10, 3), more=interned)  # 10 µs on
        + _event(2, _BEGIN, length_delimited(23, "read"))
        + _event(3, _INSTANT, length_delimited(23, "mark"))
        + _event(4, _END)
        + _event(5, _END)
    )


def test_clocks_of_a_sequence_count_on_and_texts_are_numbered(tmp_path: Path) -> None:
    trace = _read(tmp_path / "t.pftrace", _sdk())
    assert _rows(trace) == [("decode", 0, 14_000, 12, 34), ("read", 2_000, 7_000, 12, 34)]
    ledger = dict(trace.frame("ledger").select("kind", "count").rows())
    assert (ledger["unknown_tool"], ledger["nvtx_marks_skipped"]) == (2, 1)


def test_packets_that_are_compressed_together_are_read(tmp_path: Path) -> None:
    sound = _sdk()
    packed = zlib.compress(sound)
    content = _packet(b"") + length_delimited(1, length_delimited(50, packed))
    assert _rows(_read(tmp_path / "a", content)) == _rows(_read(tmp_path / "b", sound))


def _counter_track(uuid: int, name: str, counter: bytes) -> bytes:
    track = number(1, uuid) + length_delimited(2, name) + number(5, 1) + length_delimited(8, counter)
    return _packet(length_delimited(60, track))


def test_counters_and_slices_on_tracks_of_their_own(tmp_path: Path) -> None:
    process = length_delimited(3, number(1, 9) + length_delimited(6, "server"))
    content = (
        _packet(length_delimited(60, number(1, 1) + process))
        + _packet(length_delimited(60, number(1, 2) + length_delimited(2, "requests") + number(5, 1)))
        + _counter_track(3, "queue", number(4, 10))
        + _counter_track(4, "sent", number(5, 1))
        + _event(1_000, _BEGIN, number(11, 2) + length_delimited(23, "GET"))
        + _event(1_500, _COUNTER, number(11, 3) + number(30, 4))
        + _event(1_600, _COUNTER, number(11, 4) + number(30, 4))
        + _event(1_700, _COUNTER, number(11, 4) + number(30, 3))
        + _event(3_000, _END, number(11, 2))
        + _event(3_500, _END, number(11, 2))  # ends nothing
    )
    trace = _read(tmp_path / "t.pftrace", content)
    ((name, _, duration, process_id, _),) = _rows(trace)
    assert (name, duration, process_id) == ("GET", 2_000, 9)
    samples = trace.frame("counters").select(pl.col("counter").cast(pl.String), "value").rows()
    assert samples == [("queue", 40.0), ("sent", 4.0), ("sent", 7.0)]
    assert "unpaired_events" in trace.frame("ledger")["kind"].to_list()


def test_events_of_chrome_s_older_phases(tmp_path: Path) -> None:
    def legacy(phase: str, more: bytes = b"") -> bytes:
        return length_delimited(23, "task") + number(11, 7) + length_delimited(6, number(2, ord(phase)) + more)

    content = (
        _thread(7, 12, 34, "main")
        + _event(1_000, 0, legacy("X", number(3, 5)))
        + _event(20_000, 0, legacy("B"))
        + _event(21_000, 0, legacy("E"))
        + _event(30_000, 0, legacy("b", number(6, 99)))
        + _event(36_000, 0, legacy("e", number(6, 99)))
    )
    trace = _read(tmp_path / "t.pftrace", content)
    assert [row[2] for row in _rows(trace)] == [5_000, 1_000, 6_000]


def test_the_moment_at_which_it_began_is_kept(tmp_path: Path) -> None:
    case = FixtureCase("torch_profiler/transformer_train_gpu_synthetic")
    written, trace = tmp_path / "t.pftrace", trace_of(case)
    with written.open("wb") as file:
        PERFETTO.write(trace, file)
    runs = convert([written], Options()).frame("runs")
    assert runs["epoch_ns"].to_list() == trace.frame("runs")["epoch_ns"].to_list()


@pytest.mark.parametrize(
    "name",
    [
        "torch_profiler/transformer_train_gpu_synthetic",
        "torch_profiler/odd_names",
        "torch_profiler/old_categories",
        "torch_profiler/graph_replay_synthetic",
        "nsys_stats_csv/two_processes",
        "rocprofv3/json_synthetic",
        "nvprof/database_synthetic",
        "chrome_trace/loader_synthetic",
    ],
)
def test_what_was_written_comes_back(name: str, tmp_path: Path) -> None:
    trace = trace_of(FixtureCase(name))
    with (tmp_path / "t.pftrace").open("wb") as file:
        PERFETTO.write(trace, file)
    again = convert([tmp_path / "t.pftrace"], Options())
    assert _comparable(again) == _comparable(trace)
    if name.startswith("torch_profiler"):
        assert _numbers(again, "kernels") == _numbers(trace, "kernels")
        assert _shapes(again) == _shapes(trace)
        assert _samples(again) == _samples(trace)


def _comparable(trace: Trace) -> list[tuple[object, ...]]:
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    start = pl.col("start_ns") - pl.col("start_ns").min()
    return sorted(spans.select(start, *_SPANS).rows(), key=repr)


def _numbers(trace: Trace, table: str) -> list[tuple[object, ...]]:
    kernels = trace.frame(table)
    return kernels.select("span_id", "grid_x", "block_x", "registers_per_thread", "shared_bytes").rows()


def _shapes(trace: Trace) -> list[tuple[object, ...]]:
    operators = trace.frame("operators").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return operators.select("span_id", "input_shapes", "forward_id").rows()


def _samples(trace: Trace) -> list[tuple[object, ...]]:
    counters = trace.frame("counters").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return sorted(counters.select("time_ns", "counter", "device_id", "value", "unit").rows(), key=repr)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_packet(number(8, 5)) + _packet(b""), "holds no slices or counters of any program"),
        (_sdk()[:-3], "is cut off"),
        (_sdk() + b"\x0b\x01", "damaged: no packet at byte"),
        (_sdk() + length_delimited(1, length_delimited(50, b"no zlib")), "its compressed packets are"),
        (_sdk() + length_delimited(1, length_delimited(50, zlib.compress(bytes(1 << 29)))), "over 256 MiB"),
    ],
)
def test_what_is_no_trace_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=says):
        _read(tmp_path / "t.pftrace", content)


@pytest.mark.parametrize(
    ("content", "is_one"),
    [
        (_sdk(), True),
        (_sdk()[:-3], True),
        (b"\n\x02\x08\x01" * 9, False),
        (b"", False),
        (b"\n", False),
        (b"\n\xff\xff\xff\xff\x0f", False),
        (b'\n  {\n  "schemaVersion": 1,\n  "deviceProperties": [\n  ], "traceEvents": []}', False),
        (b"\n\x04P\x01P\x01 and so on", False),
    ],
)
def test_a_trace_is_known_by_its_first_packets(content: bytes, is_one: bool) -> None:  # noqa: FBT001
    assert is_perfetto(content) is is_one


def _device_time(trace: Trace) -> list[tuple[int, ...]]:
    work = trace.frame("spans").filter(pl.col("level").cast(pl.String) == "kernel")
    by_run = work.group_by("run_id").agg(pl.len(), pl.col("duration_ns").sum(), pl.col("parent_id").null_count())
    return by_run.sort("run_id").rows()


def test_several_ranks_come_back_as_runs_of_their_ranks(tmp_path: Path) -> None:
    trace = convert([_FIXTURES / "torch_profiler/two_ranks"], Options())
    with (tmp_path / "job.pftrace").open("wb") as file:
        PERFETTO.write(trace, file)
    back = convert([tmp_path / "job.pftrace"], Options())
    assert back.frame("runs")["rank"].to_list() == [0, 1]
    assert _device_time(back) == _device_time(trace)


def test_runs_without_ranks_stay_apart(tmp_path: Path) -> None:
    sources = ("graph_replay_synthetic", "old_categories")
    trace = convert([_FIXTURES / "torch_profiler" / source for source in sources], Options())
    with (tmp_path / "runs.pftrace").open("wb") as file:
        PERFETTO.write(trace, file)
    back = convert([tmp_path / "runs.pftrace"], Options())
    assert sorted(row[1:3] for row in _device_time(back)) == sorted(row[1:3] for row in _device_time(trace))
