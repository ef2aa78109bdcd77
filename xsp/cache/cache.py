"""What was converted once is not converted again: the trace of the same inputs, read the same way, is kept."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp.cache.key import Seen
    from xsp.reading import Reading
    from xsp_model import Trace

__all__ = ["LIMIT_VARIABLE", "WORTH_BYTES", "Cache", "load_or_convert", "read_bundle"]

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
    from xsp.cache.store import Checked  # noqa: PLC0415 (--help must not wait for them)
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
