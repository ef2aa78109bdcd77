"""The reports of `nsys stats` and `nsys recipe` as traces: what is read, in which units, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.nsys_tool import nsys
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nsys.stats_csv import NSYS_STATS_CSV
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
_API = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
_RANGES = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
    "RangeStack,NameTree\n"
)
_EXEC = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),PID,"
    "TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
)


def _trace(text: str | bytes, folder: Path, name: str = "r.csv") -> Trace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return convert([path], Options())


def _rows(trace: Trace, *columns: str) -> list[tuple[object, ...]]:
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return spans.select(columns).rows()


def _ledger(trace: Trace) -> dict[str, int]:
    return dict(trace.frame("ledger").select("kind", "count").iter_rows())


def test_calls_ranges_and_work_of_one_file_are_tied(tmp_path: Path) -> None:
    text = (
        "Processing [x.sqlite] with [cuda_gpu_trace.py]... \n"
        + _GPU
        + '2000,50,7,4,5,6,128,1,1,32,0.000,0.016,,,,,GPU (1) (3),1,,7,"void f<int, 4>(float*)"\n'
        + "2100,9,8,,,,,,,,,,0.002,250.000,Pageable,Device,GPU (1) (3),1,,7,[CUDA memcpy Host-to-Device]\n"
        + "2200,1,9,,,,,,,,,,0.001,,Managed,,GPU (1) (3),1,,7,[CUDA memset]\n\n"
        + _API
        + "1010,20,cudaLaunchKernel,0,7,100,101,20,python\n1040,5,cudaMemcpyAsync,0,8,100,101,20,python\n\n"
        + _RANGES
        + '1000,1100,100,0,100,"aten::mm, op_id = 4",100,101,0,0,1,,:1,"aten::mm, op_id = 4"\n'
    )
    trace = _trace(text, tmp_path)
    columns = ("level", "kind", "name", "start_ns", "duration_ns", "process_id", "thread_id", "device_id", "parent_id")
    assert _rows(trace, *columns) == [
        ("operator", "operator", "aten::mm", 0, 100, 100, 101, None, None),
        ("runtime", "call", "cudaLaunchKernel", 10, 20, 100, 101, None, 0),
        ("runtime", "call", "cudaMemcpyAsync", 40, 5, 100, 101, None, 0),
        ("kernel", "kernel", "void f<int, 4>(float*)", 1000, 50, 100, None, 3, 1),
        ("kernel", "memcpy", "[CUDA memcpy Host-to-Device]", 1100, 9, 100, None, 3, 2),
        ("kernel", "memset", "[CUDA memset]", 1200, 1, None, None, 3, None),
    ]
    kernels = trace.frame("kernels").select("grid_x", "grid_z", "block_x", "registers_per_thread", "shared_bytes")
    assert kernels.rows() == [(4, 6, 128, 32, 16_000)]
    copies = trace.frame("copies").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert copies.select("bytes", "copy_kind", "source_kind", "destination_kind").rows() == [
        (2000, "Host-to-Device", "Pageable", "Device"),
        (1000, None, None, "Managed"),
    ]


def test_units_are_taken_from_the_headings(tmp_path: Path) -> None:
    text = (
        _API.replace("(ns)", "(us)") + "1.001,0.020,cudaFree,0,7,100,101,20,python\n2,3.5,cudaFree,0,8,100,101,20,x\n"
    )
    assert _rows(_trace(text, tmp_path), "start_ns", "duration_ns") == [(0, 20), (999, 3500)]


def test_line_ends_marks_and_foreign_bytes(tmp_path: Path) -> None:
    text = "\ufeff" + (_API + "5,1,caf\xe9\n2,0,7,100,101,20,x\n").replace("caf\xe9\n2", '"caf\xe9\n2"')
    raw = text.replace("\n", "\r\n").encode().replace("\xe9".encode(), b"\xe9")
    trace = _trace(raw, tmp_path)
    assert _rows(trace, "name") == [("caf\ufffd\r\n2",)]


def test_an_execution_trace_ties_kernels_by_itself(tmp_path: Path) -> None:
    text = (
        _EXEC
        + '100,20,120,30,150,40,90,9,8,2,cudaGraphLaunch,"4    1    1"," 128    1    1",a\n'
        + '100,20,120,90,210,10,120,9,8,2,cudaGraphLaunch,"1    1    1"," 32    1    1",b\n'
    )
    trace = _trace(text, tmp_path)
    assert _rows(trace, "level", "name", "start_ns", "parent_id", "device_id") == [
        ("runtime", "cudaGraphLaunch", 0, None, None),
        ("kernel", "a", 50, 0, 2),
        ("kernel", "b", 110, 0, 2),
    ]
    assert trace.frame("kernels").select("grid_x", "block_x").rows() == [(4, 128), (1, 32)]


def test_files_of_one_report_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "r1_cuda_api_trace.csv").write_text(_API + "10,2,cudaLaunchKernel,0,7,1,1,20,x\n")
    (tmp_path / "r1_cuda_gpu_trace.csv").write_text(_GPU + "20,5,7,1,1,1,1,1,1,1,0,0,,,,,G (0),1,,7,k\n")
    (tmp_path / "r2_cuda_gpu_trace.csv").write_text(_GPU + "20,6,7,1,1,1,1,1,1,1,0,0,,,,,G (0),1,,7,k\n")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 2
    attributed = trace.frame("spans").filter(pl.col("kind").cast(pl.String) == "kernel")["attribution"]
    assert attributed.cast(pl.String).sort().to_list() == ["model_only", "orphan_no_launch"]
    assert _ledger(trace)["launches_not_given"] == 1


def test_ids_that_collide_between_processes_tie_nothing(tmp_path: Path) -> None:
    text = _API + "10,2,f,0,7,1,1,20,x\n11,2,f,0,7,2,2,20,x\n\n" + _GPU + "20,5,7,1,1,1,1,1,1,1,0,0,,,,,G (0),1,,7,k\n"
    trace = _trace(text, tmp_path)
    assert _ledger(trace)["unclear_process"] == 1
    assert _rows(trace, "process_id", "parent_id")[-1] == (None, None)


@pytest.mark.parametrize(
    "heading",
    [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
        "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
        "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances",
    ],
)
def test_sums_are_known_and_explained(tmp_path: Path, heading: str) -> None:
    path = tmp_path / "sum.csv"
    path.write_text(heading + "\n" + ",".join("1" for _ in heading.split(",")) + "\n")
    assert NSYS_STATS_CSV.sniff(Probe(path))
    with pytest.raises(XspError, match="sums of Nsight Systems"):
        convert([path], Options())


def test_the_recipe_s_trace_is_ranges(tmp_path: Path) -> None:
    columns = {
        "Name": ["step", None],
        "Projected Start": [50, 60],
        "Projected Duration": [5, 6],
        "Orig Start": [10, None],
        "Orig Duration": [4, None],
        "Style": ["PushPop", None],
        "PID": [1, 1],
        "TID": [2, 2],
        "RangeId": [3, None],
        "File": ["a", "a"],
    }
    pq.write_table(pa.table(columns), tmp_path / "trace.parquet")
    trace = convert([tmp_path / "trace.parquet"], Options())
    assert _rows(trace, "level", "name", "duration_ns", "thread_id") == [("model", "step", 4, 2)]
    assert _ledger(trace)["missing_time"] == 1


def test_the_recipe_s_statistics_are_sums(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Count": [1], "Mean": [2.0], "Sum": [2]}), tmp_path / "all_stats.parquet")
    with pytest.raises(XspError, match="sums of Nsight Systems"):
        convert([tmp_path / "all_stats.parquet"], Options())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_API + "5,1,f,0\n", "row 1 of cuda_api_trace has 4 cells, not 9"),
        (_API + "5,1,f,0,7,100,101,20,x", "ends within a line"),
        (_API + '5,1,"f,0,7,100,101,20,x\n' * 2 + '"', "ends within a line"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(XspError, match=says):
        _trace(text, tmp_path)


def test_hostile_numbers_are_unknown_or_exact(tmp_path: Path) -> None:
    text = (
        _API
        + "9223372036854775807,1,a,0,1,1,1,20,x\n"
        + "1e400,1,b,0,2,1,1,20,x\n"
        + "NaN,1,c,0,3,1,1,20,x\n"
        + "2305843009213693948,-5,d,0,4,1,1,20,x\n"
        + "-2305843009213693948,1,e,0,5,1,1,20,x\n"
    )
    trace = _trace(text, tmp_path)
    assert _rows(trace, "name", "start_ns", "duration_ns") == [("e", 0, 1), ("d", 4611686018427387896, None)]
    assert _ledger(trace)["missing_time"] == 3


@pytest.mark.nsys
@pytest.mark.real
def test_what_nsys_prints_of_a_real_file_is_what_the_file_says(real_dir: Path, tmp_path: Path) -> None:
    database = shutil.copy(real_dir / "nsys" / "cloverleaf.a100.nsys2024_5.sqlite", tmp_path / "real.sqlite")
    reports = ("--report", "cuda_gpu_trace", "--report", "cuda_api_trace")
    command = [nsys(), "stats", *reports, "--format", "csv", "--output", "-", database]
    done = subprocess.run(command, check=True, capture_output=True)
    printed, exported = _trace(done.stdout, tmp_path, "printed.csv"), convert([tmp_path / "real.sqlite"], Options())
    compared = pl.col("kind").cast(pl.String).is_in(["kernel", "memcpy", "memset", "call"])
    columns = ["start_ns", "duration_ns", "process_id", "thread_id", "device_id", "stream_id", "correlation_id"]
    both = [t.frame("spans").filter(compared).select(columns).sort(columns) for t in (printed, exported)]
    assert both[0].equals(both[1])
    assert both[0].height == 4639


def test_a_negative_duration_of_a_range_is_unknown_and_an_empty_report_holds_texts(tmp_path: Path) -> None:
    trace = _trace(_RANGES + "10,20,-1,0,0,a,1,1,1,0,1,,:1,a\n", tmp_path)
    assert _rows(trace, "name", "duration_ns") == [("a", None)]
    both = _trace(_RANGES + "\n" + _API + "5,3,cudaLaunchKernel,0,1,1,1,,main\n", tmp_path)
    assert _rows(both, "name", "duration_ns") == [("cudaLaunchKernel", 3)]
