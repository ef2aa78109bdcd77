"""Thresholds of how something is done, in one value, and the memory that there is to do it in."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import resource
except ImportError:  # Windows sets no such limits, and says sizes in other words
    _KINDS: tuple[int, ...] = ()
else:
    _KINDS = (resource.RLIMIT_AS, resource.RLIMIT_DATA)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Limits", "available_bytes", "limit_bytes", "limits", "override_limits", "peak_bytes", "resident_bytes"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What tests, fuzzers and builds set otherwise, so that small inputs take the paths of large ones."""

    # Columns and tables of large traces
    mapped_column_min_bytes: int = 1 << 20  # columns from this size on are on disk
    pass_rows: int = 1 << 16  # of a pass at a time: what it needs besides stays in the processor's cache
    tied_spans: int = 1 << 16  # that start with others, looked at together while a trace is put in order
    row_group_rows: int = 1 << 17  # of a Parquet file: what is written, and may be read, at once
    spilled_min_spans: int = 1 << 20  # tables of a run of so many are written to disk as they come to be

    # Linking
    climb_min_spans: int = 100_000  # fewer are climbed by whole columns, which takes no longer
    climb_piece_spans: int = 1 << 20  # climbed at a time
    nesting_piece_spans: int = 1 << 16  # nested at a time
    shortcut_min_steps: int = 64  # on the way up from a range, from where on shortcuts are worth their making

    # Machine code
    sweep_min_rows: int = 100_000  # below, loading the compiled code costs more than it saves
    sweep_compile_min_rows: int = 300_000  # below, compiling it does, which is done once per installation
    plane_scan_min_bytes: int = 400_000  # of a plane's lines; below, loading the compiled code costs more than it saves

    # Pages of SQLite tables, by machine code
    page_reader_min_bytes: int = 1 << 20  # tables of fewer are read as fast by SQLite
    page_reader_compile_min_bytes: int = 64 << 20  # of a table; for less no code is compiled where none is at hand
    page_reader_piece_bytes: int = 1 << 20  # read at once: what stays in a core's cache
    page_reader_max_spread: int = 3  # where the selected pages are fewer than one in so many, the others are not read
    page_reader_max_deferred_rows: int = 1 << 12  # asked for one by one; where a part has more, SQLite reads the table

    # Content of files, and the scanners of PyTorch traces
    content_block_bytes: int = 1 << 22  # of content, read or decompressed at once
    gzip_read_bytes: int = 1 << 18  # of a compressed file, read at once
    json_entry_max_bytes: int = 1 << 25  # of an entry of a JSON list, which is held as a whole
    streamed_min_bytes: int = 1 << 18  # of content; to get msgspec ready for less takes longer than to use `json`
    streamed_piece_bytes: int = 1 << 19  # of events, decoded at once by msgspec
    streamed_cut_bytes: int = 1 << 12  # at the end of a piece, in which the border of two events is looked for first
    compiled_min_bytes: int = 1 << 20  # of content; to load machine code for less takes longer than to do without
    compiled_finish_min_bytes: int = 8 << 20  # likewise, once per installation: to make it of what came along,
    compiled_compile_min_bytes: int = 256 << 20  # and to compile it
    compiled_buffer_bytes: int = 1 << 22  # of content, before the machine code at once
    compiled_first_rows: int = 1 << 14  # for which tables have room at first: events,
    compiled_first_details: int = 1 << 12  # those with details,
    compiled_first_frames: int = 1 << 12  # functions of Python,
    compiled_first_texts: int = 1 << 14  # distinct texts
    compiled_first_text_bytes: int = 1 << 21  # and what they take
    trace_piece_rows: int = 1 << 17  # events of a trace, scanned and shaped at once

    # Other formats
    fetched_rows: int = 10_000  # of SQLite at once: a statement of their ids may be of a million characters
    nsys_staged_min_rows: int = 1 << 18  # tables of Nsight Systems of so many rows are on disk
    nsys_staged_piece_rows: int = 1 << 17  # put there at a time
    unpacked_ratio_min_bytes: int = 1 << 30  # of content, from where on it may not be too many times its file
    xla_max_events: int = 1_000_000  # that XLA's profiler puts in one file

    # Answers, pages and exports
    sure_pairs_max_cells: int = 1 << 25  # of the table of lengths of replays that are paired, 4 bytes each
    viewer_answer_max_boxes: int = 200_000  # of a window that `xsp view` is asked for
    viewer_slice_max_boxes: int = 400_000  # merged anew for each window; of more, all are merged once and kept
    viewer_page_box_bytes: int = 4_000_000  # of a page, for its boxes at all levels of detail
    viewer_page_lanes: int = 4_000  # of a page, threads and streams: 120 bytes each, and boxes; and as many counters
    exported_piece_spans: int = 50_000  # held as Python rows at a time
    graphml_max_spans: int = 100_000  # a larger graph takes minutes and gigabytes here and opens in no graph tool
    sheet_max_rows: int = 1_048_576  # that a workbook's sheet holds, its headings among them

    # The application
    settled_after_ns: int = 2_000_000_000  # after its last write a file is at rest: coarser than any clock of a disk
    checked_table_min_bytes: int = 1 << 19  # smaller files are checked sooner than it is known that they were
    small_trace_max_spans: int = 200_000  # that a batch uses as they are in memory, not read again from the bundle
    cluster_timeout_s: int = 30  # until a Dask scheduler answers, and has a worker


