"""What a file is, said even where nothing reads it, and what to do with it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import sqlite3
import struct
import tarfile
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path


def _message(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(XspError) as refused:
        convert([path], Options())
    return str(refused.value)


def _zip(**members: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("trace.json"), io.BytesIO())
    return out.getvalue()


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), out)
    return out.getvalue()


def _database(*tables: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        for table in tables or ("notes",):
            database.execute(f"CREATE TABLE {table} (text TEXT)")
        return database.serialize()


def _record(message: bytes) -> bytes:
    """A TensorBoard record: its length, a checksum, the message, a checksum."""
    return struct.pack("<QI", len(message), 0) + message + b"\0\0\0\0"


_PERFETTO_PACKET = b"\x40\x80\x01\x18\x07\x50\x01\x72\x02ab"  # timestamp, uid, sequence 1, an event
_PERFETTO = b"\x0a" + bytes([len(_PERFETTO_PACKET)]) + _PERFETTO_PACKET
_SPEEDSCOPE = json.dumps({"version": "0.0.1", "$schema": "https://www.speedscope.app/file-format-schema.json"}).encode()
_PPROF = (  # pprof's profile.proto: types of samples, a sample, a location, a function, texts, a period
    b"\x0a\x04\x08\x01\x10\x02\x12\x06\x0a\x01\x01\x12\x01\x05\x22\x04\x08\x01\x18\x10\x2a\x04\x08\x01\x10\x03"
    b"\x32\x00\x32\x07samples\x32\x05count\x32\x04main\x60\x80\xad\xe2\x04"
)
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"

_CASES = {
    "blank": (b" \r\n\t\n", "nothing but blank space", "again"),
    "byte order mark alone": (b"\xef\xbb\xbf", "nothing but blank space", "again"),
    "gzip of nothing": (gzip.compress(b""), "nothing in it", "again"),
    "zeros": (bytes(5000), "zeros only", "again"),
    "aborted export": (bytes(4096) + b"CREATE TABLE", "header is zeroed", "nsys export"),
    "LFS pointer": (_LFS, "Git LFS pointer", "git lfs pull"),
    "web page": (b"\n<!DOCTYPE html><html><body>Not found</body></html>", "web page", "Download the file itself"),
    "web page packed": (gzip.compress(b"<html><head>"), "web page", "Download the file itself"),
    "store's error": (b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>', "error message", "Download"),
    "XML": (b"<?xml version='1.0'?><a/>", "XML document", "xsp formats"),
    "Perfetto": (_PERFETTO * 3, "holds no slices or counters of any program", "track_event"),
    "pprof": (_PPROF, "not when they ran, of which no time line can be made", "go tool pprof"),
    "pprof packed": (gzip.compress(_PPROF), "a pprof profile", "go tool pprof"),
    "speedscope": (_SPEEDSCOPE, "speedscope profile", "Give the trace"),
    "Firefox": (b'{"meta": {"preprocessedProfileVersion": 49}}', "Firefox Profiler", "Give the trace"),
    "Zipkin": (b'[{"traceId": "a"}]', "Zipkin", "Jaeger"),
    "zip": (_zip(a="1"), "zip archive", "Unpack"),
    "tar": (_tar(), "tar archive", "Unpack"),
    "packed tar": (gzip.compress(_tar()), "tar archive", "Unpack"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "7z archive", "Unpack"),
    "rar": (b"Rar!\x1a\x07\x01\0", "RAR archive", "Unpack"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\0", "compressed with zstd", "zstd -d"),
    "xz": (lzma.compress(b"{}"), "compressed with xz", "xz -dk"),
    "bzip2": (bz2.compress(b"{}"), "compressed with bzip2", "bzip2 -dk"),
    "lz4": (b"\x04\x22\x4d\x18\x64", "compressed with lz4", "lz4 -d"),
    "gzip twice": (gzip.compress(gzip.compress(b"{}")), "gzip file within", "gzip -dk"),
    "pickle": (pickle.dumps({"a": 1}), "never opens", "JSON"),
    "TensorBoard events": (_record(b"\x09\0\0\0\0\0\0\0\0\x1a\x0dbrain.Event:2"), "TensorBoard", "plugins/profile"),
    "ELF": (b"\x7fELF\2\1\1", "shared library", "xsp formats"),
    "PNG": (b"\x89PNG\r\n\x1a\n", "picture", "drawn from"),
    "PDF": (b"%PDF-1.7", "PDF", "profiler's own"),
    "perf": (b"PERFILE2", "perf recording", "xsp formats"),
    "Parquet": (_parquet(), "Parquet", "folder"),
    "SQLite": (_database(), "SQLite database that no known profiler wrote", "--format"),
    "Nsight's, broken off": (
        _database("StringIds", "ThreadNames"),
        "Nsight Systems that was broken off",
        "nsys export",
    ),
    "XProf's statistics": (b"\x0a\x00\x12\x06\x52\x04\x32\x02ab", "statistics of operators that XProf", ".xplane.pb"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "UTF-16", "UTF-8"),
    "UTF-16 without mark": ('{"a": 1}'.encode("utf-16-le"), "UTF-16", "UTF-8"),
    "JSON": (b'{"a": 1}', "JSON, but of no known profiler format", "--format"),
    "CSV": (b"day,sales\n1,2\n", "a table (CSV)", "--format"),
    "text": (b"Dear diary", "no known profiler format", "xsp formats"),
    "Chrome trace": (b'{"displayTimeUnit": "ms"}', "Chrome trace JSON", "torch_profiler"),
}


@pytest.mark.parametrize(("content", "what", "advice"), _CASES.values(), ids=_CASES)
def test_a_file_that_nothing_reads_is_named_in_one_line(tmp_path: Path, content: bytes, what: str, advice: str) -> None:
    message = _message(tmp_path / "file", content)
    assert what in message
    assert advice in message.partition(what)[2]
    assert "\n" not in message


def test_a_checkpoint_is_no_mere_zip(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("model/data.pkl", b"")
    assert "PyTorch checkpoint" in _message(tmp_path / "model.pt", out.getvalue())


def test_a_raw_capture_is_known_by_its_name_where_its_content_says_nothing(tmp_path: Path) -> None:
    assert "QdstrmImporter" in _message(tmp_path / "a.qdstrm", b"\1\2\3\4 unlike any other")


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    assert "the file is empty" in _message(tmp_path / "trace.json", b"")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return re.escape, (str(tmp_path / "ran"),)

    assert "never opens" in _message(tmp_path / "evil.pkl", pickle.dumps(Evil()))


def test_what_an_ingester_claims_is_left_to_it(tmp_path: Path) -> None:
    content = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X"}]}'
    assert "no profiler events" in _message(tmp_path / "t.json", content)


def test_a_folder_with_nothing_to_read_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(_LFS)
    with pytest.raises(XspError, match=r"\(trace\.json: a Git LFS pointer"):
        convert([tmp_path], Options())


def test_a_database_cut_short_is_called_so(tmp_path: Path) -> None:
    content = _database()
    assert "a SQLite database that is cut off" in _message(tmp_path / "copied", content[: len(content) - 1_000])


def test_an_export_that_was_broken_off_says_what_its_program_ended_with(tmp_path: Path) -> None:
    path = tmp_path / "broken.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        file.execute("CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT)")
        texts = [
            "stderr.log",
            "starting\npython: symbol lookup error: libTools.so: undefined symbol\n\n",
            "an error elsewhere",
        ]
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts))
        file.execute("INSERT INTO ProcessStreams VALUES (1, 0, 1)")
    with pytest.raises(XspError, match="broken off") as caught:
        convert([path], Options())
    assert "its program had ended with: python: symbol lookup error: libTools.so: undefined symbol" in str(caught.value)
    assert "elsewhere" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b'{"runs": [1], "machine": {"inner": 2}}', "an object with the keys `runs`, `machine`"),
        (b'[{"layer": 1, "ms": 2}]', "a list with the keys `layer`, `ms`"),
        (b"[1, 2]", "a list without keys"),
        (b"host;took\na;1\n", "its columns are `host`, `took`"),
        (_database("samples"), "its tables are `samples`"),
        (b"  took 3 ms\nand more\n", "text that begins with `took 3 ms`"),
        (b"\x01\x02\xff\xfe and more", "binary, it begins with the bytes 01 02 ff fe"),
    ],
)
def test_of_an_unknown_file_it_is_said_what_it_looks_like(content: bytes, looks: str, tmp_path: Path) -> None:
    assert looks in _message(tmp_path / "file", content)


@pytest.mark.parametrize(
    ("content", "says", "advice"),
    [
        (
            b"-----  -----\n     Name    Self CPU %      Self CPU   CPU total %     CPU total  # of Calls\n",
            "a table that torch.profiler printed",
            "export_chrome_trace",
        ),
        (
            b"epoch 1\n" + b"  Name        Self CPU       CPU total   CPU time avg\n",
            "a table that torch.profiler printed",
            "export_chrome_trace",
        ),
        (b"======== CPU profiling result (bottom up):\nTime(%)      Time  Name\n", "samples of the CPU's", "nvprof -o"),
        (b"loss 1\n==PROF== Connected to process 7\n", "what a program and Nsight Compute printed", ".ncu-rep"),
        (
            b"loss 1\n==7== NVPROF is profiling process 7, command: a\n",
            "what a program and nvprof printed",
            "nvprof -o",
        ),
        (b"Step Id,Op Name,OP Type,Task Duration(us)\n1,a,b,2\n", "msprof op_summary", "trace_view.json"),
    ],
)
def test_what_a_tool_printed_is_refused_with_what_to_give_instead(
    content: bytes, says: str, advice: str, tmp_path: Path
) -> None:
    message = _message(tmp_path / "log.txt", content)
    assert says in message
    assert advice in message
