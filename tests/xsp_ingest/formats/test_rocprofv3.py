"""rocprofv3: JSON and CSV of one run say the same; real dispatches; what can be odd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.synth_rocprof import PROCESS, RocprofRun
from xsp_analyze.text.doubts import lost_work
from xsp_analyze.trace.trace_view import TraceView
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.rocprofv3 import ROCPROFV3
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []


def _trace(folder: Path, files: Mapping[str, bytes]) -> Trace:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    trace = convert([folder], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _of(trace: Trace, level: str, *columns: str) -> list[tuple[Any, ...]]:
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return spans.filter(pl.col("level") == level).select(columns).rows()


def _run() -> RocprofRun:
    run = RocprofRun()
    run.call(500, 90_000, "fc", 1, "MARKER_CORE_API")
    run.launch(1_000, "_Z3addPKfS0_Pf.kd", 2, (20_000, 30_000), gpu=1)
    run.copy(10_000, "HOST_TO_DEVICE", 3, (16_000, 18_000))
    return run


def test_marker_launch_and_kernel_are_one_tree(tmp_path: Path) -> None:
    trace = _trace(tmp_path / "a", {"r.json": _run().json()})
    assert _of(trace, "layer", "span_id", "name", "thread_id") == [(0, "fc", PROCESS)]
    assert _of(trace, "runtime", "span_id", "parent_id", "name") == [
        (1, 0, "hipLaunchKernel"),
        (2, 0, "hipMemcpyAsync"),
    ]
    rows = _of(trace, "kernel", "parent_id", "name", "device_id", "stream_id", "process_id", "attribution")
    assert rows == [
        (2, "[HIP memcpy Host-to-Device]", 0, 3, PROCESS, "layer"),
        (1, "add(float const*, float const*, float*)", 1, 3, PROCESS, "layer"),
    ]
    assert trace.frame("copies").select("bytes", "copy_kind").rows() == [(4_096, "Host-to-Device")]


def test_a_grid_is_counted_in_blocks(tmp_path: Path) -> None:
    kernels = _trace(tmp_path / "a", {"r.json": _run().json()}).frame("kernels")
    columns = ("grid_x", "grid_y", "grid_z", "block_x", "registers_per_thread", "shared_bytes")
    assert kernels.select(columns).rows() == [(4, 2, 1, 256, 32, 1_024)]  # of 1000 threads by 2


def test_registers_are_those_of_both_kinds(tmp_path: Path) -> None:
    text = _run().json().replace(b'"arch_vgpr_count":32', b'"arch_vgpr_count":32,"accum_vgpr_count":8')
    tables = {name: table.replace(b",1024,0,32,0,16,", b",1024,0,32,8,16,") for name, table in _run().tables().items()}
    for files in ({"r.json": text}, tables):
        kernels = _trace(tmp_path / str(len(files)), files).frame("kernels")
        assert kernels["registers_per_thread"].to_list() == [40]


@pytest.mark.parametrize(("left_out", "missing", "doubts"), [((), 0, 0), ((5,), 1, 0), ((5, 6, 7), 3, 1)])
def test_numbers_of_dispatches_that_lack_are_counted(
    tmp_path: Path, left_out: Sequence[int], missing: int, doubts: int
) -> None:
    run = RocprofRun()
    for number in range(1, 13):
        run.launch(number * 10_000, "add", number, (number * 10_000 + 6_000, number * 10_000 + 9_000))
    tables = dict(run.tables())
    (name,) = (each for each in tables if each.endswith("kernel_trace.csv"))
    rows = tables[name].splitlines(keepends=True)
    tables[name] = b"".join(row for number, row in enumerate(rows) if number not in left_out)
    trace = _trace(tmp_path / "a", tables)
    ledger = dict(trace.frame("ledger").select("kind", "count").rows())
    assert ledger.get("missing_dispatches", 0) == missing
    assert len(lost_work(TraceView(trace))) == doubts


def test_csv_files_are_one_run_and_say_what_the_json_says(tmp_path: Path) -> None:
    document, tables = _trace(tmp_path / "a", {"r.json": _run().json()}), _trace(tmp_path / "b", _run().tables())
    assert tables.frame("runs").height == 1
    columns = [name for name in document.frame("spans").columns if name != "thread_id"]
    assert tables.frame("spans").select(columns).equals(document.frame("spans").select(columns))
    assert tables.frame("kernels").equals(document.frame("kernels"))
    assert (
        tables.frame("devices")
        .select("device_id", "name")
        .equals(document.frame("devices").select("device_id", "name"))
    )


def test_devices_are_the_gpus_numbered_from_0(tmp_path: Path) -> None:
    devices = _trace(tmp_path / "a", {"r.json": _run().json()}).frame("devices")
    assert devices.select("device_id", "name", "multiprocessor_count", "clock_hz").rows() == [
        (n, "AMD Instinct MI300X (synthetic)", 304, 2_100_000_000) for n in range(2)
    ]


def test_agents_named_by_their_type_are_gpus_by_number(tmp_path: Path) -> None:
    """With `--agent-index type-relative`."""
    named = {b"Agent 0": b"CPU 0", b"Agent 1": b"GPU 0", b"Agent 2": b"GPU 1"}
    files = _run().tables()
    for old, new in named.items():
        files = {name: content.replace(old, new) for name, content in files.items()}
    usual = _of(_trace(tmp_path / "a", _run().tables()), "kernel", "name", "device_id")
    assert _of(_trace(tmp_path / "b", files), "kernel", "name", "device_id") == usual
    without = {name: content for name, content in files.items() if "agent_info" not in name}
    assert _of(_trace(tmp_path / "c", without), "kernel", "name", "device_id") == usual


def test_files_of_two_processes_in_a_folder_are_two_runs(tmp_path: Path) -> None:
    files = {
        name.replace("7_", f"{process}_"): content if "agent_info" in name else content + b"\n" * (process - 7)
        for process in (7, 8)
        for name, content in _run().tables().items()
    }
    assert _trace(tmp_path / "a", files).frame("runs").height == 2


def test_columns_of_older_versions_are_known(tmp_path: Path) -> None:
    header = (
        "Kind,Agent_Id,Queue_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp,"
        "Private_Segment_Size,Group_Segment_Size,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,"
        "Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
    )
    row = 'KERNEL_DISPATCH,2,9,17,"gemm(double*, int)",102,1000,1500,0,64,256,1,1,512,1,1'
    text = f"\ufeff{header}\r\n{row}\r\n{row.replace('1000', 'x')}\r\n"
    trace = _trace(tmp_path / "a", {"old.csv": text.encode()})
    assert _of(trace, "kernel", "name", "device_id", "stream_id", "duration_ns") == [("gemm(double*, int)", 2, 9, 500)]
    assert trace.frame("kernels").select("grid_x", "shared_bytes").rows() == [(2, 64)]
    assert trace.frame("ledger").select("kind", "count").rows() == [("missing_time", 1)]


def test_a_call_to_rccl_is_a_library_call(tmp_path: Path) -> None:
    run = _run()
    run.call(50_000, 60_000, "ncclAllReduce", 9, "RCCL_API")
    trace = _trace(tmp_path / "a", {"r.json": run.json()})
    assert _of(trace, "library", "name", "parent_id") == [("ncclAllReduce", 0)]


def test_odd_values_survive(tmp_path: Path) -> None:
    document = json.loads(_run().json())
    process = document["rocprofiler-sdk-tool"][0]
    kernel = process["buffer_records"]["kernel_dispatch"][0]
    for change in (
        {"start_timestamp": 2**64 - 1},
        {"start_timestamp": -(2**63), "end_timestamp": 2**63 - 1},
        {"end_timestamp": 10},
        {"end_timestamp": None},
        {"dispatch_info": {"kernel_id": 77, "agent_id": {"handle": 1}}, "correlation_id": {"internal": 10**30}},
    ):
        process["buffer_records"]["kernel_dispatch"].append({**kernel, **change})
    process["strings"]["buffer_records"] = []
    trace = _trace(tmp_path / "a", {"r.json": json.dumps(document).encode()})
    assert dict(trace.frame("ledger").select("kind", "count").iter_rows()) == {
        "missing_time": 2,
        "negative_duration": 1,
        "missing_end": 1,
    }
    assert ("[unnamed kernel]", None, None) in _of(trace, "kernel", "name", "device_id", "correlation_id")
    assert {name for (name,) in _of(trace, "runtime", "name")} == {"[unnamed call]"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"rocprofiler-sdk-tool":[', "cut off"),
        (b'{"rocprofiler-sdk-tool":[{}', "cut off"),
        (b'{"rocprofiler-sdk-tool":[}', "not valid JSON"),
        (b'{"rocprofiler-sdk-tool":[]}', "holds no kernel"),
        (b'{"rocprofiler-sdk-tool":[{"agents":7}]}', "not as its tool writes it"),
        (b'{"rocprofiler-sdk-tool":[{"x":' + b"[" * 100_000, "nested"),
        (_run().tables()["7_agent_info.csv"], "holds no kernel"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(XspError) as refused:
        convert([path], Options())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.real
def test_real_dispatches(real_dir: Path) -> None:
    path = real_dir / "rocprof" / "dispatches.mi350x.rocprofv3.json.gz"
    assert [i.name for i in claimants_of(Probe(path), all_ingesters())] == ["rocprofv3"]
    trace = convert([path], Options())
    spans = trace.frame("spans")
    assert (spans.height, spans["duration_ns"].sum()) == (43_915, 4_441_741_378)
    assert spans["attribution"].cast(pl.String).unique().to_list() == ["orphan_no_launch"]
    assert trace.frame("devices")["name"].unique().to_list() == ["AMD Instinct MI350X"]
    assert not spans["name"].cast(pl.String).str.contains(r"^_Z|\.kd").any()
    assert "smci350" not in str(trace.frame("runs").rows())


@pytest.mark.real
def test_nobody_elses_files_are_claimed(real_dir: Path) -> None:
    for path in sorted(real_dir.rglob("*")):
        if path.is_file() and path.stat().st_size and "rocprof" not in path.parts:
            assert not ROCPROFV3.sniff(Probe(path)), path
