"""nvprof's databases and printed tables: names demangled, times exact, calls tied to their work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from tests.helpers.synth_nvprof import PROCESS, THREAD, NvprofFile
from xsp_analyze.trace.trace_view import TraceView
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nvprof import NVPROF
from xsp_ingest.formats.nvprof.database import DRIVER_CALLS, RUNTIME_CALLS
from xsp_ingest.formats.nvprof.tables import header_of
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

_LAUNCH, _COPY = 211, 41
_HEAD = '"Start","Duration","Device","Context","Stream","Name"\nms,us,,,,\n'
_STREAM = '"Tesla T4 (1)","1","7"'


def _read(folder: Path, text: str) -> Trace:
    path = folder / "log.txt"
    path.write_text(text, encoding="utf-8")
    return convert([path], Options())


def _database(folder: Path, file: NvprofFile) -> Trace:
    return convert([file.write(folder / "trace.nvprof")], Options())


def test_kernels_hang_under_their_calls_with_names_as_people_write_them(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 11)
    file.kernel(6_000, 9_001, 11, "_Z4gemmIfLi128EEvPKT_S2_PS0_i", gridX=4, registersPerThread=32)
    trace = _database(tmp_path, file)
    (kernel,) = [s for s in named(trace).values() if s["level"] == "kernel"]
    assert kernel["name"] == "void gemm<float, 128>(float const*, float const*, float*, int)"
    assert (kernel["parent"], kernel["start_ns"], kernel["duration_ns"]) == ("cudaLaunchKernel", 5_000, 3_001)
    assert (kernel["process_id"], named(trace)["cudaLaunchKernel"]["thread_id"]) == (PROCESS, THREAD)
    assert trace.frame("kernels").select("grid_x", "registers_per_thread").row(0) == (4, 32)


def test_the_table_of_serialised_kernels_is_read_like_that_of_concurrent_ones(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    name = file.text("relu")
    file.add("KERNEL", start=6_000, end=7_000, deviceId=0, contextId=1, streamId=7, correlationId=1, name=name)
    assert named(_database(tmp_path, file))["relu"]["parent"] == "cudaLaunchKernel"


@pytest.mark.parametrize(
    ("table", "counters", "expected"), [("KERNEL", 3, 2), ("KERNEL", 0, None), ("CONCURRENT_KERNEL", 3, None)]
)
def test_kernels_that_ran_for_their_counters_ran_one_by_one(
    tmp_path: Path, table: str, counters: int, expected: int | None
) -> None:
    file = NvprofFile()
    for _ in range(counters):
        file.sql("INSERT INTO CUPTI_ACTIVITY_KIND_METRIC DEFAULT VALUES")
    for number in range(2):
        ids = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": number, "name": file.text("gemm")}
        file.add(table, start=number * 1_000_000, end=number * 1_000_000 + 500, **ids)
    trace = convert([file.write(tmp_path / "counted.nvvp")], Options())
    assert ledger_counts(trace).get("kernels_one_by_one") == expected
    assert TraceView(trace).is_one_by_one is (expected is not None)


def test_ranges_take_process_and_thread_from_the_bytes_of_their_object(tmp_path: Path) -> None:
    file = NvprofFile()
    file.range(1, 0, 100_000, "step 3")
    file.range(2, 10_000, 50_000, "conv1", "user")
    file.call(11_000, 15_000, _LAUNCH, 11)
    file.kernel(60_000, 90_000, 11)
    spans = named(_database(tmp_path, file))
    assert (spans["conv1"]["process_id"], spans["conv1"]["thread_id"]) == (PROCESS, THREAD)
    assert (spans["conv1"]["parent"], spans["gemm(float*)"]["layer"]) == ("step 3", "conv1")
    assert spans["gemm(float*)"]["step"] == 3


def test_work_of_several_processes_is_of_the_one_that_launched_it(tmp_path: Path) -> None:
    file = NvprofFile()
    for process, correlation in ((1, 10), (2, 20), (1, 30), (2, 30)):
        call = {"processId": process, "threadId": 5, "correlationId": correlation}
        file.add("RUNTIME", cbid=_LAUNCH, start=correlation, end=correlation + 1, **call)
    for n, correlation in enumerate((10, 20, 30)):
        file.kernel(100 + n, 200, correlation, f"k{n}")
    trace = _database(tmp_path, file)
    kernels = trace.frame("spans").filter(pl.col("level") == "kernel")
    assert kernels["process_id"].to_list() == [1, 2, None]
    assert ledger_counts(trace)["unclear_process"] == 1


def test_copies_and_fills_say_what_and_how_much(fixtures_dir: Path) -> None:
    trace = convert([fixtures_dir / "nvprof" / "database_synthetic"], Options())
    copies = trace.frame("copies").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert set(copies.select("bytes", "copy_kind", "source_kind", "destination_kind").rows()) == {
        (4096, "Host-to-Device", "Pageable", "Device"),
        (256, None, None, "Device"),
    }
    device = trace.frame("devices").row(0, named=True)
    assert (device["name"], device["compute_capability"]) == ("Tesla P100-PCIE-16GB (synthetic)", "6.0")
    assert device["dram_byte_per_s"] == 732_160_000_000
    assert trace.frame("runs")["epoch_ns"].to_list() == [1_496_933_426_999_995_000]


def test_texts_in_place_of_numbers_are_nothing_and_not_zero(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    file.kernel(6_000, 9_000, "one", gridX="wide", registersPerThread=2.5)
    file.kernel("soon", 9_000, 1)
    trace = _database(tmp_path, file)
    assert trace.frame("spans").filter(pl.col("level") == "kernel")["correlation_id"].to_list() == [None]
    assert trace.frame("kernels").select("grid_x", "registers_per_thread").row(0) == (None, None)


def test_names_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    file.sql("INSERT INTO StringTable (_id_, value) VALUES (77, CAST(X'FF41' AS TEXT))")
    stream = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1}
    file.add("CONCURRENT_KERNEL", start=6_000, end=9_000, name=77, **stream)
    trace = _database(tmp_path, file)
    assert "\ufffdA" in named(trace)
    assert ledger_counts(trace)["not_utf8"] == 1


def test_a_view_in_place_of_a_table_is_never_run(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    file.sql("DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET")
    file.sql("CREATE VIEW CUPTI_ACTIVITY_KIND_MEMSET AS SELECT length(randomblob(900000000)) AS start")
    assert _database(tmp_path, file).frame("spans").height == 1


def test_a_database_that_is_cut_or_written_to_is_refused(tmp_path: Path) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    content = file.to_bytes()
    path = tmp_path / "trace.nvprof"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(XspError, match=r"truncated.*nvprof -o"):
        convert([path], Options())
    path.write_bytes(content)
    path.with_name("trace.nvprof-journal").write_bytes(b"hot")
    with pytest.raises(XspError, match="being written"):
        convert([path], Options())


_ANY = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=13)
)
_TABLES = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "MARKER", "DEVICE", "OVERHEAD")
_FIELDS = ("start", "end", "correlationId", "name", "deviceId", "processId", "threadId", "cbid", "timestamp", "id")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(_TABLES), st.sampled_from(_FIELDS), _ANY), min_size=1, max_size=5))
def test_values_of_any_type_in_any_column_survive(tmp_path: Path, changes: list[tuple[str, str, object]]) -> None:
    file = NvprofFile()
    file.call(1_000, 5_000, _LAUNCH, 1)
    file.kernel(6_000, 9_000, 1)
    file.range(1, 0, 9, "step 1")
    for table, column, value in changes:
        columns = {c[1] for c in file.connection.execute(f"PRAGMA table_info(CUPTI_ACTIVITY_KIND_{table})")}
        if column in columns:
            file.add(table, **{column: value})
    trace = _database(tmp_path, file)
    assert list(integrity.broken_rules(trace)) == []


def test_a_printed_trace_is_exact_to_the_nanosecond_in_mixed_units(tmp_path: Path) -> None:
    trace = _read(tmp_path, f'{_HEAD}218.148062,25.408000,{_STREAM},"k(float*) [223]"\n218.2,0.001,{_STREAM},"b"\n')
    spans = named(trace)
    assert (spans["k(float*)"]["duration_ns"], spans["k(float*)"]["correlation_id"]) == (25_408, 223)
    assert trace.frame("runs")["clock_origin_ns"].to_list() == [218_148_062]
    assert (spans["b"]["start_ns"], spans["b"]["duration_ns"]) == (51_938, 1)
    assert (spans["b"]["device_id"], spans["b"]["stream_id"]) == (1, 7)
    assert trace.frame("devices").select("device_id", "name").row(0) == (1, "Tesla T4")


def test_calls_printed_beside_their_work_are_its_launches(fixtures_dir: Path) -> None:
    spans = named(convert([fixtures_dir / "nvprof" / "both_traces_csv"], Options()))
    assert spans["void gemm<int=32>(float*, float*)"]["parent"] == "cudaLaunchKernel"
    assert spans["cudaLaunchKernel"]["process_id"] == 4242


def test_text_and_csv_of_a_row_say_the_same(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        "==9== Profiling result:\n"
        "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput"
        "  SrcMemType  DstMemType           Device   Context    Stream  Name\n"
        "694.50ms  3.75338s            (128 2 1)       (64 1 1)        32  1.1152KB        0B         -           -"
        "           -           -  GeForce GTX 106         1         7  run(int,  float) [118]\n"
        "5.00000s     640ns                    -               -         -         -         -        4B  5.9605MB/s"
        "    Pageable      Device  GeForce GTX 106         1         7  [CUDA memcpy HtoD]\n",
    )
    kernel = trace.frame("kernels").row(0, named=True)
    assert [kernel[c] for c in ("grid_x", "grid_y", "block_x", "registers_per_thread", "static_shared_bytes")] == [
        128,
        2,
        64,
        32,
        1142,
    ]
    assert named(trace)["run(int,  float)"]["duration_ns"] == 3_753_380_000
    copy = trace.frame("copies").with_columns(pl.col(pl.Categorical).cast(pl.String)).row(0, named=True)
    assert (copy["bytes"], copy["copy_kind"], copy["source_kind"]) == (4, "Host-to-Device", "Pageable")
    assert ledger_counts(trace)["rounded_times"] == 2


def test_a_summary_lays_names_end_to_end_with_their_totals(fixtures_dir: Path) -> None:
    trace = convert([fixtures_dir / "nvprof" / "summary_csv"], Options())
    spans = named(trace)
    assert (spans["gemm(float*)"]["start_ns"], spans["gemm(float*)"]["duration_ns"]) == (0, 3_000_000)
    assert spans["[CUDA memcpy HtoD]"]["start_ns"] == 3_000_000
    assert spans["cudaLaunchKernel"]["level"] == "runtime"
    metrics = trace.frame("metrics").with_columns(pl.col(pl.Categorical).cast(pl.String))
    of_kernel = metrics.filter(pl.col("span_id") == spans["gemm(float*)"]["span_id"])
    assert dict(of_kernel.select("metric", "value").iter_rows()) == {
        "invocations": 10.0,
        "min_duration_ns": 290_000.0,
        "max_duration_ns": 310_000.0,
    }


def test_summaries_of_older_versions_say_calls_in_a_heading(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        "==11856== Profiling result:\nTime(%)      Time     Calls       Avg       Min       Max  Name\n"
        "73.21%  133.63us         1  133.63us  133.63us  133.63us  multi(float*)\n\n==11856== API calls:\n"
        "Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        "98.47%  132.94ms         3  44.313ms  13.998us  132.47ms  cudaMalloc\n",
    )
    spans = named(trace)
    assert (spans["multi(float*)"]["level"], spans["cudaMalloc"]["level"]) == ("kernel", "runtime")


def test_a_summary_beside_a_trace_is_left_out(tmp_path: Path) -> None:
    summary = (
        '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n"GPU activities",1,3,1,3,3,3,"k"\n'
    )
    trace = _read(tmp_path, f'==9== x\n{_HEAD}1.0,2.0,{_STREAM},"k"\n{summary}')
    assert trace.frame("spans").height == 1
    assert ledger_counts(trace)["summary_left_out"] == 1


def test_lines_of_the_program_and_any_line_ending_do_no_harm(tmp_path: Path) -> None:
    text = f'==9== NVPROF\nloss, 1, 2\n{_HEAD}1.0,2.0,{_STREAM},"a, ""b"""\nstep, 3\n\n1.5,2.0,{_STREAM},"c"\n'
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xff\xfe" + text.replace("\n", "\r\n").encode("utf-16-le"))
    assert set(named(convert([path], Options()))) == {'a, "b"', "c"}