_current: ContextVar[Limits] = ContextVar("limits")
_USUAL = Limits()


def limits() -> Limits:
    """The limits that hold here; a thread of one's own has the usual ones unless it runs in a copy of this context."""
    return _current.get(_USUAL)


@contextmanager
def override_limits(**changes: int) -> Iterator[None]:
    """Within, these fields of `Limits` have other values; TypeError for a name that is no field."""
    token = _current.set(replace(limits(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


# How much memory there is and how much is free: of the machine, of a container, and of what this process may take.

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_SIZES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_IDLE = ("inactive_file ", "total_inactive_file ")  # pages of files that the system lets go of when it needs room
_KIB = 1024


def limit_bytes() -> int:
    """The most memory that this process can have: the machine's, or what a container or `ulimit` leaves it."""
    return min([_machine_bytes(), *(limit for limit, _ in _container_sizes()), *_process_limits()])


def available_bytes() -> int:
    """How much of that is free now."""
    of_containers = (limit - used for limit, used in _container_sizes())
    of_process = (limit - resident_bytes() for limit in _process_limits())
    return max(min([_machine_free(), *of_containers, *of_process]), 0)


def resident_bytes() -> int:
    """What this process holds in memory."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # no Linux
        return _of_windows_process()[1] if sys.platform == "win32" else peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    if sys.platform == "win32":
        return _of_windows_process()[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB


def _machine_bytes() -> int:
    if sys.platform == "win32":
        return _of_windows_machine()[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _machine_free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return _of_windows_machine()[1] if sys.platform == "win32" else _machine_bytes()


def _container_sizes() -> list[tuple[int, int]]:
    """Of the control groups around this process, version 2 or 1, that set one: the limit, and what all in it hold."""
    sizes = []
    for folder in _control_groups():
        for limit, used in _SIZES:
            try:
                limit_size = int((folder / limit).read_text(encoding="ascii"))
            except (OSError, ValueError):  # not there, or "max"
                continue
            sizes.append((limit_size, _used_bytes(folder, used)))
    return sizes


def _used_bytes(folder: Path, name: str) -> int:
    try:
        used = int((folder / name).read_text(encoding="ascii"))
        stat = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return resident_bytes()
    idle = max((int(line.split()[1]) for line in stat if line.startswith(_IDLE)), default=0)
    return max(used - idle, 0)


def _control_groups() -> list[Path]:
    """The folders of the groups that this process is in, and of those around them."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = {_CGROUP, _CGROUP / "memory"}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            own = (_CGROUP / controllers if controllers else _CGROUP) / path.strip("/")
            folders |= {own, *(above for above in own.parents if above.is_relative_to(_CGROUP))}
    return sorted(folders)


def _process_limits() -> list[int]:
    softs = (resource.getrlimit(kind)[0] for kind in _KINDS)
    return [soft for soft in softs if soft != resource.RLIM_INFINITY]


# Windows fills it into structures of its own, here as words of 64 bits: the first begins with the structure's size.

_WORD_BYTES = 8


def _of_windows_machine() -> tuple[int, int]:
    """Memory that is installed, and that is free (MEMORYSTATUSEX)."""
    import ctypes  # noqa: PLC0415 (on Windows alone)

    status = (ctypes.c_uint64 * 8)(8 * _WORD_BYTES)
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return status[1], status[2]


def _of_windows_process() -> tuple[int, int]:
    """The most memory that this process held, and what it holds (PROCESS_MEMORY_COUNTERS)."""
    import ctypes  # noqa: PLC0415 (likewise)

    counters, this_process = (ctypes.c_uint64 * 9)(9 * _WORD_BYTES), ctypes.c_void_p(-1)
    ask = ctypes.windll.kernel32.K32GetProcessMemoryInfo  # type: ignore[attr-defined]
    ask(this_process, ctypes.byref(counters), 9 * _WORD_BYTES)
    return counters[1], counters[2]
