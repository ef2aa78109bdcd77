"""What is refused before any reader sees it."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.files import safe_files
from xsp_ingest.formats.torch_profiler import TORCH_PROFILER
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from xsp_model import Trace

_TRACE = b'{"schemaVersion": 1, "traceEvents": [%s]}'
_EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10, "dur": 5}'
_MIB = 1 << 20


def _refusal(path: Path, **how: str) -> str:
    with pytest.raises(XspError) as refused:
        convert([path], Options(), **how)  # type: ignore[arg-type]
    return str(refused.value)


def _left_out(trace: Trace) -> int:
    ledger = trace.frame("ledger")
    return int(ledger.filter(ledger["kind"] == "unsafe_file")["count"].sum())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(_TRACE % _EVENT)
    return path


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "a pipe, not a file" in _refusal(pipe)
    assert "a pipe, not a file" in _refusal(pipe, format_name="torch_profiler")


def test_a_device_is_refused() -> None:
    assert "a device, not a file" in _refusal(Path("/dev/zero"))


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
        assert "a socket, not a file" in _refusal(Path("s"))


def test_a_link_that_the_user_names_is_followed(trace: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(trace)
    assert convert([link], Options()).row_count == 1


def test_a_link_to_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    assert "a pipe, not a file" in _refusal(tmp_path / "link")


@pytest.mark.parametrize(("target", "message"), [("nothing", "leads nowhere"), ("link", "cannot be read")])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str, message: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / target)
    assert message in _refusal(tmp_path / "link")


def test_links_out_of_a_folder_and_pipes_in_it_are_left_out_and_counted(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copyfile(trace, folder / "a.json")
    (folder / "below").mkdir()
    (folder / "below" / "b.json").write_bytes(trace.read_bytes() + b" ")
    (folder / "inside.json").symlink_to(folder / "below" / "b.json")
    (folder / "outside.json").symlink_to(trace)
    (folder / "nowhere.json").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe")
    converted = convert([folder], Options())
    assert converted.frame("runs").height == 2
    assert _left_out(converted) == 3


def test_a_folder_with_nothing_but_a_link_out_of_it_holds_nothing(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "trace.json").symlink_to(trace)
    assert "no file of a known profiler format" in _refusal(folder)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_database_that_is_being_written_is_not_read(fixtures_dir: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "trace.sqlite"
    shutil.copyfile(fixtures_dir / "nsys_sqlite/nvtx_cpu/nvtx.sqlite", path)
    (tmp_path / f"trace.sqlite{suffix}").write_bytes(b"pages")
    assert "is being written" in _refusal(path)
    (tmp_path / f"trace.sqlite{suffix}").write_bytes(b"")
    assert convert([path], Options()).row_count > 0


def _bomb(path: Path, before: bytes, filler: bytes, mib: int) -> None:
    """A gzip file of so many MiB of one byte behind what stands before."""
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = filler * (16 * _MIB)
    with path.open("wb") as out:
        out.write(pack.compress(before))
        for _ in range(mib // 16):
            out.write(pack.compress(block))
        out.write(pack.flush())


def _peak_of(path: Path, format_name: str) -> tuple[str, int]:
    """What is said of the file by a process of its own, and the most memory it took, in MB."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom xsp_ingest.convert import convert\n"
        "from xsp_ingest.ingester import Options\nfrom xsp_model import XspError\n"
        "try:\n    convert([Path(sys.argv[1])], Options(), format_name=sys.argv[2])\n"
        "except XspError as error:\n    print(error)\n"
        # Not ru_maxrss: that of a process begins at what its parent held when it started it.
        "print(int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]) // 1000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), format_name], capture_output=True, text=True, check=True, timeout=120
    )
    message, peak = done.stdout.splitlines()
    return message, int(peak)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["torch_profiler", "jaeger", "ncu_csv"])
def test_a_bomb_of_one_endless_text_is_stopped_within_1_gb(tmp_path: Path, format_name: str) -> None:
    before = b'"ID","Kernel Name","' if format_name == "ncu_csv" else b'{"schemaVersion": 1, "traceEvents": [{"name": "'
    _bomb(tmp_path / "bomb.gz", before, b"a", 640)
    message, peak = _peak_of(tmp_path / "bomb.gz", format_name)
    assert "longer than" in message
    assert peak < 1000


@override_limits(unpacked_ratio_min_bytes=32 * _MIB)
def test_a_bomb_of_blanks_is_stopped_by_its_ratio(tmp_path: Path) -> None:
    _bomb(tmp_path / "bomb.gz", b'{"schemaVersion": 1, "traceEvents": [', b" ", 48)
    assert "which no trace does" in _refusal(tmp_path / "bomb.gz")


def test_what_compresses_well_but_is_small_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(_TRACE % (_EVENT + b" " * (4 * _MIB))))
    assert path.stat().st_size * safe_files.MAX_RATIO < 4 * _MIB
    assert convert([path], Options()).row_count == 1


@pytest.mark.parametrize("size", [1_000, 2_000_000], ids=["plain scanner", "compiled scanner"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_json_of_any_depth_is_refused_in_one_sentence(tmp_path: Path, size: int, opening: bytes) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + opening * size)
    with pytest.raises(XspError, match=r"^[^\n]*$"):
        TORCH_PROFILER.read(path, Options())


@pytest.mark.parametrize("number", [b"9" * 5000, b"1e999999", b"-0." + b"3" * 5000, b"NaN", b"9223372036854775808"])
def test_numbers_beyond_all_bounds_are_no_times(tmp_path: Path, number: bytes) -> None:
    odd = _EVENT.replace(b'"ts": 10', b'"ts": ' + number).replace(b"aten::add", b"odd")
    (tmp_path / "t.json").write_bytes(_TRACE % (_EVENT + b", " + odd))
    names = convert([tmp_path / "t.json"], Options()).frame("spans")["name"].to_list()
    assert "aten::add" in names


def test_one_damaged_file_of_a_folder_does_not_keep_the_others_from_being_read(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        (folder / f"rank{rank}.json").write_bytes(trace.read_bytes() + b" " * rank)
    content = trace.read_bytes()
    (folder / "rank1.json").write_bytes(content[: len(content) // 2])
    converted = convert([folder], Options())
    assert converted.frame("runs")["source_path"].to_list() == ["rank0.json", "rank2.json"]
    unreadable = converted.frame("ledger").filter(pl.col("kind").cast(pl.String) == "unreadable_file")
    assert unreadable.select("severity", "count").cast({"severity": pl.String}).rows() == [("error", 1)]
    assert unreadable["detail"].item().startswith("rank1.json of the directory could not be read")
    assert "cut off" in unreadable["detail"].item()


def test_a_damaged_file_that_is_named_is_refused_beside_sound_ones(tmp_path: Path, trace: Path) -> None:
    content = trace.read_bytes()
    (tmp_path / "cut.json").write_bytes(content[: len(content) // 2])
    with pytest.raises(XspError, match="cut off"):
        convert([trace, tmp_path / "cut.json"], Options())


def test_a_folder_of_nothing_but_damaged_files_is_refused(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    content = trace.read_bytes()
    for rank in range(2):
        (folder / f"rank{rank}.json").write_bytes(content[: len(content) // 2])
    assert "cut off" in _refusal(folder)
