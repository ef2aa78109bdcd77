"""The folder of kept traces, bundles by their keys, and which tables of bundles have been checked."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from xsp_model import XspError, bundle
from xsp_model.limits import limits
from xsp_model.output_files import is_own, make_private
from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from xsp.cache.key import Notes, Stamp
    from xsp_model import Trace

__all__ = ["Checked", "Store"]

with suppress(ImportError):  # Windows could not tell whether another process reads an entry: nothing is kept there
    import fcntl
_SUFFIX = ".xsp"
_ABANDONED_S = 86_400  # what a killed process left unfinished
_SPARE_BYTES = 1 << 29
_CAN_LOCK = "fcntl" in globals()
_in_use: list[BinaryIO] = []  # manifests of entries that this process reads, locked until it ends


class Store:
    """Bundles in one folder, the least recently used of them deleted once all take more than `limit_bytes`.

    Nothing here raises where the disk is full, the folder cannot be written to or an entry is damaged: what cannot be
    kept or found is converted again.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def get(self, key: str, progress: Callable[[str], None] = lambda _: None) -> Trace | None:
        """The trace that is kept under the key; it stays on disk while this process lives.

        None too of an entry that is damaged, or that another user may have written.
        """
        entry = self._folder / f"{key}{_SUFFIX}"
        if not self._is_own(entry):
            return None
        held = _lock_entry(entry, shared=True)
        if held is None:
            return None
        try:
            trace = bundle.read(entry, is_own=True)
        except (XspError, OSError):
            held.close()
            progress("the kept trace is damaged: it is converted again")
            self._delete(entry)
            return None
        _in_use.append(held)
        with suppress(OSError):
            os.utime(entry / bundle.MANIFEST)
        return trace

    def put(self, key: str, trace: Trace, input_bytes: int) -> None:
        """Keeps the trace, unless there is no room for it."""
        entry = self._folder / f"{key}{_SUFFIX}"
        unique = self._folder / f".{key}.{os.getpid()}"
        if not _CAN_LOCK or entry.exists():
            return
        try:
            if not make_private(self._folder):
                return
            if shutil.disk_usage(self._folder).free < 2 * input_bytes + _SPARE_BYTES:
                return
            bundle.write(trace, unique)
            if _bytes_in(unique) <= self._limit_bytes:
                unique.chmod(0o700)
                unique.rename(entry)  # fails where another process was quicker
        except (OSError, XspError):
            pass
        finally:
            shutil.rmtree(unique, ignore_errors=True)
        self._tidy(entry)

    def _is_own(self, entry: Path) -> bool:
        try:
            return is_own(self._folder) and is_own(entry) and all(is_own(file) for file in entry.iterdir())
        except OSError:
            return False

    def _tidy(self, newest: Path) -> None:
        """Deletes what was used longest ago until the rest fits, and what others left unfinished."""
        with suppress(OSError):
            for left in self._folder.glob(".*"):
                if left.stat().st_mtime + _ABANDONED_S < time.time():
                    shutil.rmtree(left, ignore_errors=True)
            used = {each: _last_used(each) for each in self._folder.glob(f"*{_SUFFIX}")}
            sizes = {each: _bytes_in(each) for each in used}
            total = sum(sizes.values())
            for entry in sorted(used, key=lambda each: used[each]):
                if total <= self._limit_bytes:
                    return
                if entry != newest and self._delete(entry):
                    total -= sizes[entry]

    def _delete(self, entry: Path) -> bool:
        """Whether the entry could be deleted; not while another process reads it."""
        held = _lock_entry(entry, shared=False)
        if held is None:
            return False
        with held, suppress(OSError):
            gone = entry.with_name(f".{entry.name}.{os.getpid()}.gone")
            entry.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False


def _lock_entry(entry: Path, *, shared: bool) -> BinaryIO | None:
    """The entry's manifest, opened and locked; None where there is none, or others hold it otherwise."""
    if not _CAN_LOCK:
        return None
    manifest = entry / bundle.MANIFEST
    try:
        file = manifest.open("rb" if shared else "r+b")  # network file systems want it writable to lock it alone
    except OSError:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), manifest.stat()):  # else it was deleted in between
            return file
    except OSError:
        pass
    file.close()
    return None


def _last_used(entry: Path) -> float:
    with suppress(OSError):
        return (entry / bundle.MANIFEST).stat().st_mtime
    return 0.0


def _bytes_in(entry: Path) -> int:
    total = 0
    for file in entry.iterdir():
        with suppress(OSError):
            total += file.stat().st_size
    return total


# Tables of bundles whose rows were held against the model's rules, where nobody has written to the bundle since.

_MAX_TABLES = 200  # columns of one that were asked for at once among them


class Checked:
    """The tables of one bundle, remembered by the stamps of its files: to look at all rows takes a while."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self._folder = folder
        self._bundle = bundle
        self._began_ns = time.time_ns()

    def __contains__(self, what: object) -> bool:
        """Whether this table, or these columns of one, are as they were when this version checked them."""
        return self._is_worth_it(str(what)) and what in self._tables

    def add(self, what: str) -> None:
        """Remembers that it is sound, unless the bundle was written to just before it was opened, or since."""
        if not self._is_worth_it(what) or self._stamps is None or self._stamps != self._stamps_now():
            return
        if all(stamp.is_settled(self._began_ns) for _, stamp in self._stamps):
            self._tables.append(what)
            self._notes.write(self._bundle, {**self._of_the_bundle, "tables": self._tables[-_MAX_TABLES:]})

    def _is_worth_it(self, what: str) -> bool:
        table, min_bytes = what.partition(":")[0], limits().checked_table_min_bytes
        try:
            return table in TABLES and (self._bundle / f"{table}.parquet").stat().st_size >= min_bytes
        except OSError:
            return False

    @cached_property
    def _notes(self) -> Notes:
        from xsp.cache.key import Notes  # noqa: PLC0415 (small bundles need none)

        return Notes(self._folder)

    @cached_property
    def _tables(self) -> list[str]:
        noted = self._notes.of(self._bundle)
        tables = noted.pop("tables", None)
        return tables if noted == self._of_the_bundle and isinstance(tables, list) else []

    @cached_property
    def _of_the_bundle(self) -> dict[str, object]:
        from xsp.cache.key import version_of  # noqa: PLC0415 (small bundles need none)

        stamps = [[name, stamp.numbers()] for name, stamp in self._stamps or ()]
        return {"version": version_of("xsp"), "schema": SCHEMA_VERSION, "stamps": stamps}

    @cached_property
    def _stamps(self) -> list[tuple[str, Stamp]] | None:
        return self._stamps_now()

    def _stamps_now(self) -> list[tuple[str, Stamp]] | None:
        from xsp.cache.key import stamps_in  # noqa: PLC0415 (small bundles need none)

        try:
            return stamps_in(self._bundle)
        except OSError:
            return None
