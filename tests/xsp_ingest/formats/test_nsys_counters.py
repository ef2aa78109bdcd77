"""What Nsight exports hold besides CUDA: samples, memory, MPI, the operating system, the profiler's own time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth_nsys import PROCESS, THREAD, NsightFile, global_id
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.staging.selection import Selection
from xsp_model import integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _trace(file: NsightFile, folder: Path, options: Options | None = None) -> Trace:
    trace = convert([file.write(folder / "made.sqlite")], options or Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _counters(trace: Trace, *columns: str) -> list[tuple[object, ...]]:
    return trace.frame("counters").with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns).rows()


def _ledger(trace: Trace) -> dict[str, int]:
    return dict(trace.frame("ledger").select("kind", "count").iter_rows())


def _calls(trace: Trace) -> list[tuple[object, ...]]:
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return spans.filter(pl.col("kind") == "call").select("level", "name", "start_ns", "duration_ns").rows()


def test_gpu_metrics_are_shares_or_keep_their_unit(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(1000, 1100)
    gpu1 = 1 << 56 | 5 << 32 | 1
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=PROCESS)
    file.add("TARGET_INFO_GPU_METRICS", typeId=gpu1, metricId=1, metricName="SMs Active [Throughput %]")
    file.add("TARGET_INFO_GPU_METRICS", typeId=gpu1, metricId=2, metricName="GPC Clock Frequency [MHz]")
    file.add("TARGET_INFO_GPU_METRICS", typeId=gpu1, metricId=3, metricName="Odd")
    for metric, value in ((1, 75), (2, 1410), (3, 4), (9, 1)):
        file.add("GPU_METRICS", timestamp=1050, typeId=gpu1, metricId=metric, value=value)
    file.add("GPU_METRICS", timestamp=None, typeId=gpu1, metricId=1, value=5)
    file.add("GPU_METRICS", timestamp=1060, typeId=gpu1, metricId=1, value="text")
    trace = _trace(file, tmp_path)
    assert sorted(_counters(trace, "counter", "time_ns", "device_id", "value", "unit"), key=str) == [
        ("GPC Clock Frequency", 50, 0, 1410.0, "MHz"),
        ("Odd", 50, 0, 4.0, "1"),
        ("SMs Active", 50, 0, 0.75, "share"),
    ]
    assert _ledger(trace)["gpu_metric_unusable"] == 3


def _gpu_types(file: NsightFile, *described: str) -> list[int]:
    """Types of generic events whose descriptions these are."""
    types = [9 << 32 | number for number in range(len(described))]
    for number, data in zip(types, described, strict=True):
        file.add("GENERIC_EVENT_TYPES", typeId=number, sourceId=9 << 32, data=data, nameId=file.string(data))
    return types


def test_power_and_temperature_are_counters_of_their_devices(tmp_path: Path) -> None:
    """As exports up to 2024 have them: an event is JSON, numbers are text or not."""
    file = NsightFile()
    file.kernel(1000, 1100)
    first, second, metrics = _gpu_types(file, '{"Name": "NVML GPU 0"}', '{"Name": "NVML GPU 1"}', '{"Name": "GM"}')
    file.add("TARGET_INFO_GPU_METRICS", typeId=metrics, metricId=1, metricName="GPU Power Draw [W]")
    for time, kind, data in (
        (1010, first, '{"Power": "71.5", "Temperature": 41, "pid": 7}'),
        (1020, second, '{"Power [mW]": 250000, "SM Clock": "1410"}'),
        (1030, first, '{"Power": "n/a"}'),
        (1040, first, '{"Power": '),
        (None, first, '{"Power": 3}'),
        (1050, metrics, '{"GPU Power Draw": "80"}'),
        (1060, first, '{"prev_comm": "python"}'),
    ):
        file.add("GENERIC_EVENTS", timestamp=time, typeId=kind, data=data)
    trace = _trace(file, tmp_path)
    assert _counters(trace, "counter", "time_ns", "device_id", "value", "unit") == [
        ("Power", 10, 0, 71.5, "W"),
        ("Power", 20, 1, 250_000.0, "mW"),
        ("SM Clock", 20, 1, 1410.0, "MHz"),
        ("Temperature", 10, 0, 41.0, "degC"),
    ]
    assert _ledger(trace)["sensor_unusable"] == 2


def test_power_a_row_a_field(tmp_path: Path) -> None:
    """As later exports have them; the only GPU is meant where none is named."""
    file = NsightFile()
    file.kernel(1000, 1100)
    file.gpu()
    (kind,) = _gpu_types(file, "nvml_metrics")
    for index, name in enumerate(("Power", "pid", "Temperature")):
        file.add("GENERIC_EVENT_TYPE_FIELDS", typeId=kind, fieldIdx=index, fieldNameId=file.string(name))
    for number, time in enumerate((1010, 1020)):
        file.add("GENERIC_EVENTS", timestamp=time, typeId=kind, genericEventId=number + 1)
        file.add("GENERIC_EVENT_DATA", genericEventId=number + 1, fieldIdx=0, doubleVal=70.5 + number)
        file.add("GENERIC_EVENT_DATA", genericEventId=number + 1, fieldIdx=1, uintVal=77)
        file.add("GENERIC_EVENT_DATA", genericEventId=number + 1, fieldIdx=2, uintVal=40 + number)
    assert _counters(_trace(file, tmp_path), "counter", "time_ns", "device_id", "value", "unit") == [
        ("Power", 10, 0, 70.5, "W"),
        ("Power", 20, 0, 71.5, "W"),
        ("Temperature", 10, 0, 40.0, "degC"),
        ("Temperature", 20, 0, 41.0, "degC"),
    ]


def test_power_of_no_known_device_is_said_to_be(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(1000, 1100)
    (kind,) = _gpu_types(file, "board sensors")
    file.add("GENERIC_EVENTS", timestamp=1010, typeId=kind, data='{"Power": 70}')
    trace = _trace(file, tmp_path)
    assert _counters(trace, "counter", "device_id", "value") == [("Power", None, 70.0)]
    assert _ledger(trace)["sensor_device_unknown"] == 1


def test_memory_in_use_adds_up_by_device_and_kind(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(0, 10)
    for start, device, size, kind, freed in (
        (10, 0, 100, 2, 0),
        (20, 0, 50, 2, 0),
        (25, 1, 7, 2, 0),
        (30, 0, 100, 2, 1),
        (40, 0, 30, 1, 1),  # allocated before the capture
        (50, 0, 5, 1, 0),
    ):
        file.add(
            "CUDA_GPU_MEMORY_USAGE_EVENTS", start=start, globalPid=global_id(PROCESS), deviceId=device, bytes=size,
            memKind=kind, memoryOperationType=freed, address=4_096 + start if device else None,
        )  # fmt: skip
    file.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=60, deviceId=0, memKind=2, memoryOperationType=0)
    trace = _trace(file, tmp_path)
    assert _counters(trace, "counter", "device_id", "time_ns", "value") == [
        ("allocated_bytes", 0, 10, 100.0),
        ("allocated_bytes", 0, 20, 150.0),
        ("allocated_bytes", 0, 30, 50.0),
        ("allocated_bytes", 1, 25, 7.0),
        ("pinned_bytes", 0, 40, 0.0),
        ("pinned_bytes", 0, 50, 5.0),
    ]
    assert _ledger(trace)["unusable_memory_event"] == 1
    assert _ledger(trace)["memory_in_use_before"] == 1
    blocks = trace.frame("allocations").select("time_ns", "device_id", "bytes", "address")
    assert blocks.rows() == [(10, 0, 100, None), (20, 0, 50, None), (25, 1, 7, 4_121), (30, 0, -100, None)]


def test_mpi_calls_are_library_calls_with_a_rank(tmp_path: Path) -> None:
    file = NsightFile()
    tid = global_id(PROCESS, THREAD)
    file.add("MPI_COLLECTIVES_EVENTS", start=10, end=90, globalTid=tid, textId=file.string("MPI_Allreduce"), size=8)
    file.add("MPI_COLLECTIVES_EVENTS", start=95, end=None, globalTid=tid, textId=file.string("MPI_Barrier"))
    file.launch((20, 30), (40, 50))
    file.add("MPI_RANKS", globalTid=tid, rank=3)
    trace = _trace(file, tmp_path)
    assert _calls(trace) == [
        ("library", "MPI_Allreduce", 0, 80),
        ("runtime", "cudaLaunchKernel_v7000", 10, 10),
        ("library", "MPI_Barrier", 85, None),
    ]
    assert trace.frame("spans")["parent_id"].to_list()[:3] == [None, 0, 1]
    assert trace.frame("runs")["rank"].to_list() == [3]


def test_what_calls_of_mpi_say_of_a_message(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("MPI_P2P_EVENTS", 10, 20, "MPI_Send", tag=5, remoteRank=1, size=100)
    file.event("MPI_COLLECTIVES_EVENTS", 30, 40, "MPI_Scatter", rootRank=0, size=64, recvSize=8)
    file.event("MPI_START_WAIT_EVENTS", 50, 60, "MPI_Wait", thread=7)
    file.add("MPI_RANKS", globalTid=global_id(PROCESS, THREAD), rank=3)
    messages = _trace(file, tmp_path).frame("messages").drop("span_id")
    assert messages.columns == ["rank", "peer_rank", "root_rank", "tag", "bytes", "sent_bytes", "received_bytes"]
    assert messages.rows() == [
        (3, 1, None, 5, 100, None, None),
        (3, None, 0, None, None, 64, 8),
        (None, None, None, None, None, None, None),
    ]


def test_ucx_openmp_and_openacc_are_library_calls(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("UCP_SUBMIT_EVENTS", 10, 20, "ucp_tag_send_nbx")
    file.event("UCP_PROGRESS_EVENTS", 21, 25, "ucp_tag_send_nbx")
    file.event("UCP_EVENTS", 26, 27, "ucp_worker_progress")
    file.event("OPENMP_EVENT_KIND_PARALLEL", 30, 90, "Parallel")
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", 91, 95, "Wait", srcFile=file.string("a.c"), lineNo=7)
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_OTHER", 96, 99, "Wait", lineNo=0)
    trace = _trace(file, tmp_path)
    assert [(name, start, length) for _, name, start, length in _calls(trace)] == [
        ("ucp_tag_send_nbx", 0, 10),
        ("ucp_tag_send_nbx", 11, 4),
        ("ucp_worker_progress", 16, 1),
        ("OpenMP:Parallel", 20, 60),
        ("OpenACC:Wait@a.c:7", 81, 4),
        ("OpenACC:Wait", 86, 3),
    ]
    assert {level for level, *_ in _calls(trace)} == {"library"}
    assert trace.height("messages") == 0


def test_a_part_of_a_trace_begins_where_the_whole_does(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("OPENMP_EVENT_KIND_PARALLEL", 100, 900, "Parallel")
    file.launch((200, 210), (220, 230))
    file.launch((400, 410), (420, 430))
    trace = _trace(file, tmp_path, Options(selection=Selection(from_ns=250)))
    kernels = trace.frame("spans").filter(pl.col("kind").cast(pl.String) == "kernel")
    assert kernels["start_ns"].to_list() == [320]


def test_faults_and_migrations_of_unified_memory(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(0, 50)
    file.faults(5, 4096, instruction="main+4")
    file.faults(7, 8192, 12)
    file.add("CUDA_UM_GPU_PAGE_FAULT_EVENTS", start=8, globalPid=global_id(PROCESS), deviceId=0, address=1)
    file.memcpy(10, 14, 11, address=8192)
    file.memcpy(20, 24, 1, address=8192)  # no migration: no address of its own
    trace = _trace(file, tmp_path)
    assert trace.frame("page_faults").drop("run_id").rows() == [
        (5, None, PROCESS, None, 4096, 1, "main+4"),
        (7, 5, PROCESS, 0, 8192, 12, None),
    ]
    assert trace.frame("copies")["virtual_address"].to_list() == [8192, None]
    assert _ledger(trace)["missing_time"] == 1  # faults of which there is no number


def test_every_table_that_is_not_read_is_counted_by_name(tmp_path: Path) -> None:
    file = NsightFile()
    file.launch((1, 2), (3, 4))
    file.event("OSRT_API", 1, 2, "poll", eventClass=27)
    file.add("META_DATA_CAPTURE", name="host", value="private")
    path = file.write(tmp_path / "made.sqlite")
    with closing(sqlite3.connect(path)) as database:
        for table, count in (("NET_NIC_METRIC", 3), ("SCHED_EVENTS", 2), ("of /home/someone", 4), ("VULKAN_API", 0)):
            database.execute(f'CREATE TABLE "{table}" (start INTEGER)')
            database.executemany(f'INSERT INTO "{table}" VALUES (?)', [(n,) for n in range(count)])  # noqa: S608
        database.commit()
    ledger = convert([path], Options()).frame("ledger").filter(pl.col("kind") == "table_not_read")
    assert ledger.select("detail", "count").rows() == [
        ("Rows of NET_NIC_METRIC were not read", 3),
        ("Rows of SCHED_EVENTS were not read", 2),
        ("Rows of a table whose name is none of Nsight's were not read", 4),
    ]


def test_generic_events_that_are_no_samples_are_counted_by_their_type(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(0, 10)
    power, storage, path_like = _gpu_types(file, '{"Name": "nvml"}', '{"Name": "NFS reads"}', '{"Name": "/home/a"}')
    for type_id, data in (
        (power, '{"Power": 250}'),
        (storage, '{"bytes": 7}'),
        (storage, "{}"),
        (path_like, "{}"),
        (99, "{}"),
    ):
        file.add("GENERIC_EVENTS", timestamp=5, rawTimestamp=5, typeId=type_id, data=data)
    ledger = _trace(file, tmp_path).frame("ledger").filter(pl.col("kind") == "table_not_read")
    assert ledger.select("detail", "count").rows() == [
        ("Events of an unnamed type in GENERIC_EVENTS were not read", 2),  # one without a name, one with a path for it
        ("Events of the type NFS reads in GENERIC_EVENTS were not read", 2),
    ]


def _with_os_calls() -> NsightFile:
    file = NsightFile()
    file.launch((20, 30), (40, 50))
    tid = global_id(PROCESS, THREAD)
    for start, end, kind, name in ((5, 5, 31, "start"), (10, 60, 27, "ioctl"), (22, 28, 27, "pthread_mutex_lock")):
        file.add("OSRT_API", start=start, end=end, eventClass=kind, globalTid=tid, nameId=file.string(name))
    return file


def test_os_calls_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    trace = _trace(_with_os_calls(), tmp_path)
    assert _calls(trace) == [("runtime", "cudaLaunchKernel_v7000", 0, 10)]
    assert _ledger(trace)["os_runtime_left_out"] == 2


def test_os_calls_are_read_unasked_where_nothing_ran_on_a_device(tmp_path: Path) -> None:
    file = NsightFile()
    file.event("OSRT_API", 10, 60, "read", eventClass=27)
    assert _calls(_trace(file, tmp_path)) == [("library", "read", 0, 50)]


def test_os_calls_stand_beside_the_calls_of_cuda(tmp_path: Path) -> None:
    trace = _trace(_with_os_calls(), tmp_path, Options(extra={"os_runtime": ""}))
    assert _calls(trace) == [
        ("library", "ioctl", 0, 50),
        ("runtime", "cudaLaunchKernel_v7000", 10, 10),
        ("library", "pthread_mutex_lock", 12, 6),
    ]
    # The launch is inside the call that encloses it; the kernel stays the launch's.
    assert trace.frame("spans")["parent_id"].to_list() == [None, 0, 0, 1]


def test_the_capture_s_length_and_profiling_overhead_are_counters(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=5000)
    file.kernel(100, 200)
    file.kernel(100, 200, device=1)
    file.kernel(100, 200, device=2, process=200)
    file.overhead(120, 170)
    file.overhead(130, 140, "Buffer allocation")
    assert _counters(_trace(file, tmp_path), "counter", "device_id", "time_ns", "value") == [
        ("capture_duration_ns", None, 0, 5000.0),
        ("cuda_profiling_overhead_ns", 0, 20, 50.0),
        ("cuda_profiling_overhead_ns", 1, 20, 50.0),
    ]


def test_a_folder_of_reports_is_one_trace_of_several_ranks(tmp_path: Path) -> None:
    for rank in (1, 0):
        file = NsightFile()
        file.session(epoch_ns=10**18 + 1000 * rank, duration_ns=500)
        file.add("MPI_RANKS", globalTid=global_id(PROCESS, THREAD), rank=rank)
        file.launch((20, 30), (40, 50))
        file.write(tmp_path / f"report{1 - rank}.sqlite")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").select("rank", "clock_origin_ns").rows() == [(0, 20), (1, -980)]
    kernels = trace.frame("spans").filter(pl.col("kind").cast(pl.String) == "kernel")
    assert kernels.select("run_id", "start_ns").rows() == [(0, 20), (1, 1020)]


def test_times_that_no_clock_shows_are_unknown(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=(1 << 63) - 1, duration_ns=(1 << 63) - 1)
    file.call(-(1 << 63), 20)
    file.call(10, (1 << 63) - 1)
    file.kernel((1 << 63) - 1, (1 << 63) - 1)
    file.kernel(30, (1 << 61) - 1)
    file.range(-(1 << 61) + 1, (1 << 61) - 1, "all of it")
    trace = _trace(file, tmp_path)
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert spans.select("kind", "start_ns", "duration_ns").rows() == [
        ("range", 0, (1 << 62) - 2),
        ("call", (1 << 61) + 9, None),
        ("kernel", (1 << 61) + 29, (1 << 61) - 31),
    ]
    assert trace.frame("runs")["epoch_ns"].to_list() == [None]


def _ranks(folder: Path, *ranks: int, epoch_ns: int | None = 10**18) -> Path:
    """A capture of a process a rank, each on a device, whose correlation ids collide, and of the launcher."""
    file = NsightFile()
    if epoch_ns is not None:
        file.session(epoch_ns=epoch_ns, duration_ns=5_000)
    file.event("MPI_OTHER_EVENTS", 1, 4_000, "MPI_Finalize", process=PROCESS - 1)
    for at, rank in enumerate(ranks):
        process = PROCESS + at
        file.add("MPI_RANKS", globalTid=global_id(process, THREAD), rank=rank)
        file.gpu(at, f"GPU {at}")
        file.range(100, 900, "step", process=process)
        file.call(200, 210, correlation=7, process=process)
        file.kernel(300 + at, 400 + 2 * at, correlation=7, process=process, device=at)
    return file.write(folder / "made.sqlite")


def test_ranks_in_one_capture_are_runs_of_one_clock(tmp_path: Path) -> None:
    trace = convert([_ranks(tmp_path, 5, 2)], Options())
    assert trace.frame("runs").select("rank", "clock_origin_ns", "epoch_ns").rows() == [
        (2, 1, 10**18 + 1),
        (5, 1, 10**18 + 1),
    ]
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    work = spans.filter(pl.col("level") == "kernel").sort("run_id")
    assert work.select("run_id", "process_id", "device_id", "duration_ns", "step").rows() == [
        (0, PROCESS + 1, 1, 101, 0),
        (1, PROCESS, 0, 100, 0),
    ]
    assert trace.frame("devices").select("run_id", "device_id", "name").rows() == [(0, 1, "GPU 1"), (1, 0, "GPU 0")]
    assert spans.height == 7  # the launcher's call is there once
    assert trace.frame("counters").filter(pl.col("counter") == "capture_duration_ns").height == 2


@pytest.mark.parametrize(("ranks", "epoch_ns"), [((0, 1), None), ((3, 3), 10**18)], ids=["no epoch", "one rank twice"])
def test_where_ranks_do_not_tell_processes_apart_it_is_one_run(
    ranks: tuple[int, int], epoch_ns: int | None, tmp_path: Path
) -> None:
    trace = convert([_ranks(tmp_path, *ranks, epoch_ns=epoch_ns)], Options())
    assert trace.frame("runs").height == 1
    assert trace.frame("spans").height == 7


def test_a_chosen_process_is_its_rank_alone(tmp_path: Path) -> None:
    path = _ranks(tmp_path, 5, 2)
    trace = convert([path], Options(selection=Selection(process_ids=(PROCESS,))))
    assert trace.frame("runs")["rank"].to_list() == [5]
