"""Rules and recipes of nsys on hand-built files: what each row says, worked out by hand."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.helpers.hand import Hand
from tests.helpers.synth_nsys import PROCESS, THREAD, NsightFile
from xsp_analyze.analyses.recipes.gpu_use import merged_stretches, time_inside
from xsp_analyze.analyses.recipes.sums_and_paces import base_name
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.render import csv_text
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from xsp_analyze.core import Analysis

_MS = 1_000_000


def _rows(file: NsightFile, folder: Path, analysis: Analysis, *columns: str) -> list[tuple[object, ...]]:
    view = StepView.of(convert([file.write(folder / "made.sqlite")], Options()))
    return run(analysis, view).table.select(columns).rows()


def test_a_gap_is_what_no_operation_covers(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(10 * _MS, 20 * _MS)
    file.kernel(15 * _MS, 100 * _MS, stream=8)
    file.memcpy(700 * _MS, 701 * _MS)
    file.memset(1201 * _MS, 1202 * _MS)  # 500 ms after the copy: not more
    file.kernel(1800 * _MS, 1801 * _MS)
    file.kernel(90 * _MS, 91 * _MS, device=1)
    rows = _rows(file, tmp_path, find("gpu_gaps"), "row_number", "duration_ns", "start_ns", "device_id")
    assert rows == [(1, 600 * _MS, 100 * _MS, 0), (2, 598 * _MS, 1202 * _MS, 0)]


def test_profiling_overhead_is_no_gap(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(10 * _MS, 20 * _MS)
    file.overhead(100 * _MS, 700 * _MS)
    file.overhead(750 * _MS, 760 * _MS, "another overhead")
    file.overhead(790 * _MS, 5000 * _MS)  # goes on after the last operation
    file.kernel(800 * _MS, 810 * _MS)
    assert _rows(file, tmp_path, find("gpu_gaps"), "duration_ns") == []


@pytest.mark.parametrize(
    ("identity", "counter"),
    [("cuda_gpu_time_util_map", "capture_duration_ns"), ("gpu_gaps", "cuda_profiling_overhead_ns")],
)
def test_a_duration_beyond_64_bits_is_none(identity: str, counter: str) -> None:
    def table(*counters: dict[str, object]) -> pl.DataFrame:
        hand = Hand()
        hand.run(0)
        for start in (10, 700 * _MS):
            hand.work("gemm", start, 10, grid=1)
        hand.extra["counters"] = list(counters)
        return run(find(identity), StepView.of(hand.build())).table

    long = {"run_id": 0, "counter": counter, "device_id": 0, "unit": "ns", "time_ns": 15, "value": 2.0**63}
    assert_frame_equal(table(long), table())


def test_neighbouring_chunks_of_low_use_are_one_stretch(tmp_path: Path) -> None:
    file = NsightFile()
    # 30 chunks of 10 ns: all busy but the fourth, fifth (idle) and seventh (4 of 10).
    file.kernel(100, 130)
    file.kernel(150, 164)
    file.kernel(170, 400)
    file.kernel(170, 180, stream=9)
    rows = _rows(file, tmp_path, find("gpu_time_util"), "share", "duration_ns", "start_ns")
    assert rows == [(0.0, 20, 130), (0.4, 10, 160)]


def test_a_device_used_for_one_instant_has_no_stretch(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(100, 100)
    assert _rows(file, tmp_path, find("gpu_time_util"), "share") == []


def test_only_asynchronous_copies_of_pageable_memory_are_found(tmp_path: Path) -> None:
    file = NsightFile()
    for name, memory in (
        ("cudaMemcpyAsync_v3020", (0, 2)),
        ("cudaMemcpyAsync_v3020", (1, 2)),
        ("cudaMemcpy_v3020", (0, 2)),
        ("cudaMemcpy2DAsync_v3020", (2, 0)),
    ):
        link = file.correlation()
        file.call(10 * link, 10 * link + 5, name, correlation=link)
        file.memcpy(100 * link, 100 * link + link, correlation=link, memory=memory)
    rows = _rows(file, tmp_path, find("cuda_memcpy_async"), "duration_ns", "source_kind", "call_name")
    assert rows == [(4, "Device", "cudaMemcpy2DAsync_v3020"), (1, "Pageable", "cudaMemcpyAsync_v3020")]


def test_small_copies_to_a_device_do_not_hold_up_the_host(tmp_path: Path) -> None:
    file = NsightFile()
    for kind, size in ((1, 64_000), (1, 64_001), (2, 8)):
        link = file.correlation()
        file.call(10 * link, 10 * link + 5, "cudaMemcpy_v3020", correlation=link)
        file.memcpy(100 * link, 100 * link + link, kind, size=size, correlation=link)
    rows = _rows(file, tmp_path, find("cuda_memcpy_sync"), "duration_ns", "bytes")
    assert rows == [(3, 8), (2, 64_001)]


def test_fills_of_device_memory_do_not_hold_up_the_host(tmp_path: Path) -> None:
    file = NsightFile()
    for memory in (1, 2, 4):
        link = file.correlation()
        file.call(10 * link, 10 * link + 5, "cudaMemset_v3020", correlation=link)
        file.memset(100 * link, 100 * link + link, correlation=link)
        file.rows["CUPTI_ACTIVITY_KIND_MEMSET"][-1]["memKind"] = memory
    rows = _rows(file, tmp_path, find("cuda_memset_sync"), "duration_ns", "destination_kind")
    assert rows == [(3, "Managed"), (1, "Pinned")]


def test_waiting_calls_are_found_by_name(tmp_path: Path) -> None:
    file = NsightFile()
    file.call(10, 20, "cudaDeviceSynchronize_v3020")
    file.call(30, 60, "cudaStreamSynchronize_v3020", thread=7)
    file.call(70, 99, "cudaEventSynchronize_v3020")
    rows = _rows(file, tmp_path, find("cuda_api_sync"), "duration_ns", "start_ns", "thread_id")
    assert rows == [(30, 30, 7), (10, 10, THREAD)]


def test_copies_that_two_calls_launched_stand_in_order_of_the_calls(tmp_path: Path) -> None:
    file = NsightFile()
    for start in range(0, 64_000, 1_000):
        link = file.correlation()
        file.call(start, start + 90, "cudaMemcpy_v3020", correlation=link)
        file.call(start + 10, start + 80, "cuMemcpyDtoH_v2", correlation=link)
        file.call(start + 20, start + 70, "cudaMemcpy", correlation=link)
        file.memcpy(start + 100, start + 103, 2, size=8, correlation=link)
    rows = _rows(file, tmp_path, find("cuda_memcpy_sync"), "call_name")
    assert rows == [("cudaMemcpy_v3020",), ("cudaMemcpy",)] * 64


def test_copies_at_one_start_on_one_stream_are_a_row_each(tmp_path: Path) -> None:
    file = NsightFile()
    for _ in range(2):
        link = file.correlation()
        file.call(10 * link, 10 * link + 5, "cudaMemcpy_v3020", correlation=link)
        file.memcpy(100, 103, 2, size=8, correlation=link)
    assert _rows(file, tmp_path, find("cuda_memcpy_sync"), "duration_ns", "bytes") == [(3, 8), (3, 8)]


def test_pace_counts_from_the_start_of_the_capture(tmp_path: Path) -> None:
    file = NsightFile()
    for start in (100, 250, 300):
        file.kernel(start, start + 20, "void ns::gemm<(int)4>(float*)")
    columns = ("name", "iteration", "start_ns", "duration_ns", "delta_ns", "duration_sum_ns", "delta_sum_ns")
    assert _rows(file, tmp_path, find("cuda_gpu_kern_pace"), *columns) == [
        ("gemm", 0, 100, 20, 100, 20, 100),
        ("gemm", 1, 250, 20, 130, 40, 230),
        ("gemm", 2, 300, 20, 30, 60, 260),
    ]


def test_pace_of_ranges_leaves_out_those_that_never_ended(tmp_path: Path) -> None:
    file = NsightFile()
    file.domain(3, "d")
    file.range(10, 20, "step")
    file.range(25, None, "step")
    file.range(30, 45, "step", domain=3)
    rows = _rows(file, tmp_path, find("nvtx_pace"), "name", "start_ns", "delta_ns", "file")
    assert rows == [("step", 10, 10, "made"), ("step", 30, 10, "made")]


def test_a_call_that_ends_with_its_range_is_not_in_it(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(10, 50, "step")
    file.launch((10, 20), (100, 120))
    file.launch((40, 50), (130, 200))
    file.range(60, 90, "step")
    file.launch((61, 70), (210, 230))
    file.launch((71, 80), (300, 301))
    rows = _rows(file, tmp_path, find("nvtx_gpu_proj_pace"), "name", "start_ns", "end_ns", "delta_ns")
    assert rows == [("step", 100, 120, 100), ("step", 210, 301, 90)]


def _collectives() -> NsightFile:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=3000)
    file.domain(1, "NCCL")
    for start, name in ((100, "ncclAllReduce"), (200, "ncclAllReduce"), (300, "ncclSend")):
        file.range(start, start + 40 + start // 10, name, domain=1)
        file.launch((start + 1, start + 5), (start + 500, start + 600), "ncclKernel")
    file.range(400, 450, "ncclAllReduce")  # of the program, not of NCCL
    file.launch((401, 402), (1050, 1100), "gemm")
    return file


def test_only_ranges_of_nccl_are_calls_of_it(tmp_path: Path) -> None:
    columns = ("text", "count", "mean_ns", "std_ns", "min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns", "total_ns")
    assert _rows(_collectives(), tmp_path, find("nccl_sum"), *columns) == [
        ("ncclAllReduce", 2, 55.0, pytest.approx(7.0710678), 50, 52.5, 55.0, 57.5, 60, 110),
        ("ncclSend", 1, 70.0, None, 70, 70.0, 70.0, 70.0, 70, 70),
    ]


def test_calls_of_nccl_on_the_device(tmp_path: Path) -> None:
    rows = _rows(_collectives(), tmp_path, find("nccl_gpu_proj_sum"), "text", "count", "total_ns")
    assert rows == [("ncclAllReduce", 2, 200), ("ncclSend", 1, 100)]


def test_the_map_tells_nccl_from_computing(tmp_path: Path) -> None:
    columns = ("bin_start_ns", "all_share", "nccl_share", "compute_share")
    rows = _rows(_collectives(), tmp_path, find("nccl_gpu_time_util_map"), *columns)
    assert rows[6:8] == [(600, 1.0, 1.0, 0.0), (700, 1.0, 1.0, 0.0)]
    assert rows[10] == (1000, 0.5, 0.0, 0.5)
    assert len(rows) == 30


def test_without_ranges_of_nccl_the_map_tells_by_names(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=3000)
    file.kernel(0, 100, "ncclDevKernel_AllReduce")
    file.kernel(100, 150, "gemm")
    rows = _rows(file, tmp_path, find("nccl_gpu_time_util_map"), "nccl_share", "compute_share")
    assert rows[:2] == [(1.0, 0.0), (0.0, 0.5)]


def test_the_map_of_two_runs_is_empty_outside_each_capture(tmp_path: Path) -> None:
    for number in range(2):
        file = NsightFile()
        file.session(epoch_ns=10**18 + 1500 * number, duration_ns=1500)
        file.kernel(100, 200, "gemm")
        file.write(tmp_path / f"rank{number}.sqlite")
    view = StepView.of(convert([tmp_path], Options()))
    table = run(find("cuda_gpu_time_util_map"), view).table
    assert table["kernel_share"].to_list() == [
        *[0.0], 1.0, *[0.0] * 13, *[None] * 15,
        *[None] * 15, 0.0, 1.0, *[0.0] * 13,
    ]  # fmt: skip
    assert table["file"].unique(maintain_order=True).to_list() == ["rank0", "rank1"]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("saxpy(double *, int)", "saxpy"),
        ("void at::native::f<(int)4, at::g(int &)::[lambda() (instance 2)]::operator ()() const>(int, T2)", "f"),
        ("ampere_sgemm_64x32_sliced1x4_tn", "ampere_sgemm_64x32_sliced1x4_tn"),
        ("(anonymous namespace)::k(int)", "k"),
        ("", ""),
        ("<<<", "<<<"),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert base_name(name) == base


def test_calls_of_mpi_count_by_name(tmp_path: Path) -> None:
    file = NsightFile()
    for start, end, name in ((0, 10, "MPI_Send"), (20, 50, "MPI_Send"), (60, 60, "MPI_Send"), (70, 75, "MPI_Recv")):
        file.event("MPI_P2P_EVENTS", start, end, name)
    file.event("UCP_EVENTS", 0, 5, "ucp_put_nbx")
    file.range(0, 90, "MPI_Send", domain=1)  # where there are calls, ranges of the same names are not counted again
    file.domain(1, "MPI")
    rows = _rows(file, tmp_path, find("mpi_sum"), "text", "count", "total_ns", "mean_ns", "min_ns", "max_ns")
    assert rows == [("MPI_Recv", 1, 5, 5.0, 5, 5), ("MPI_Send", 2, 40, 20.0, 10, 30)]


def test_ranges_named_as_calls_of_mpi_stand_for_them(tmp_path: Path) -> None:
    file = NsightFile("2.9")
    file.domain(1, "MPI")
    file.range(0, 90, "MPI_Send", domain=1)
    assert _rows(file, tmp_path, find("mpi_sum"), "text", "total_ns") == [("MPI_Send", 90)]


def test_time_in_calls_beside_kernels_by_process(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=300)  # bins of 10 ns
    file.kernel(0, 8)
    file.kernel(4, 9, device=1)
    file.event("MPI_P2P_EVENTS", 5, 12, "MPI_Send")
    file.event("MPI_OTHER_EVENTS", 11, 15, "MPI_Test", thread=7)
    file.event("MPI_P2P_EVENTS", 10, 20, "MPI_Recv", process=PROCESS + 1)
    columns = ("process_id", "bin_start_ns", "kernel_share", "call_share", "overlap_share")
    rows = _rows(file, tmp_path, find("mpi_gpu_time_util_map"), *columns)
    assert len(rows) == 60
    assert rows[0] == (PROCESS, 0, 0.9, 0.5, pytest.approx(0.4))
    assert rows[1:3] == [(PROCESS, 10, 0.0, 0.5, 0.0), (PROCESS, 20, 0.0, 0.0, 0.0)]
    assert rows[30:32] == [(PROCESS + 1, 0, 0.0, 0.0, 0.0), (PROCESS + 1, 10, 0.0, 1.0, 0.0)]


def test_shares_of_maps_are_percentages_in_csv_as_in_the_recipes(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=300)
    file.kernel(0, 8)
    view = StepView.of(convert([file.write(tmp_path / "made.sqlite")], Options()))
    lines = csv_text.render(run(find("cuda_gpu_time_util_map"), view)).splitlines()
    assert lines[:3] == ["Duration,Kernel,PID,Device ID,File", "0,80.0,100,0,made", "10,0.0,100,0,made"]


def test_samples_of_metrics_count_in_the_bin_that_they_end(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=300)
    file.kernel(3, 8)
    for number, name in enumerate(("SMs Active [Throughput %]", "Tensor Active [Throughput %]", "GR Active")):
        file.add("TARGET_INFO_GPU_METRICS", typeId=7, metricId=number, metricName=name)
    for time_ns, metric, value in ((0, 0, 99), (5, 0, 20), (10, 0, 40), (10, 1, 7), (11, 0, 50), (12, 2, 100)):
        file.add("GPU_METRICS", timestamp=time_ns, typeId=7, metricId=metric, value=value)
    columns = ("bin_start_ns", "sm_active_share", "sm_issue_share", "tensor_active_share", "device_id")
    rows = _rows(file, tmp_path, find("gpu_metric_util_map"), *columns)
    assert [(row[0], *(None if v is None else round(float(str(v)), 9) for v in row[1:])) for row in rows] == [
        (0, 0.3, None, 0.07, 7),
        (10, 0.5, None, None, 7),
    ]


_STRETCHES = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 40)), max_size=12)


@given(_STRETCHES, st.lists(st.integers(-60, 100), min_size=2, max_size=6).map(sorted))
def test_cover_is_counted_instant_by_instant(stretches: list[tuple[int, int]], edges: list[int]) -> None:
    start = np.array([s for s, _ in stretches], dtype=np.int64)
    end = start + np.array([d for _, d in stretches], dtype=np.int64)
    expected = [
        sum(1 for t in range(a, b) for s, d in stretches if s <= t < s + d) for a, b in itertools.pairwise(edges)
    ]
    assert time_inside(start, end, np.array(edges, dtype=np.int64)).tolist() == expected


@given(_STRETCHES)
def test_merged_stretches_cover_the_same_instants_once(stretches: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in stretches], dtype=np.int64)
    begun, ended = merged_stretches(start, start + np.array([d for _, d in stretches], dtype=np.int64))
    instants = {t for s, d in stretches for t in range(s, s + d)}
    again = [t for s, e in zip(begun.tolist(), ended.tolist(), strict=True) for t in range(s, e)]
    assert sorted(instants) == again
