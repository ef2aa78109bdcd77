"""The Nsight reader on hand-built files: what is read, from whatever schema, and what is counted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth_nsys import PROCESS, SCHEMAS, THREAD, NsightFile
from xsp_ingest.files import sqlite
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Match, Options
from xsp_ingest.staging.raw import RAW_TABLES
from xsp_model import LedgerKind, XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace


def _read(file: NsightFile, folder: Path, options: Options | None = None) -> RawTrace:
    return NSYS_SQLITE.read(file.write(folder / "made.sqlite"), options or Options())


def _rows(raw: RawTrace, table: str, *columns: str) -> list[tuple[object, ...]]:
    frame = raw.tables[table]
    if table not in ("spans", "devices", "graph_nodes"):
        frame = frame.join(raw.tables["spans"], on="row")
    texts = pl.col(pl.Categorical).cast(pl.String)
    return frame.with_columns(texts).select(columns).rows()


def _spans(raw: RawTrace, kind: str, *columns: str) -> list[tuple[object, ...]]:
    spans = raw.tables["spans"].with_columns(pl.col(pl.Categorical).cast(pl.String))
    return spans.filter(pl.col("kind") == kind).select(columns).rows()


def _counts(raw: RawTrace) -> dict[str, int]:
    return {f.kind: f.count for f in raw.findings}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_gives_the_same_rows(tmp_path: Path, schema: str) -> None:
    file = NsightFile(schema)
    file.kernel(30, 45, "gemm", correlation=file.correlation(), grid=(4, 5, 6), block=(128, 1, 1), staticSharedMemory=8)
    file.call(10, 20, correlation=1)
    file.memcpy(50, 60, 2, size=100, memory=(2, 1))
    file.memset(70, 71, size=9)
    raw = _read(file, tmp_path)
    assert set(raw.tables) == set(RAW_TABLES)
    assert all(dict(raw.tables[t].schema) == dict(RAW_TABLES[t]) for t in RAW_TABLES)
    columns = ("name", "start_ns", "duration_ns", "process_id", "thread_id", "device_id", "stream_id", "correlation_id")
    assert _spans(raw, "kernel", *columns) == [("gemm", 30, 15, PROCESS, None, 0, 7, 1)]
    assert _spans(raw, "call", *columns) == [("cudaLaunchKernel_v7000", 10, 10, PROCESS, THREAD, None, None, 1)]
    assert _spans(raw, "memcpy", *columns) == [("[CUDA memcpy Device-to-Host]", 50, 10, PROCESS, None, 0, 7, None)]
    assert _spans(raw, "memset", "name", "level") == [("[CUDA memset]", "kernel")]
    assert _rows(raw, "kernels", "grid_x", "grid_z", "block_x", "shared_bytes", "graph_node_id") == [
        (4, 6, 128, 8, None)
    ]
    assert _rows(raw, "copies", "bytes", "copy_kind", "source_kind", "destination_kind") == [
        (100, "Device-to-Host", "Device", "Pinned"),
        (9, None, None, "Device"),
    ]
    assert raw.facts.profiler == f"Nsight Systems {SCHEMAS[schema].product}"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_graph_nodes_are_found_by_columns_whatever_their_table_is_called(tmp_path: Path, schema: str) -> None:
    file = NsightFile(schema)
    file.graph_node(5, 6, node=(7 << 32) + 1)
    file.graph_node(8, 9, node=(9 << 32) + 1, original=(7 << 32) + 1)
    file.kernel(30, 31, graphNodeId=(9 << 32) + 1)
    file.kernel(32, 33, graphNodeId=0)
    raw = _read(file, tmp_path)
    columns = ("process_id", "thread_id", "start_ns", "graph_node_id", "original_graph_node_id")
    assert _rows(raw, "graph_nodes", *columns) == [
        (PROCESS, THREAD, 5, 30064771073, None),
        (PROCESS, THREAD, 8, 38654705665, 30064771073),
    ]
    assert _rows(raw, "kernels", "graph_node_id") == [(38654705665,), (None,)]


def test_a_replay_recorded_whole_is_one_device_activity(tmp_path: Path) -> None:
    file = NsightFile()
    file.graph_trace(10, 30, graph=4, correlation=6)
    assert _spans(_read(file, tmp_path), "graph", "level", "name", "duration_ns", "correlation_id") == [
        ("kernel", "[CUDA graph 4]", 20, 6)
    ]


def test_waits_and_library_calls(tmp_path: Path) -> None:
    file = NsightFile()
    file.wait(10, 30, 3, stream=13, correlation=6)
    file.wait(40, 41, 4, stream=0xFFFFFFFF)
    file.library_call(1, 2, "cudnnConvolutionForward")
    file.library_call(3, 4, "cublasSgemm_v2", "CUBLAS_EVENTS")
    raw = _read(file, tmp_path)
    assert _spans(raw, "sync", "level", "name", "device_id", "stream_id", "correlation_id") == [
        ("runtime", "Stream sync", 0, 13, 6),
        ("runtime", "Context sync", 0, None, None),
    ]
    assert _spans(raw, "call", "level", "name", "thread_id") == [
        ("library", "cudnnConvolutionForward", THREAD),
        ("library", "cublasSgemm_v2", THREAD),
    ]


def test_ranges_keep_text_domain_style_number_and_the_thread_that_closed_them(tmp_path: Path) -> None:
    file = NsightFile()
    file.domain(3, "mine")
    file.domain(3, "another process's", process=200)
    file.range(10, 50, "registered", registered=True, domain=3)
    file.range(20, 40, "in place", style="StartEnd", end_thread=102)
    file.range(25, None, "open", style="NVTXT StartEnd")
    file.range(26, 27, None, style="NVTXT PushPop")
    file.range(1, 2, "elsewhere", domain=3, process=200)
    file.mark(5, "a mark")
    raw = _read(file, tmp_path)
    columns = ("range_id", "text", "domain", "style", "end_thread_id", "start_ns", "duration_ns", "process_id", "name")
    assert _rows(raw, "ranges", *columns) == [
        (3, "registered", "mine", "PushPop", None, 10, 40, PROCESS, "registered"),
        (4, "in place", None, "StartEnd", 102, 20, 20, PROCESS, "in place"),
        (5, "open", None, "StartEnd", None, 25, None, PROCESS, "open"),
        (6, None, None, "PushPop", None, 26, 1, PROCESS, "[unnamed range]"),
        (7, "elsewhere", "another process's", "PushPop", None, 1, 1, 200, "elsewhere"),
    ]
    assert _counts(raw) == {"nvtx_marks_skipped": 1, "unclosed_range": 1, "no_kernel_table": 1}


def test_operators_lose_their_numbers_and_keep_what_these_say(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(0, 9, "aten::mm, seq = 5, op_id = 77, sizes = [[2, 3], [3, 4]], input_op_ids = [(76,0), (75,0)]")
    file.range(10, 19, "MmBackward0, seq = 5, op_id = 78")
    file.range(11, 18, "aten::t, op_id = 79")
    raw = _read(file, tmp_path)
    columns = ("name", "level", "kind", "sequence_number", "forward_thread_id", "input_shapes")
    assert _rows(raw, "operators", *columns) == [
        ("aten::mm", "operator", "operator", 5, None, "[[2, 3], [3, 4]]"),
        ("MmBackward0", "operator", "operator", 5, 1, None),
        ("aten::t", "operator", "operator", None, None, None),
    ]


def test_processes_with_the_same_correlation_ids_stay_apart(tmp_path: Path) -> None:
    file = NsightFile()
    for process in (100, 200):
        file.call(1, 2, correlation=1, process=process, thread=process)
        file.kernel(3, 4, correlation=1, process=process)
    raw = _read(file, tmp_path)
    assert _spans(raw, "kernel", "process_id", "correlation_id") == [(100, 1), (200, 1)]
    assert _spans(raw, "call", "process_id", "thread_id") == [(100, 100), (200, 200)]


def test_texts_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    file = NsightFile()
    file.kernel(0, 1, "sound")
    file.string(b"k\xffernel")
    file.range(0, 1, b"\xe9tape")
    raw = _read(file, tmp_path)
    assert _rows(raw, "ranges", "text") == [("\ufffdtape",)]
    assert _counts(raw)["not_utf8"] == 2


def test_columns_that_change_their_type_late_are_read_whole(tmp_path: Path) -> None:
    # The fast driver takes types from the first thousand rows: here text and large numbers follow on nulls.
    file = NsightFile()
    for number in range(1500):
        file.range(number, number + 1, "registered", registered=True)
    file.range(5000, 5001, "in place", domain=1 << 60)
    raw = _read(file, tmp_path)
    assert raw.tables["ranges"]["text"].to_list() == ["registered"] * 1500 + ["in place"]


def test_without_the_fast_driver_the_rows_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = NsightFile()
    file.string(b"k\xffernel")
    for number in range(3):
        file.kernel(number, number + 1, "sound", correlation=1 << 60)
        file.range(number, number + 1, b"\xe9tape")
    with_driver = _read(file, tmp_path)
    monkeypatch.setattr(sqlite, "find_spec", lambda _: None)
    monkeypatch.setattr(sqlite.Database, "_bulk_arrow", lambda *_: pytest.fail("the driver was used"))
    (tmp_path / "again").mkdir()
    with override_limits(fetched_rows=2):
        without = _read(file, tmp_path / "again")
    assert {name: table.schema for name, table in without.tables.items()} == {
        name: table.schema for name, table in with_driver.tables.items()
    }
    assert all(table.equals(with_driver.tables[name]) for name, table in without.tables.items())
    assert _counts(without) == _counts(with_driver)


def test_odd_times_are_kept_and_counted(tmp_path: Path) -> None:
    file = NsightFile()
    file.session(epoch_ns=1_700_000_000_000_000_000, duration_ns=1000)
    file.kernel(50, 40, "ends before it starts")
    file.kernel(60, 60 + 10**15, "outlasts the capture")
    file.call(20, 10)
    file.call(20, 20 + 10**15)
    raw = _read(file, tmp_path)
    assert _spans(raw, "kernel", "start_ns", "duration_ns") == [(50, 0), (60, 10**15)]
    assert _spans(raw, "call", "start_ns", "duration_ns") == [(20, None), (20, None)]
    assert (
        sorted((f.kind, f.count) for f in raw.findings) == [("absurd_duration", 1)] * 2 + [("negative_duration", 1)] * 2
    )
    assert raw.facts.epoch_ns == 1_700_000_000_000_000_000


def test_rows_equal_in_every_column_are_kept_once_and_counted(tmp_path: Path) -> None:
    file = NsightFile()
    for grid_id in (1, 1, 1, 2):
        file.kernel(10, 20, correlation=3, gridId=grid_id)
    raw = _read(file, tmp_path)
    assert len(_spans(raw, "kernel", "row")) == 2
    assert _counts(raw) == {"duplicate_event": 2}


def test_gpus_are_numbered_as_each_process_numbers_them(tmp_path: Path) -> None:
    file = NsightFile()
    file.gpu(0, "small", computeMajor=8, computeMinor=6)
    file.gpu(1, "large", computeMajor=9, computeMinor=0, smCount=132, clockRate=1_980_000_000)
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=100)
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=200)
    raw = _read(file, tmp_path)
    assert _rows(raw, "devices", "device_id", "process_id", "name", "compute_capability", "fp32_flop_per_s") == [
        (0, 100, "large", "9.0", 132 * 128 * 2 * 1.98e9),
        (0, 200, "small", "8.6", 40 * 128 * 2 * 1.59e9),
    ]
    (source,) = {row for row in _rows(raw, "devices", "peak_source", "name") if row[1] == "large"}
    assert str(source[0]).startswith("derived at 1980 MHz")


def test_without_a_map_the_drivers_ordinal_is_the_devices_number(tmp_path: Path) -> None:
    file = NsightFile()
    file.gpu(0, "T4", ordinal=1)
    file.gpu(1, "other", ordinal=0, clockRate=0, memoryBandwidth=0)
    raw = _read(file, tmp_path)
    assert _rows(
        raw, "devices", "device_id", "process_id", "name", "clock_hz", "fp32_flop_per_s", "dram_byte_per_s"
    ) == [
        (1, None, "T4", 1_590_000_000, 40 * 64 * 2 * 1.59e9, 320064000000.0),
        (0, None, "other", None, None, None),
    ]


def test_diagnostics_are_counted_by_kind_and_never_repeated(tmp_path: Path) -> None:
    file = NsightFile()
    file.diagnostic(1, "Profiling has started.")
    file.diagnostic(2, "Not all CUDA events might have been collected.")
    file.diagnostic(2, "Not all NVTX events might have been collected.")
    file.diagnostic(3, "Something with TOKEN=planted-secret-0001 in /home/somebody")
    file.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value="TOKEN=planted-secret-0001")
    file.kernel(0, 1)
    raw = _read(file, tmp_path)
    assert [(str(f.severity), f.count) for f in raw.findings] == [("warning", 2), ("error", 1)]
    assert "planted-secret" not in repr(raw.findings) + repr(raw.facts)


def test_a_file_without_cuda_is_read_and_says_so(tmp_path: Path) -> None:
    raw = _read(NsightFile(), tmp_path)
    assert all(frame.is_empty() for frame in raw.tables.values())
    assert _counts(raw) == {"no_kernel_table": 1}


def test_the_file_is_told_by_its_tables_not_by_its_name(tmp_path: Path) -> None:
    path = NsightFile("2.9").write(tmp_path / "trace.json")
    assert NSYS_SQLITE.sniff(Probe(path))
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    assert not NSYS_SQLITE.sniff(Probe(other))
    with pytest.raises(XspError, match="not one that Nsight Systems exported"):
        NSYS_SQLITE.read(other, Options())


def test_reading_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    path = NsightFile().write(tmp_path / "made.sqlite")
    before = path.read_bytes()
    tmp_path.chmod(0o555)
    NSYS_SQLITE.read(path, Options())
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["made.sqlite"]


def _large(folder: Path) -> Path:
    file = NsightFile()
    for number in range(3000):
        file.launch((number * 10, number * 10 + 1), (number * 10 + 2, number * 10 + 9))
    return file.write(folder / "made.sqlite")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_one_clear_error(tmp_path: Path, share: float) -> None:
    path = _large(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(XspError, match="truncated"):
        NSYS_SQLITE.read(path, Options())


def test_a_zeroed_header_is_one_clear_error(tmp_path: Path) -> None:
    path = _large(tmp_path)
    path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    assert not NSYS_SQLITE.sniff(Probe(path))
    with pytest.raises(XspError, match="interrupted `nsys export`"):
        NSYS_SQLITE.read(path, Options())


def test_damage_inside_is_one_clear_error(tmp_path: Path) -> None:
    path = _large(tmp_path)
    content = bytearray(path.read_bytes())
    for page in range(8192, len(content), 4096):
        content[page : page + 64] = b"\xab" * 64
    path.write_bytes(content)
    with pytest.raises(XspError, match="damaged"):
        NSYS_SQLITE.read(path, Options())


def test_text_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "made.sqlite"
    path.write_text("{}")
    assert not NSYS_SQLITE.sniff(Probe(path))
    with pytest.raises(XspError, match="no SQLite database"):
        NSYS_SQLITE.read(path, Options())


def test_a_schema_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    path = NsightFile().write(tmp_path / "made.sqlite")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'CREATE TABLE "StringIds"', b'CREATE TABLE "String\x92\x93s"'))
    with pytest.raises(XspError, match="damaged"):
        NSYS_SQLITE.read(path, Options())


def test_views_and_virtual_tables_are_never_asked(tmp_path: Path) -> None:
    path = NsightFile().write(tmp_path / "made.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS SELECT 1 AS start, 2 AS end, 3 AS globalTid")
        connection.execute("CREATE VIRTUAL TABLE CUDNN_EVENTS USING fts4(start, end)")
        connection.execute("INSERT INTO CUDNN_EVENTS VALUES (1, 2)")
        connection.commit()
    assert NSYS_SQLITE.read(path, Options()).tables["spans"].is_empty()


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_database_that_is_being_written_is_explained(tmp_path: Path, suffix: str) -> None:
    path = NsightFile().write(tmp_path / "made.sqlite")
    (tmp_path / f"made.sqlite{suffix}").write_bytes(b"pages that are not in the database yet")
    with pytest.raises(XspError, match="is being written, or its writer was interrupted"):
        NSYS_SQLITE.read(path, Options())
    (tmp_path / f"made.sqlite{suffix}").write_bytes(b"")
    NSYS_SQLITE.read(path, Options())


def test_an_export_that_was_broken_off_after_what_cuda_did_is_read_and_said(tmp_path: Path) -> None:
    file = NsightFile()
    file.launch((100, 110), (200, 300), "sgemm")
    complete = _read(file, tmp_path)
    with closing(sqlite3.connect(tmp_path / "made.sqlite")) as connection:
        connection.execute("DROP TABLE META_DATA_EXPORT")
        connection.commit()
    probe = Probe(tmp_path / "made.sqlite")
    assert NSYS_SQLITE.sniff(probe) is Match.EXACT
    raw = NSYS_SQLITE.read(tmp_path / "made.sqlite", Options())
    assert raw.tables["spans"].equals(complete.tables["spans"])
    assert [finding.kind for finding in raw.findings if finding not in complete.findings] == [
        LedgerKind.EXPORT_BROKEN_OFF
    ]


@pytest.mark.parametrize("what", ["kernels", "ranges alone"])
def test_exports_of_before_2022_are_complete_without_what_says_their_version(what: str, tmp_path: Path) -> None:
    file = NsightFile()
    file.range(10, 400, "block")
    if what == "kernels":
        file.launch((100, 110), (200, 300), "sgemm")
    file.gpu(0, "A100")
    raw = _read(file, tmp_path)
    with closing(sqlite3.connect(tmp_path / "made.sqlite")) as connection:
        connection.execute("DROP TABLE META_DATA_EXPORT")
        connection.execute("CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER)")
        connection.commit()
        assert LedgerKind.EXPORT_BROKEN_OFF in {each.kind for each in _again(tmp_path).findings}
        connection.execute("CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId INTEGER)")  # the last one that they wrote
        connection.commit()
    assert NSYS_SQLITE.sniff(Probe(tmp_path / "made.sqlite")) is Match.EXACT
    again = _again(tmp_path)
    assert again.tables["spans"].equals(raw.tables["spans"])
    assert again.findings == raw.findings
    assert again.facts.profiler == "Nsight Systems"


def _again(folder: Path) -> RawTrace:
    return NSYS_SQLITE.read(folder / "made.sqlite", Options())
