"""CUPTI dumps: both forms, external ids, and what can be odd about records."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.synth_cupti import OS_THREAD, PROCESS, THREAD, CuptiDump
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.cupti_dump import CUPTI_DUMP
from xsp_ingest.ingester import Options
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []


def _trace(folder: Path, content: bytes) -> Trace:
    path = folder / "dump"
    path.write_bytes(content)
    trace = convert([path], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _of(trace: Trace, level: str, *columns: str) -> list[tuple[Any, ...]]:
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return spans.filter(pl.col("level") == level).select(columns).rows()


def _ledger(trace: Trace) -> dict[str, int]:
    return dict(trace.frame("ledger").select("kind", "count").iter_rows())


def _small() -> CuptiDump:
    dump = CuptiDump()
    dump.launch(1_000, "aten::relu", 5, (20_000, 30_000))
    return dump


def test_operator_launch_and_kernel_are_one_tree(tmp_path: Path) -> None:
    trace = _trace(tmp_path, _small().lines())
    rows = trace.frame("spans").select("span_id", "parent_id", "name", "start_ns", "duration_ns", "thread_id").rows()
    assert rows == [
        (0, None, "aten::relu", 0, 9_000, THREAD),  # on CUPTI's number of its thread, not the framework's
        (1, 0, "cudaLaunchKernel_v7000", 2_000, 4_000, THREAD),
        (2, 1, "void gemm<float, 128>(float const*, float const*, float*, int)", 19_000, 10_000, None),
    ]
    assert trace.frame("operators").select("external_id").rows() == [(5,)]
    assert trace.frame("runs").select("epoch_ns", "clock_origin_ns", "level_captured").rows() == [(1_000, 1_000, "MLG")]


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    dump = _small()
    dump.add("MEMCPY", start=40_000, end=41_000, bytes=8, copyKind=2, srcKind=3, dstKind=1, correlationId=9, deviceId=0)
    lines, packed, parquet = (
        _trace(tmp_path, content) for content in (dump.lines(), gzip.compress(dump.lines()), dump.parquet())
    )
    for name in ("spans", "operators", "kernels", "copies", "devices", "ledger"):
        assert lines.frame(name).equals(packed.frame(name)), name
        assert lines.frame(name).equals(parquet.frame(name)), name
    assert lines.frame("copies").select("bytes", "copy_kind", "source_kind", "destination_kind").rows() == [
        (8, "Device-to-Host", "Device", "Pageable")
    ]


def test_work_without_a_recorded_launch_belongs_to_the_operator_of_its_external_id(tmp_path: Path) -> None:
    dump = CuptiDump()
    dump.operator(1_000, 90_000, "outer", 1)
    dump.operator(2_000, 9_000, "inner", 2)
    for external in (2, 1):  # both were on the stack
        dump.external(external, 77)
    dump.kernel(20_000, 30_000, 77)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "kernel", "parent_id", "attribution") == [(1, "layer")]
    assert _of(trace, "operator", "span_id", "name", "thread_id") == [(0, "outer", OS_THREAD), (1, "inner", OS_THREAD)]


def test_an_operator_without_times_lasts_as_long_as_its_launches(tmp_path: Path) -> None:
    dump = CuptiDump()
    dump.operator(None, None, "aten::addmm", 3, threadId=None)
    for start, correlation in ((5_000, 10), (8_000, 11)):
        dump.call(start, start + 1_000, "cudaLaunchKernel_v7000", correlation)
        dump.external(3, correlation)
        dump.kernel(start + 20_000, start + 20_500, correlation)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "operator", "start_ns", "duration_ns", "thread_id") == [(0, 4_000, THREAD)]
    assert _of(trace, "runtime", "parent_id") == [(0,), (0,)]


def test_an_operator_may_be_a_layer_or_a_step(tmp_path: Path) -> None:
    dump = CuptiDump()
    dump.operator(500, 90_000, "ProfilerStep#4", 1, level="model")
    dump.operator(900, 80_000, "Linear_0", 2, level="layer")
    dump.operator(950, 70_000, "odd", 3, level="galaxy")
    dump.launch(1_000, "aten::relu", 5, (20_000, 30_000))
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "layer", "name", "kind", "step") == [("Linear_0", "module", 4)]
    assert _of(trace, "kernel", "attribution", "step") == [("layer", 4)]
    assert _ledger(trace) == {"unknown_level": 1}


def test_runtime_and_driver_calls_with_one_correlation(tmp_path: Path) -> None:
    dump = CuptiDump()
    dump.add("RUNTIME", start=1_000, end=9_000, cbid=211, correlationId=4, processId=PROCESS, threadId=THREAD)
    dump.add("DRIVER", start=2_000, end=8_000, cbid=None, correlationId=4, processId=PROCESS, threadId=THREAD)
    dump.kernel(20_000, 30_000, 4)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "runtime", "name", "parent_id") == [("[runtime call 211]", None), ("[driver call ?]", 0)]
    assert _of(trace, "kernel", "parent_id") == [(0,)]


def test_markers_are_paired_by_their_id(tmp_path: Path) -> None:
    dump = CuptiDump()
    for flags, moment, number, extra in (
        (2, 1_000, 7, {"name": "aten::mul, seq = 3", "domain": None}),
        (2, 2_000, 8, {"name": "block"}),
        (1, 2_500, 9, {"name": "mark"}),
        (4, 3_000, 8, {}),
        (4, 6_000, 7, {}),
        (2, 7_000, 10, {"name": "left open"}),
    ):
        dump.add("MARKER", timestamp=moment, id=number, flags=flags, processId=PROCESS, threadId=THREAD, **extra)
    dump.kernel(8_000, 9_000, 1)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "operator", "name", "duration_ns") == [("aten::mul", 5_000)]
    assert _of(trace, "layer", "name", "duration_ns") == [("block", 1_000), ("left open", None)]
    assert _ledger(trace) == {"nvtx_marks_skipped": 1, "missing_end": 1}


def test_a_device_has_the_peaks_that_cupti_tells(tmp_path: Path) -> None:
    dump = _small()
    facts = {"computeCapabilityMajor": 8, "computeCapabilityMinor": 0, "numMultiprocessors": 108}
    rates = {"coreClockRate": 1_410_000, "globalMemoryBandwidth": 1_555_200_000, "globalMemorySize": 42_505_273_344}
    dump.add("DEVICE", id=0, name="NVIDIA A100-PCIE-40GB", **facts, **rates)
    row = _trace(tmp_path, dump.lines()).frame("devices").row(0, named=True)
    assert (row["compute_capability"], row["clock_hz"]) == ("8.0", 1_410_000_000)
    assert row["fp32_flop_per_s"] == pytest.approx(19.49e12, rel=1e-3)
    assert row["dram_byte_per_s"] == pytest.approx(1_555.2e9)


def test_overhead_waits_and_replays(tmp_path: Path) -> None:
    dump = _small()
    dump.add("OVERHEAD", start=100, end=150, overheadKind=1)
    dump.add("SYNCHRONIZATION", start=31_000, end=33_000, type=3, contextId=1, streamId=7, correlationId=6)
    dump.call(40_000, 41_000, "cudaGraphLaunch_v10000", 8)
    dump.add("GRAPH_TRACE", start=42_000, end=45_000, deviceId=0, contextId=1, streamId=7, correlationId=8, graphId=2)
    dump.call(50_000, 51_000, "cudaGraphLaunch_v10000", 9)
    for node in (3, 4):
        dump.kernel(50_000 + 1_000 * node, 50_500 + 1_000 * node, 9, graphId=5, graphNodeId=node)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "kernel", "kind", "attribution") == [
        ("kernel", "layer"),
        ("graph", "graph_replay"),
        ("kernel", "graph_replay"),
        ("kernel", "graph_replay"),
    ]
    assert _of(trace, "runtime", "name", "kind")[1] == ("Stream sync", "sync")
    assert _ledger(trace) == {"profiler_overhead": 1}


def test_two_processes_may_share_correlation_ids(tmp_path: Path) -> None:
    dump = CuptiDump()
    for process in (1, 2):
        dump.add(
            "RUNTIME", start=process, end=process + 5, name="launch", correlationId=9, processId=process, threadId=1
        )
        dump.kernel(100 * process, 100 * process + 10, 9, processId=process)
    trace = _trace(tmp_path, dump.lines())
    assert _of(trace, "kernel", "process_id", "parent_id") == [(1, 0), (2, 1)]


def test_odd_values_are_unknown_or_counted(tmp_path: Path) -> None:
    dump = _small()
    dump.kernel(60_000, 50_000, 2)
    dump.kernel(0, 0, 3)
    dump.kernel(2**63, 2**63 + 5, 4)
    dump.kernel(-(2**63), 2**63 - 1, 4)
    dump.kernel(70_000, 71_000, 2**64 - 1, name=None, gridX="wide", deviceId=1.5)
    dump.add("EXTERNAL_CORRELATION", externalKind=3, externalId=99, correlationId=1)
    dump.add("NO_SUCH_KIND")
    dump.records.append({"start": 1})
    trace = _trace(tmp_path, dump.lines() + b'\xff\xfe\n{"kind": 7}\n\n[1, 2]\n' + b"[" * 5_000 + b"\n")
    assert _ledger(trace) == {
        "negative_duration": 1,
        "missing_time": 3,
        "unnamed_external_id": 1,
        "unknown_record": 2,
        "record_without_kind": 2,
        "bad_line": 2,
    }
    assert _of(trace, "kernel", "name", "correlation_id", "device_id")[-1] == ("[unnamed kernel]", None, None)


def test_names_of_any_kind_survive(tmp_path: Path) -> None:
    dump = CuptiDump()
    names = ["<script>alert(1)</script>", 'quo"te', "line\nend", "é\0", "_Z", ""]
    for index, name in enumerate(names):
        dump.kernel(1_000 * (index + 1), 1_000 * (index + 1) + 5, index + 1, name=name)
    assert [row[0] for row in _of(_trace(tmp_path, dump.lines()), "kernel", "name")] == names


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_small().lines()[:-20], "cut off"),
        (gzip.compress(_small().lines())[:-12], "cut off"),
        (CuptiDump({"version": 2}).lines(), "version 2"),
        (CuptiDump({"version": "one"}).lines(), "header of the CUPTI dump cannot be read"),
        (CuptiDump().lines(end=False), "holds no records"),
        (CuptiDump().lines(), "no record with a start"),
        (b'{"format": "xsp cupti dump", "version": 1}\n' + b"no\n" * 1_500, "more than 1000 lines"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(XspError) as refused:
        convert([path], Options())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_parquet_file_of_something_else_is_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"kind": ["a"]}), path)
    assert not CUPTI_DUMP.sniff(Probe(path))
    with pytest.raises(XspError, match="does not say that it is a CUPTI dump"):
        CUPTI_DUMP.read(path, Options())


def test_a_parquet_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    count = 1_000_000
    table = pa.table({"kind": pa.repeat("CONCURRENT_KERNEL", count)})
    metadata = {b"xsp cupti dump": b'{"format": "xsp cupti dump", "version": 1}'}
    target = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), target)
    path = tmp_path / "bomb.parquet"
    path.write_bytes(target.getvalue())
    with pytest.raises(XspError, match="claims more records than it has bytes"):
        CUPTI_DUMP.read(path, Options())


def test_columns_of_other_types_are_unknown(tmp_path: Path) -> None:
    table = pa.table(
        {
            "kind": ["CONCURRENT_KERNEL"],
            "name": pa.array(["k"]).dictionary_encode(),
            "start": pa.array([5], pa.uint64()),
            "end": pa.array([9], pa.int32()),
            "deviceId": pa.array(["zero"]),
            "gridX": pa.array([[1]]),
        }
    )
    metadata = {b"xsp cupti dump": b'{"format": "xsp cupti dump", "version": 1, "dropped": 3}'}
    target = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), target)
    trace = _trace(tmp_path, target.getvalue())
    assert _of(trace, "kernel", "name", "duration_ns", "device_id") == [("k", 4, None)]
    assert _ledger(trace) == {"dropped_records": 3}


def test_text_of_parquet_that_is_no_text_is_refused(tmp_path: Path) -> None:
    content = _small().parquet()
    assert b"gemm" in content
    path = tmp_path / "dump"
    path.write_bytes(content.replace(b"gemm", b"\xff\xfe\xff\xfe"))
    with pytest.raises(XspError, match="damaged"):
        CUPTI_DUMP.read(path, Options())


@pytest.mark.parametrize("field", ["pid", "epoch_ns", "rank"])
def test_a_header_with_absurd_numbers_is_refused(tmp_path: Path, field: str) -> None:
    path = tmp_path / "dump"
    path.write_bytes(CuptiDump({field: 2**64}).lines())
    with pytest.raises(XspError, match="header of the CUPTI dump cannot be read"):
        CUPTI_DUMP.read(path, Options())
