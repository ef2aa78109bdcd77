"""What only Linux has is asked for only there: elsewhere something else is done, or nothing."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest

from xsp import memory as of_the_command
from xsp import processes
from xsp.batch import pool
from xsp_ingest.files.sqlite import INTEGER, read_pages
from xsp_ingest.machine.sqlite import CannotRead, reader
from xsp_model import limits
from xsp_model.limits import available_bytes, limit_bytes, override_limits, peak_bytes, resident_bytes
from xsp_runners.sets import guard

pytestmark = pytest.mark.only_on("linux", reason="plays other systems itself")


@pytest.fixture(autouse=True)
def _no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS, as far as one can be told: its name, no /proc, and a C library without what is Linux's."""
    read_text = Path.read_text

    def without_proc(path: Path, *arguments: str, **options: str) -> str:
        if path.is_relative_to("/proc") or path.is_relative_to("/sys"):
            raise FileNotFoundError(path)
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(Path, "read_text", without_proc)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "preadv", raising=False)


def test_memory_is_what_the_system_says_otherwise() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < resident_bytes() <= 2 * peak  # bytes there, KiB on Linux
    assert 0 < peak_bytes() <= 2 * peak
    assert 0 < available_bytes() <= limit_bytes()
    assert pool._resident_bytes(os.getpid()) == 0


def test_windows_says_memory_in_structures_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def say_machine(status: SimpleNamespace) -> None:
        assert status._obj[0] == 64  # as its header has it
        ctypes.memmove(ctypes.addressof(status._obj) + 8, (ctypes.c_uint64 * 2)(16 << 30, 5 << 30), 16)

    def say_process(process: ctypes.c_void_p, counters: SimpleNamespace, size: int) -> None:
        assert process.value == (1 << 64) - 1
        assert counters._obj[0] == size == 72
        ctypes.memmove(ctypes.addressof(counters._obj) + 8, (ctypes.c_uint64 * 2)(900, 700), 16)

    calls = SimpleNamespace(GlobalMemoryStatusEx=say_machine, K32GetProcessMemoryInfo=say_process)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(limits, "_KINDS", ())
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=calls), raising=False)
    assert (limit_bytes(), available_bytes(), peak_bytes(), resident_bytes()) == (16 << 30, 5 << 30, 900, 700)


def test_processes_are_spawned_and_none_is_kept_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "set_forkserver_preload", lambda *_: pytest.fail("forked"))
    processes.begin()
    processes.end()
    assert processes.context().get_start_method() == "spawn"
    assert processes.cores() == os.cpu_count()


def test_the_c_library_is_asked_for_nothing_of_linux() -> None:
    of_the_command.be_frugal()
    guard._control(1, 9)
    reader._touch(np.zeros(reader._MAPPED_BYTES, dtype=np.int8))
    assert reader._zeros(reader._MAPPED_BYTES, np.int8).any() == np.False_


@override_limits(page_reader_min_bytes=0)
def test_pages_are_left_to_sqlite_where_they_cannot_be_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_read", _never)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t (i INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        with pytest.raises(CannotRead):
            read_pages(tmp_path / "t.db", connection, "t", {"i": INTEGER}, None)


def _never(*_: object) -> NoReturn:
    pytest.fail("read")
