"""Which files hold the same, under other names and packed otherwise; and how much of them is read to know it."""

from __future__ import annotations

import gzip
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from xsp_ingest import distinct
from xsp_ingest.distinct import first_alike
from xsp_ingest.files.safe_files import sha256

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CONTENT = b'{"traceEvents": [' + b"1, " * 40_000 + b"1]}"


@pytest.fixture(name="trace")
def fixture_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(_CONTENT)
    return path


def _symlink(trace: Path, other: Path) -> None:
    other.symlink_to(trace.name)


def _gzip(trace: Path, other: Path) -> None:
    other.write_bytes(gzip.compress(trace.read_bytes()))


def _gzip_of_members(trace: Path, other: Path) -> None:
    content = trace.read_bytes()
    other.write_bytes(gzip.compress(content[:50_000]) + gzip.compress(content[50_000:]))


@pytest.mark.parametrize("make", [_symlink, os.link, shutil.copyfile, _gzip, _gzip_of_members])
def test_a_file_under_a_second_name_is_the_first(trace: Path, make: Callable[[Path, Path], None]) -> None:
    other = trace.with_name("other")
    make(trace, other)
    assert first_alike([trace, other]) == [0, 0]
    assert first_alike([other, trace]) == [0, 0]


def test_one_packed_twice_and_unpacked_is_one(trace: Path) -> None:
    fast, small = trace.with_name("fast.gz"), trace.with_name("small.gz")
    fast.write_bytes(gzip.compress(_CONTENT, 1, mtime=1))
    small.write_bytes(gzip.compress(_CONTENT, 9, mtime=2))
    assert first_alike([fast, small]) == [0, 0]
    assert first_alike([fast, trace, small]) == [0, 0, 0]


def test_a_file_through_two_spellings_of_its_folder_is_one(trace: Path) -> None:
    (trace.parent / "inner").mkdir()
    assert first_alike([trace, trace.parent / "inner" / ".." / "trace.json"]) == [0, 0]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_that_differ_in_one_byte_at_their_end_are_two(trace: Path, pack: Callable[[bytes], bytes]) -> None:
    other = trace.with_name("other")
    other.write_bytes(pack(_CONTENT[:-1] + b" "))
    assert first_alike([trace, other]) == [0, 1]


def test_folders_are_alike_by_all_that_is_below_them(tmp_path: Path) -> None:
    for name, content in (("one", b"1"), ("two", b"1"), ("three", b"2")):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "file").write_bytes(content)
    assert first_alike([tmp_path / name for name in ("one", "two", "three")]) == [0, 0, 2]


def test_what_cannot_be_unpacked_is_like_nothing_else(trace: Path) -> None:
    cut = trace.with_name("cut.gz")
    cut.write_bytes(gzip.compress(_CONTENT)[:-20])
    assert first_alike([trace, cut, trace.with_name("absent")]) == [0, 1, 2]


def test_of_many_copies_each_is_read_once_and_of_links_none(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def digest(path: Path) -> str:
        read.append(path)
        return sha256(path)

    monkeypatch.setattr(distinct, "sha256", digest)
    copies = [trace.with_name(f"copy-{number}") for number in range(50)]
    links = [trace.with_name(f"link-{number}") for number in range(50)]
    for copy in copies:
        shutil.copyfile(trace, copy)
    for link in links:
        link.symlink_to(trace.name)
    assert first_alike([trace, *copies, *links]) == [0] * 101
    assert sorted(read) == sorted([trace, *copies])


def test_files_that_begin_differently_are_not_read_on(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "sha256", None)
    monkeypatch.setattr(distinct, "pieces", None)
    other, packed = trace.with_name("other.json"), trace.with_name("packed.json.gz")
    other.write_bytes(b"[" + _CONTENT)
    packed.write_bytes(gzip.compress(b" " + _CONTENT))
    assert first_alike([trace, other, packed]) == [0, 1, 2]
