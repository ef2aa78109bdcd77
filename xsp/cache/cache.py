"""What was converted once is not converted again: the trace of the same inputs, read the same way, is kept."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_model.limits import limits
from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp.cache.key import Notes, Seen, Stamp
    from xsp.reading import Reading
    from xsp_model import Trace

__all__ = ["LIMIT_VARIABLE", "WORTH_BYTES", "Cache", "Checked", "load_or_convert", "read_bundle"]

WORTH_BYTES = 1 << 20
"""Smaller inputs are converted in under a second, of which keeping them would save half and cost a tenth."""
LIMIT_VARIABLE = "XSP_CACHE_SIZE"
_LIMIT_BYTES = 10 << 30
_SIZE = re.compile(r"(\d{1,12})\s*([KMGT]?)B?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cache:
    """Where traces are kept (None: the user's own folder for such things), and from which size of inputs on."""

    folder: Path | None = None
    worth_bytes: int = WORTH_BYTES


def load_or_convert(
    paths: Sequence[Path],
    reading: Reading,
    cache: Cache | None,
    progress: Callable[[str], None],
    convert: Callable[[], Trace],
) -> Trace:
    """The trace that was kept of these inputs; else the one that `convert` makes, which is then kept."""
    folder = _folder(cache) if cache else None
    limit_bytes = _limit_bytes() if cache else 0
    if cache is None or folder is None or not limit_bytes:
        return convert()
    from xsp.cache.key import Digests, key, look  # noqa: PLC0415 (--help must not wait for them)
    from xsp.cache.store import Store  # noqa: PLC0415
    from xsp_ingest.files.safe_files import check  # noqa: PLC0415

    for path in paths:
        check(path)  # as conversion does: nothing kept may hide that a file is being written
    seen = look(paths)
    if seen is None or seen.bytes < cache.worth_bytes:
        return convert()
    store, digests = Store(folder / "traces", limit_bytes), Digests(folder / "digests")
    name = _quietly(lambda: key(seen, reading, digests))
    kept = store.get(name, progress) if name else None
    if kept is not None:
        return kept
    trace = convert()
    if name and _is_still(seen, name, lambda now: key(now, reading, digests)):
        progress("keeping the converted trace")
        store.put(name, trace, seen.bytes)
    return trace


def read_bundle(path: Path, cache: Cache | None) -> Trace:
    """The bundle's trace. Where traces are kept, it is remembered which large tables of it were checked."""
    from xsp_model import bundle  # noqa: PLC0415

    folder = _folder(cache) if cache and _limit_bytes() else None
    return bundle.read(path, sound=Checked(folder / "checked", path) if folder is not None else None)


def _is_still(seen: Seen, name: str, again: Callable[[Seen], str | None]) -> bool:
    """Whether the inputs are what they were before they were read."""
    from xsp.cache.key import look  # noqa: PLC0415

    now = look(seen.paths)
    if now is None or not seen.same_as(now):
        return False
    return seen.is_settled() or _quietly(lambda: again(now)) == name  # a write just then might not show in stamps


def _quietly(of: Callable[[], str | None]) -> str | None:
    try:
        return of()
    except OSError:  # conversion meets it as well, and says it
        return None


def _folder(cache: Cache) -> Path | None:
    if cache.folder is not None:
        return cache.folder
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "xsp"
    except RuntimeError:  # nobody's home
        return None


def _limit_bytes() -> int:
    size = os.environ.get(LIMIT_VARIABLE)
    if not size:
        return _LIMIT_BYTES
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        from xsp_model import XspError  # noqa: PLC0415

        raise XspError(f"${LIMIT_VARIABLE} is {size!r}, which is no size", advice="Give one such as 20GB; 0: keep none")
    return int(match[1]) * int(1000 ** " KMGT".index(match[2].upper() or " "))


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
