"""Parquet, Arrow and JSON exports give what the SQLite export of the same report gives."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from tests.helpers.synth_nsys import PROCESS, THREAD, NsightFile, global_id
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nsys.export import NSYS_EXPORT
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_UNSIGNED = ("globalTid", "globalPid", "endGlobalTid", "graphNodeId", "nameId", "contextId")
_KINDS = ("parquetdir", "arrowdir", "arrow")


def _columns(database: Path) -> Iterator[tuple[str, pa.Table]]:
    """The tables as nsys types them: identifiers unsigned, texts as texts whatever their bytes are."""
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        for (raw,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            name = raw.decode()
            cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 (the file's own names)
            heads = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            cells = {head: _array(head, [row[n] for row in rows]) for n, head in enumerate(heads)}
            yield name, pa.table(cells)


def _array(head: str, cells: Sequence[object]) -> pa.Array:
    if any(isinstance(cell, bytes) for cell in cells):
        raw = pa.array(cells, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)
    if head in _UNSIGNED:
        return pa.array([None if c is None else int(str(c)) % (1 << 64) for c in cells], pa.uint64())
    return pa.array(cells, pa.int64())


def _export(database: Path, kind: str, to: Path) -> Path:
    if kind == "arrow":
        with to.open("wb") as file:
            for name, table in _columns(database):
                _stream(file, name, table)
        return to
    to.mkdir()
    for name, table in _columns(database):
        if kind == "parquetdir":
            pq.write_table(table, to / f"{name}.parquet")
        else:
            with (to / f"{name}.arrow").open("wb") as file:
                _stream(file, name, table)
    return to


def _stream(file: object, name: str, table: pa.Table) -> None:
    named = table.replace_schema_metadata({"table_name": name})
    with ipc.new_stream(file, named.schema) as stream:
        stream.write_table(named)


def _same(one: Trace, other: Trace) -> list[str]:
    """The tables that differ, besides where the runs came from."""
    whence = ["source_path", "source_sha256", "source_bytes", "format"]
    frames = [(name, one.frame(name), other.frame(name)) for name in TABLES]
    return [n for n, a, b in frames if not a.drop(whence, strict=False).equals(b.drop(whence, strict=False))]


def _rich() -> NsightFile:
    file = NsightFile("3.13")
    file.gpu()
    file.session(epoch_ns=10**18, duration_ns=10_000)
    file.domain(3, "d")
    file.range(0, 500, "step 1", registered=True)
    file.range(5, None, "never closed", domain=3)
    file.range(6, 90, b"not \xff UTF-8")
    link = file.launch((20, 25), (30, 40), "gemm")
    file.kernel(30, 40, "gemm", correlation=link)  # said twice
    file.memcpy(50, 60, correlation=file.correlation())
    file.memset(70, 71)
    file.wait(80, 85, 3, stream=0xFFFFFFFF)
    file.library_call(10, 28, "cudnnConvolutionForward")
    file.graph_node(1, 2, node=(7 << 32) + 1)
    file.graph_trace(90, 95, graph=7)
    file.diagnostic(2, "Not all CUDA events might have been collected.")
    file.overhead(33, 35)
    tid = global_id(PROCESS, THREAD)
    file.add("OSRT_API", start=3, end=4, eventClass=27, globalTid=tid, nameId=file.string("ioctl"))
    return file


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("extra", [{}, {"os_runtime": ""}], ids=["usual", "os_runtime"])
def test_each_kind_gives_what_sqlite_gives(tmp_path: Path, kind: str, extra: dict[str, str]) -> None:
    database = _rich().write(tmp_path / "made.sqlite")
    options = Options(extra=extra)
    reference = convert([database], options)
    assert set(reference.frame("ledger")["kind"]) >= {"duplicate_event", "not_utf8", "profiler_diagnostic"}
    assert _same(reference, convert([_export(database, kind, tmp_path / "export")], options)) == []


@pytest.mark.real
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", ["saxpy_mpi.a100.nsys2022_2", "h100_fsdp_2gpu.nsys2026_2"])
def test_real_files_in_each_kind(real_dir: Path, tmp_path: Path, kind: str, name: str) -> None:
    database = real_dir / "nsys" / f"{name}.sqlite"
    exported = convert([_export(database, kind, tmp_path / "export")], Options())
    assert _same(convert([database], Options()), exported) == []


def test_unsigned_ids_beyond_63_bits_are_as_in_sqlite(tmp_path: Path) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), "parquetdir", tmp_path / "export")
    calls = pq.read_table(folder / "CUPTI_ACTIVITY_KIND_RUNTIME.parquet")
    high = pa.array([(255 << 56) | (4 << 24) | 5], pa.uint64())
    column = calls.schema.get_field_index("globalTid")
    pq.write_table(calls.set_column(column, "globalTid", high), folder / "CUPTI_ACTIVITY_KIND_RUNTIME.parquet")
    spans = convert([folder], Options()).frame("spans").filter(pl.col("level").cast(pl.String) == "runtime")
    assert (4, 5) in spans.select("process_id", "thread_id").rows()


def test_numbered_events_keep_their_numbers(tmp_path: Path) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), "parquetdir", tmp_path / "export")
    events = pq.read_table(folder / "NVTX_EVENTS.parquet")
    numbers = pa.array(range(10 * events.num_rows, 0, -10), pa.int64())
    pq.write_table(events.append_column("eventId", numbers), folder / "NVTX_EVENTS.parquet")
    assert convert([folder], Options()).frame("ranges")["range_id"].to_list() == [30, 20, 10]


def test_a_folder_of_exports_is_several_runs(tmp_path: Path) -> None:
    database = _rich().write(tmp_path / "made.sqlite")
    (tmp_path / "job").mkdir()
    for rank, kind in enumerate(("parquetdir", "arrowdir")):
        _export(database, kind, tmp_path / "job" / f"rank{rank}")
    trace = convert([tmp_path / "job"], Options())
    assert trace.frame("runs").select("format", "source_path").rows() == [
        ("nsys_export", "rank0"),
        ("nsys_export", "rank1"),
    ]


def test_an_export_without_its_meta_table_is_refused(tmp_path: Path) -> None:
    path = _export(_rich().write(tmp_path / "made.sqlite"), "arrow", tmp_path / "x.arrows")
    with path.open("wb") as file:
        _stream(file, "StringIds", pa.table({"id": [1], "value": ["a"]}))
    with pytest.raises(XspError, match="lacks its table META_DATA_EXPORT"):
        convert([path], Options())


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_a_damaged_table_is_refused(tmp_path: Path, kind: str) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), kind, tmp_path / "export")
    table = next(folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    table.write_bytes(table.read_bytes()[:200])
    with pytest.raises(XspError, match="the table's file is damaged or cut off"):
        convert([folder], Options())


def test_a_table_that_would_burst_is_refused(tmp_path: Path) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), "parquetdir", tmp_path / "export")
    zeros = pa.chunked_array([pa.array([0] * 5_000_000, pa.int64())])
    bomb = pa.table({"start": zeros, "end": zeros, "globalTid": zeros, "nameId": zeros})
    pq.write_table(bomb, folder / "CUDNN_EVENTS.parquet", compression="zstd")
    with pytest.raises(XspError, match="5,000,000 rows, which no export is"):
        convert([folder], Options())


def test_nested_columns_are_unknown(tmp_path: Path) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), "arrowdir", tmp_path / "export")
    odd = pa.table({"start": [[1], [2]], "end": [{"a": 1}, None], "nameId": [1.5, float("nan")]})
    with (folder / "CUDNN_EVENTS.arrow").open("wb") as file:
        _stream(file, "CUDNN_EVENTS", odd)
    counts = dict(convert([folder], Options()).frame("ledger").select("kind", "count").iter_rows())
    assert counts["missing_time"] == 2


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = _export(_rich().write(tmp_path / "made.sqlite"), "parquetdir", tmp_path / "export")
    outside = shutil.move(folder / "CUDNN_EVENTS.parquet", tmp_path / "outside.parquet")
    (folder / "CUDNN_EVENTS.parquet").symlink_to(outside)
    spans = convert([folder], Options()).frame("spans")
    assert not (spans["name"].cast(pl.String) == "cudnnConvolutionForward").any()


_TID = str(global_id(PROCESS, THREAD))


def _json(*events: object, strings: Sequence[str] = ("[Unknown]", "cudaFree", "step")) -> str:
    return "".join(f"{json.dumps(event, separators=(',', ':'))}\n" for event in ({"data": list(strings)}, *events))


def _call(start: str, **more: object) -> object:
    return {"Type": 48, "TraceProcessEvent": {"startNs": start, "endNs": "9", "name": "1", "globalTid": _TID, **more}}


def test_zero_is_what_json_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    work = {"startNs": "20", "endNs": "30", "correlationId": 4, "streamId": "7", "globalPid": str(global_id(PROCESS))}
    path.write_text(_json(_call("1", correlationId=4), {"Type": 79, "CudaEvent": {**work, "kernel": {}}}))
    spans = convert([path], Options()).frame("spans")
    assert spans.select("device_id", "parent_id").rows() == [(None, None), (0, 0)]


def test_strings_may_stand_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    strings = [{"type": "String", "id": "1", "value": "cudaFree"}, {"type": "ThreadName", "nameId": "4"}]
    path.write_text("".join(f"{json.dumps(s, separators=(',', ':'))}\n" for s in [*strings, _call("1")]))
    assert NSYS_EXPORT.sniff(Probe(path))
    assert convert([path], Options()).frame("spans")["name"].cast(pl.String).to_list() == ["cudaFree"]


def test_hostile_numbers_in_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    starts = ("9223372036854775808", "1" + "0" * 400, "x", "-5")
    path.write_text(_json(*(_call(start) for start in starts)))
    trace = convert([path], Options())
    assert trace.frame("spans")["duration_ns"].to_list() == [14]
    assert dict(trace.frame("ledger").select("kind", "count").iter_rows())["missing_time"] == 3


@pytest.mark.parametrize(
    "line", ['{"Type":48,"TraceProcessEvent":', '{"Type":48,"NvtxEvent":7}', "[1]", '{"type":"String"}', "[" * 100_000]
)
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(_json(_call("1")) + line + "\n")
    with pytest.raises(XspError, match="line 3 is no event of Nsight's"):
        convert([path], Options())
