"""What was converted or answered once is not again: the trace of the same inputs, read the same way, is kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp.cache.key import Notes, Seen
    from xsp.reading import Reading
    from xsp_model import Trace

__all__ = ["LIMIT_VARIABLE", "WORTH_BYTES", "Cache", "KeptAnswer", "kept_answer", "load_or_convert", "read_bundle"]

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


# What a command printed, kept for the next time that it is called so: read before anything is imported to answer.

_ANSWERED = ("analyze", "findings", "info", "top", "what-if")
_NOT_KEPT = re.compile(r"--no-cache|-h|--help.*|-o.*|--output(=.*)?|run\.json|.*/run\.json")
_DECIDES_LOOK = re.compile(r"XSP_|_?TYPER_|LC_|LANG|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|TTY_|PYTHON|POLARS_|TZ$")
_FOLDER = "--cache-dir"
_BESIDE = re.compile(r"capture|-(wal|journal)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Where the answer to a command line is kept, over its inputs as they are now."""

    notes: Notes
    name: str
    arguments: Sequence[str]

    def read(self) -> bytes | None:
        """What the command printed when all was as it is now; null where that is not kept."""
        text = self.notes.of(Path("/", self.name)).get("stdout")
        return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else None

    def write(self, answer: bytes) -> None:
        """Keeps what it printed, unless an input has changed since."""
        now = kept_answer(self.arguments)
        if now is not None and now.name == self.name:
            self.notes.write(Path("/", self.name), {"stdout": answer.decode("utf-8", "surrogateescape")})


def kept_answer(arguments: Sequence[str]) -> KeptAnswer | None:
    """Where this command's answer is kept; null where none is, as it writes files or its inputs cannot be told.

    Each argument that names a file or a folder counts by its stamps, whatever it is there for: of what was not just
    written, they tell of every later write.
    """
    if not arguments or arguments[0] not in _ANSWERED or any(map(_NOT_KEPT.fullmatch, arguments)):
        return None
    named = [value for key, value in pairwise(arguments) if key == _FOLDER]
    named += [each.removeprefix(f"{_FOLDER}=") for each in arguments if each.startswith(f"{_FOLDER}=")]
    folder = _folder(Cache(Path(named[-1]) if named else None))
    if folder is None or not _limit_bytes():
        return None
    from xsp.cache.key import Notes, look, program  # noqa: PLC0415 (--help must not wait for them)

    try:
        values = [Path(each.partition("=")[2] if each.startswith("--") else each) for each in arguments[1:]]
        paths = [path for path in values if path.name and path.exists() and str(path) not in named]
        seen = look(paths) if paths and all(path.is_file() or path.is_dir() for path in paths) else None
        if seen is None or not seen.is_settled():
            return None
        stamps = [(name, one.numbers()) for each in seen.stamps for name, one in each]
        beside = [_matter_beside(path) for path in paths if path.is_file()]
        made_of = [list(arguments), stamps, beside, str(Path.cwd()), _look_of_answers(), program()]
    except (OSError, ValueError):
        return None
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
    return KeptAnswer(Notes(folder / "answers"), name, arguments)


def _matter_beside(path: Path) -> list[tuple[str, int]]:
    """What beside an input shows in answers, with its size: a capture of graphs, or that a database is in use."""
    folders = {path.parent, path.resolve().parent}
    ones = [one for folder in folders for one in os.scandir(folder) if _BESIDE.search(one.name)]
    return sorted((one.path, one.stat().st_size) for one in ones)


def _look_of_answers() -> list[object]:
    """What decides how answers look, besides arguments."""
    environment = sorted(each for each in os.environ.items() if _DECIDES_LOOK.match(each[0]))
    return [sys.stdout.isatty(), sys.stdout.encoding, tuple(shutil.get_terminal_size()), environment]
