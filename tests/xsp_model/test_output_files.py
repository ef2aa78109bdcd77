"""Outputs never destroy an input, a device, or what was there before they were whole."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xsp_model import XspError
from xsp_model.output_files import check_output, replace_folder, room_beside, write_file, writing

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORDED = b"what was recorded"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trace.json").write_bytes(_RECORDED)
    return tmp_path


def test_it_is_there_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"

    def write_half() -> None:
        with writing(target) as file:
            file.write(b"half")
            assert not target.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert list(target.parent.iterdir()) == []
    write_file(target, b"whole")
    assert target.read_bytes() == b"whole"


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "here.html").write_bytes(b"old")
    (tmp_path / "latest.html").symlink_to("here.html")
    write_file(tmp_path / "latest.html", b"new")
    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "here.html").read_bytes() == b"new"


def test_a_pipe_and_a_device_are_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"through")
    reader.join()
    assert read == [b"through"]
    assert pipe.is_fifo()
    check_output(Path(os.devnull), [])
    write_file(Path(os.devnull), b"gone")
    assert Path(os.devnull).is_char_device()


def _hard(folder: Path) -> Path:
    (folder / "hard.json").hardlink_to(folder / "run" / "trace.json")
    return folder / "hard.json"


def _linked(folder: Path) -> Path:
    (folder / "soft.json").symlink_to("run/trace.json")
    return folder / "soft.json"


def _linked_folder(folder: Path) -> Path:
    (folder / "way").symlink_to("run")
    return folder / "way" / "trace.json"


@pytest.mark.parametrize("source", ["run", "run/trace.json", "run/../run/trace.json"])
@pytest.mark.parametrize(
    "spelt",
    [lambda at: at / "run" / "trace.json", lambda at: at / "run" / ".." / "run" / "trace.json", _hard, _linked,
     _linked_folder, lambda at: at / "run"],
)  # fmt: skip
def test_an_input_is_refused_by_whatever_name(folder: Path, spelt: Callable[[Path], Path], source: str) -> None:
    with pytest.raises(XspError, match=r"inputs"):
        check_output(spelt(folder), [folder / source])
    assert (folder / "run" / "trace.json").read_bytes() == _RECORDED


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system names no streams")
def test_a_stream_that_leads_to_an_input_is_refused_and_to_another_file_written(folder: Path) -> None:
    trace = folder / "run" / "trace.json"
    with trace.open("rb") as source, (folder / "out.txt").open("w") as out:
        for path in (
            f"/dev/fd/{source.fileno()}",
            f"/proc/self/fd/{source.fileno()}",
            f"/proc/self/cwd/{os.path.relpath(trace)}",
        ):
            with pytest.raises(XspError, match="inputs"):
                check_output(Path(path), [trace])
        check_output(Path(f"/dev/fd/{out.fileno()}"), [trace])
        write_file(Path(f"/dev/fd/{out.fileno()}"), b"through")
    assert (folder / "out.txt").read_bytes() == b"through"
    assert trace.read_bytes() == _RECORDED


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this system keeps no files below /dev")  # noqa: S108
def test_a_file_below_dev_is_a_file() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        trace = Path(folder, "trace.json")
        trace.write_bytes(_RECORDED)
        with pytest.raises(XspError, match="inputs"):
            check_output(trace, [trace])


@pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing tells whether a process is alive")
def test_room_that_somebody_uses_stays_and_what_killed_ones_left_goes(tmp_path: Path) -> None:
    target = tmp_path / "a.xsp"
    left = tmp_path / ".a.xsp.left"
    left.mkdir()
    (left / "lock").touch()
    (left / "earlier").mkdir()
    (left / "earlier" / "mine").write_bytes(b"x")  # it was killed with the target out of its place
    with room_beside(target) as used, room_beside(target) as other:
        assert used.exists()
        assert other != used
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([used.name, other.name, "a.xsp"])
    assert [path.name for path in tmp_path.iterdir()] == ["a.xsp"]
    assert (target / "mine").read_bytes() == b"x"


@pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing tells whether a process is alive")
def test_the_next_file_clears_what_a_killed_write_left(tmp_path: Path) -> None:
    left = tmp_path / f".page.html.{os.getpid()}.part"
    left.write_bytes(b"half")
    with writing(tmp_path / "page.html") as file:
        file.write(b"who")
        (other,) = tmp_path.iterdir()
        write_file(tmp_path / "page.html.txt", b"x")
        assert other.exists()
        file.write(b"le")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.html.txt"]
    assert (tmp_path / "page.html").read_bytes() == b"whole"


def _write_often(path: str, times: int) -> list[str]:
    failures = []
    for _ in range(times):
        try:
            write_file(Path(path), b"x" * 1000)
        except XspError as error:
            failures.append(str(error))
    return failures


@pytest.mark.slow
def test_writers_of_one_file_at_once_do_not_take_each_other_for_abandoned(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        failures = pool.map(_write_often, [str(tmp_path / "file")] * 3, [400] * 3)
    assert [sentence for each in failures for sentence in each] == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_bytes(b"x")
    with pytest.raises(OSError, match="No such file"):
        replace_folder(tmp_path / "kept", tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "mine").read_bytes() == b"x"


def test_a_new_file_and_a_page_of_ours_in_an_input_folder_are_no_harm(folder: Path) -> None:
    page = folder / "run" / "report.html"
    check_output(page, [folder / "run"])
    page.write_bytes(b'<!doctype html>\n<html>\n<head>\n<meta name="generator" content="XSP">')
    check_output(page, [folder / "run"])
    page.write_bytes(b"<!doctype html><title>mine</title>")
    with pytest.raises(XspError, match="may be one of the inputs"):
        check_output(page, [folder / "run"])


def test_what_is_no_input_may_be_replaced(folder: Path) -> None:
    (folder / "report.html").write_bytes(b"yesterday's")
    check_output(folder / "report.html", [folder / "run", folder / "nothing"])


def test_a_loop_of_links_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(XspError, match="cannot be written"):
        write_file(tmp_path / "a" / "x", b"")