def test_a_line_of_any_length_of_the_programs_is_passed_over(tmp_path: Path) -> None:
    trace = _read(tmp_path, f'{_HEAD}1.0,2.0,{_STREAM},"k"\n{"x" * 3_000_000}\n1.5,2.0,{_STREAM},"l"\n')
    assert set(named(trace)) == {"k", "l"}


@pytest.mark.parametrize(
    ("line", "is_header"),
    [
        ("   Start  Duration  Name", True),
        ('"Start","Duration","Name","Correlation_ID"', True),
        ("Time(%)      Time     Calls       Avg       Min       Max  Name", True),
        ("Start (ns),Duration (ns),CorrId,GrdX,Name", False),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name", False),
        ('"Device","Context","Stream","Kernel","ipc"', False),
        ("Name", False),
        ("", False),
    ],
)
def test_headers_of_other_tools_are_told_apart(line: str, is_header: bool) -> None:  # noqa: FBT001 (a parameter)
    assert (header_of(line) is not None) == is_header


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(alphabet='0123456789.,-" ()[]msunKMB%\nab=', max_size=120))
def test_any_rows_behind_a_header_are_counted_or_refused(tmp_path: Path, rows: str) -> None:
    try:
        trace = _read(tmp_path, f'==9== x\n{_HEAD}1.0,2.0,{_STREAM},"k"\n{rows}')
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []


def test_callback_ids_have_cuptis_names() -> None:
    assert [RUNTIME_CALLS[n] for n in (20, 31, 41, 131, 165, 211, 311, 430)] == [
        "cudaMalloc",
        "cudaMemcpy",
        "cudaMemcpyAsync",
        "cudaStreamSynchronize",
        "cudaDeviceSynchronize",
        "cudaLaunchKernel",
        "cudaGraphLaunch",
        "cudaLaunchKernelExC",
    ]
    assert (DRIVER_CALLS[1], DRIVER_CALLS[307], DRIVER_CALLS[514]) == ("cuInit", "cuLaunchKernel", "cuGraphLaunch")


@pytest.mark.real
@pytest.mark.parametrize(
    ("file", "rows", "total_ns", "bytes_"),
    [
        ("nvprof_gputrace.gtx950.csv", 12, 14_705_620, 12 * (4 << 20)),
        ("trace.gtx950.csv", 8, 268_449, 6 * (144 << 10)),
        ("trace_async.gtx950.csv", 8, 4_473_306, 6 * (4 << 20)),
    ],
)
def test_real_traces_are_exact(real_dir: Path, file: str, rows: int, total_ns: int, bytes_: int) -> None:
    trace = convert([real_dir / "nvprof" / file], Options())
    spans = trace.frame("spans")
    assert (spans.height, spans["duration_ns"].sum()) == (rows, total_ns)
    assert trace.frame("copies")["bytes"].sum() == bytes_
    assert trace.frame("ledger").is_empty() or set(ledger_counts(trace)) <= {"no_epoch"}


@pytest.mark.real
def test_a_real_session_is_explained(real_dir: Path) -> None:
    path = real_dir / "nvprof" / "session_xml.nvvp"
    assert NVPROF.sniff(Probe(path))
    with pytest.raises(XspError, match=r"^[^\n]*session of the NVIDIA Visual Profiler[^\n]*$"):
        convert([path], Options())
