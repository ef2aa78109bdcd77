"""Reports of `nsys stats` on hand-built files: what each row says, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from tests.helpers.synth_nsys import THREAD, NsightFile
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.formats.nsys.tables.host import OS_RUNTIME
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.core import Analysis


def _rows(file: NsightFile, folder: Path, analysis: Analysis, *columns: str) -> list[tuple[object, ...]]:
    options = Options(extra={OS_RUNTIME: "yes"})
    path = file.write(folder / f"{analysis.id}.sqlite")
    view = StepView.of(convert([path], options))
    return run(analysis, view).table.select(columns).rows()


def test_kernels_and_copies_in_one_table(tmp_path: Path) -> None:
    file = NsightFile()
    file.call(0, 4)
    file.call(5, 6, "cudaLaunchKernel_v9000")  # a version that is printed alike counts with the other
    file.kernel(10, 40, "gemm")
    file.kernel(50, 60, "gemm")
    file.memcpy(70, 90)
    columns = ("operation", "category", "count", "total_ns", "median_ns")
    device = [("gemm", "CUDA_KERNEL", 2, 40, 20.0), ("[CUDA memcpy Host-to-Device]", "MEMORY_OPER", 1, 20, 20.0)]
    assert _rows(file, tmp_path, find("cuda_gpu_sum"), *columns) == device
    rows = _rows(file, tmp_path, find("cuda_api_gpu_sum"), *columns, "share")
    calls = ("cudaLaunchKernel", "CUDA_API", 2, 5, 2.5)
    assert rows == [(*row, row[3] / 65) for row in (*device, calls)]


def test_a_launch_waits_in_the_queue_or_does_not(tmp_path: Path) -> None:
    file = NsightFile()
    file.launch((100, 110), (150, 170), "late")
    file.launch((200, 230), (220, 225), "early")
    columns = ("call_start_ns", "call_ns", "queue_start_ns", "queue_ns", "total_ns", "grid", "block", "name")
    assert _rows(file, tmp_path, find("cuda_kern_exec_trace"), *columns) == [
        (100, 10, 110, 40, 70, "   1    1    1", "  32    1    1", "late"),
        (200, 30, None, None, 30, "   1    1    1", "  32    1    1", "early"),
    ]


def _ranges() -> NsightFile:
    file = NsightFile()
    file.range(0, 100, "outer")
    file.range(10, 40, "inner")
    file.range(50, 70, "inner")
    file.range(20, 25, "innermost")
    file.range(5, 95, "elsewhere", style="StartEnd")
    file.range(30, 35, "other thread", thread=THREAD + 1)
    return file


def test_the_styles_of_ranges_are_apart(tmp_path: Path) -> None:
    columns = ("range_name", "count", "total_ns")
    pushed = [("outer", 1, 100), ("inner", 2, 50), ("innermost", 1, 5), ("other thread", 1, 5)]
    assert _rows(_ranges(), tmp_path, find("nvtx_pushpop_sum"), *columns) == pushed
    assert _rows(_ranges(), tmp_path, find("nvtx_startend_sum"), *columns) == [("elsewhere", 1, 90)]


def test_the_stack_of_ranges(tmp_path: Path) -> None:
    columns = ("range_id", "child_ns", "own_ns", "depth", "child_count", "parent_id", "stack", "name_tree")
    assert _rows(_ranges(), tmp_path, find("nvtx_pushpop_trace"), *columns) == [
        (1, 50, 50, 0, 2, None, ":1", "outer"),
        (2, 5, 25, 1, 1, 1, ":1:2", "--inner"),
        (4, 0, 5, 2, 0, 2, ":1:2:4", "----innermost"),
        (6, 0, 5, 0, 0, None, ":6", "other thread"),
        (3, 0, 20, 1, 0, 1, ":1:3", "--inner"),
    ]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((20, 10, 30), [20, 10, 30]),
        ((20, 20, 30), [1, 2, 3]),  # of a damaged file, or of another tool
        ((20, None, 30), [20, 2, 30]),
        ((2, None, 30), [1, 2, 3]),
        ((None, None, None), [1, 2, 3]),
    ],
)
def test_ranges_have_the_numbers_of_their_source_where_these_tell_them_apart(
    numbers: tuple[int | None, ...], shown: list[int]
) -> None:
    hand = Hand()
    hand.run(0)
    for at, number in enumerate(numbers):
        span_id = hand.span("application", "range", "r", 100 * at, 50)
        hand.extra.setdefault("ranges", []).append(
            {"span_id": span_id, "range_id": number, "text": "r", "style": "PushPop"}
        )
    table = run(find("nvtx_pushpop_trace"), StepView.of(hand.build())).table
    assert table["range_id"].to_list() == shown


def test_equal_ranges_have_no_place_in_the_stack(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(0, 50, "one")
    file.range(0, 50, "the same")
    file.range(10, 20, "inside")
    file.range(60, 70, "after")
    assert _rows(file, tmp_path, find("nvtx_pushpop_trace"), "range_name") == [("after",)]


def test_calls_of_the_operating_system_of_openmp_and_of_openacc(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("OSRT_API", 0, 10, "poll", eventClass=27)
    file.event("OSRT_API", 20, 24, "poll", eventClass=27)
    file.event("OSRT_API", 30, 31, "read", eventClass=27)
    file.event("OPENMP_EVENT_KIND_TASK", 0, 7, "Task")
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_OTHER", 0, 9, "Wait", srcFile=file.string("a.c"), lineNo=7)
    file.event("MPI_P2P_EVENTS", 0, 5, "MPI_Send")
    file.event("UCP_EVENTS", 0, 5, "ucp_put_nbx")
    file.library_call(0, 5, "cudnnConvolutionForward")
    columns = ("name", "count", "total_ns")
    assert _rows(file, tmp_path, find("osrt_sum"), *columns) == [("poll", 2, 14), ("read", 1, 1)]
    assert _rows(file, tmp_path, find("openmp_sum"), *columns) == [("Task", 1, 7)]
    assert _rows(file, tmp_path, find("openacc_sum"), *columns) == [("Wait@a.c:7", 1, 9)]


def test_a_trace_without_such_calls_is_refused_with_how_to_get_them(tmp_path: Path) -> None:
    file = NsightFile()
    file.library_call(0, 5, "cudnnConvolutionForward")
    with pytest.raises(XspError, match="calls of the operating system's runtime") as refusal:
        _rows(file, tmp_path, find("osrt_sum"))
    assert "--os-runtime" in str(refusal.value)


def test_calls_of_mpi_one_by_one(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("MPI_COLLECTIVES_EVENTS", 30, 40, "MPI_Bcast", rootRank=0, size=7, recvSize=8)
    file.event("MPI_P2P_EVENTS", 10, 20, "MPI_Send", tag=5, remoteRank=1, size=100)
    columns = ("start_ns", "end_ns", "name", "tag", "rank", "peer_rank", "root_rank", "bytes", "sent_bytes")
    assert _rows(file, tmp_path, find("mpi_event_trace"), *columns) == [
        (10, 20, "MPI_Send", 5, None, 1, None, 100, None),
        (30, 40, "MPI_Bcast", None, None, None, 0, None, 7),
    ]


def test_unified_memory_by_page(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(0, 1)
    file.faults(5, 4096, instruction="main")
    file.faults(6, 4096, 3)
    file.faults(7, 65536, instruction="main")
    file.memcpy(10, 20, 11, address=4096, size=100)
    file.memcpy(30, 40, 12, address=4096, size=60)
    columns = ("address", "to_device_bytes", "to_host_bytes", "host_faults", "device_faults", "byte_per_s")
    # 160 bytes in 20 ns: 160 times the 50 000 000 whole stretches of 20 ns in a second.
    rows = [("0x1000", 100, 60, 1, 3, 8_000_000_000), ("0x10000", None, None, 1, None, None)]
    assert _rows(file, tmp_path, find("um_sum"), *columns) == rows
    total = ("to_device_bytes", "to_host_bytes", "host_faults", "device_faults", "least_address", "greatest_address")
    assert _rows(file, tmp_path, find("um_total_sum"), *total) == [(100, 60, 2, 3, "0x1000", "0x10000")]
    assert _rows(file, tmp_path, find("um_cpu_page_faults_sum"), "count", "instruction") == [(2, "main")]


@pytest.mark.slow
def test_of_ranges_without_end_in_one_another_the_way_down_is_told_to_the_512th(tmp_path: Path) -> None:
    file = NsightFile()
    for n in range(600):
        file.range(n, 2_000 - n, f"r{n}")
    rows = _rows(file, tmp_path, find("nvtx_pushpop_trace"), "depth", "stack", "name_tree")
    assert [depth for depth, *_ in rows] == list(range(600))
    assert [None if stack is None else str(stack).count(":") for _, stack, _ in rows] == [*range(1, 513), *[None] * 88]
    assert [str(name).count("-") for *_, name in rows] == [2 * min(n, 511) for n in range(600)]
