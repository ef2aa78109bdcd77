"""Under which name a converted trace is kept: one for the same content, read the same way by the same program."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_model.output_files import is_own, make_private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp.reading import Reading

__all__ = ["Digests", "Notes", "Seen", "Stamp", "key", "look", "program", "stamp_of", "stamps_in", "version_of"]

# What besides inputs and options decides what a conversion gives: this program, its libraries, and NVIDIA's tools.

_PACKAGES = ("xsp_model", "xsp_ingest", "xsp_analyze", "xsp")
_LIBRARIES = ("xsp", "polars", "pyarrow", "numpy", "msgspec", "protobuf", "cxxfilt", "adbc-driver-sqlite")
_ENTRY_POINTS = "xsp.ingesters"  # as xsp_ingest.registry, without its imports; a test holds them equal
_SOURCES = (".py", ".toml")
_TOOLS = (("XSP_NSYS", "nsys"), ("XSP_NCU", "ncu"))  # they open .nsys-rep and .ncu-rep files


def program(nsys: str | None = None) -> list[str]:
    """One line a thing; another line means that a trace must be converted again.

    The source files count by size and time, not by the version alone, which stays the same in a checkout that somebody
    works in. `nsys`: the one that the user named.
    """
    others = sorted(entry_points(group=_ENTRY_POINTS), key=lambda each: (each.name, each.value))
    packages = (*_PACKAGES, *(re.split(r"[.:\s\[]", each.value.strip())[0] for each in others))
    return [
        f"python {sys.version}",
        *(f"{name} {version_of(name)}" for name in _LIBRARIES),
        *(f"{each.name} {each.value} {each.dist.version if each.dist else ''}" for each in others),
        *(f"{name} {_sources(name)}" for name in packages),
        *(f"{name} {_tool(nsys if name == 'nsys' else None, variable, name)}" for variable, name in _TOOLS),
    ]


def version_of(name: str) -> str:
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _sources(package: str) -> str:
    spec = find_spec(package)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    files = [spec.origin] if spec and spec.origin and spec.has_location and not roots else []
    for root in roots:
        for at, _, names in os.walk(root):
            files += [os.path.join(at, name) for name in names if name.endswith(_SOURCES)]  # noqa: PTH118 (many files)
    digest = hashlib.sha256()
    for file in sorted(files):
        status = os.stat(file)  # noqa: PTH116
        digest.update(f"{file}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _tool(named: str | None, variable: str, name: str) -> str:
    path = shutil.which(named or os.environ.get(variable) or name)
    if path is None:
        return "none"
    real = Path(path).resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"


# What the file system says of a file, by which a later command knows that it has not been touched.

_MAX_FILES = 20_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a file is stored, and its times.

    Any write, also one that sets the time of modification back, moves `changed_ns`, which programs cannot set. Only a
    write within the same tick of the file system's clock could leave a stamp as it was: see `is_settled`.
    """

    device: int
    inode: int
    bytes: int
    modified_ns: int
    changed_ns: int

    def is_settled(self, now_ns: int | None = None) -> bool:
        """Whether a write from now on would show: the last one was not just now (or, by its clock, is yet to come)."""
        from xsp_model.limits import limits  # noqa: PLC0415 (--help must not wait for the model)

        at_rest_ns = max(self.modified_ns, self.changed_ns) + limits().settled_after_ns
        return at_rest_ns < (time.time_ns() if now_ns is None else now_ns)

    def numbers(self) -> list[int]:
        """The numbers as JSON has them."""
        return list(astuple(self))


def stamp_of(path: Path) -> Stamp:
    """The stamp of the file, links followed. Opened first, as network file systems then ask their server."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamps_in(folder: Path) -> list[tuple[str, Stamp]] | None:
    """Every file in the folder at any depth with its stamp, by its path; None where there are too many to look at.

    What is no ordinary file counts by its own stamp: it is never opened, as a pipe would wait for its writer.
    """
    stamps: list[tuple[str, Stamp]] = []
    for at, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]  # noqa: PTH114, PTH118 (many files)
        for name in (*files, *links):
            path = os.path.join(at, name)  # noqa: PTH118
            own, followed = os.lstat(path), _stat_or_none(path)
            stamps += [
                (os.path.relpath(path, folder), _of(own)),
                (os.path.relpath(path, folder), _of(followed or own)),
            ]
        if len(stamps) > _MAX_FILES:
            return None
    return sorted(stamps, key=lambda each: each[0])


def _stat_or_none(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except OSError:
        return None


def _of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# What was found out about files, kept in a folder: a small note a path, which nobody else can have written.

_MAX_NOTES = 2_000


class Notes:
    """The notes in one folder; the oldest are deleted once there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, path: Path) -> dict[str, object]:
        """What is noted of the path; empty: nothing, or nothing that can be read or relied upon."""
        note = self._note(path)
        with suppress(OSError, ValueError, RecursionError):
            if is_own(self._folder) and is_own(note):
                document = json.loads(note.read_text(encoding="utf-8"))
                return document if isinstance(document, dict) else {}
        return {}

    def write(self, path: Path, document: dict[str, object]) -> None:
        """Notes this of the path, where that can be done."""
        with suppress(OSError):
            if not make_private(self._folder):
                return
            with tempfile.NamedTemporaryFile("w", dir=self._folder, prefix=".", delete=False) as file:
                json.dump(document, file)
            Path(file.name).replace(self._note(path))
            notes = sorted(self._folder.glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
            for old in notes[:-_MAX_NOTES]:
                old.unlink(missing_ok=True)

    def _note(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()}.json"


_READ_BYTES = 1 << 20
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The inputs as they were at a moment: each one's path, and its own stamp or those of the files in it."""

    paths: tuple[Path, ...]
    stamps: tuple[tuple[tuple[str, Stamp], ...], ...]
    at_ns: int

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(one.bytes for each in self.stamps for one in dict(each).values())

    def is_settled(self) -> bool:
        """Whether a write after the look would show in a second look."""
        return all(one.is_settled(self.at_ns) for each in self.stamps for _, one in each)

    def same_as(self, other: Seen | None) -> bool:
        """Whether nothing was written between the two looks, so far as stamps tell."""
        return other is not None and self.stamps == other.stamps


def look(paths: Sequence[Path]) -> Seen | None:
    """The inputs as they are now; None where they cannot be looked at, or are too many."""
    now, stamps = time.time_ns(), []
    try:
        for path in paths:
            files = stamps_in(path) if path.is_dir() else [("", stamp_of(path))]
            if files is None:
                return None
            stamps.append(tuple(files))
    except OSError:
        return None
    return Seen(tuple(paths), tuple(stamps), now)


def key(seen: Seen, reading: Reading, digests: Digests) -> str | None:
    """The name for what reading these inputs gives.

    A file counts by its name and the SHA-256 of its content, wherever it lies. A folder counts by its path and the
    stamps of all files in it, so that nothing is hashed that no format reads; None while one of them is so new that a
    later write might not show.
    """
    above = list(dict.fromkeys(path.absolute().parent for path in seen.paths))  # files are told apart by their folders
    parts: list[object] = []
    for path, stamps in zip(seen.paths, seen.stamps, strict=True):
        if path.is_dir():
            if not seen.is_settled():
                return None
            parts.append([str(path), str(path.absolute()), [(name, one.numbers()) for name, one in stamps]])
        else:
            digest = digests.of(path, stamps[0][1], seen.at_ns)
            parts.append([path.name, above.index(path.absolute().parent), digest])
    made_of = [_FORMAT, parts, reading.digest(), program(reading.nsys)]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()


class Digests:
    """SHA-256 of files, remembered by their stamps in a folder: a second look at 10 GB takes no time.

    A digest is remembered only of a file that had rested for two seconds when it was read: whatever is written later
    moves its stamp.
    """

    def __init__(self, folder: Path) -> None:
        self._notes = Notes(folder)

    def of(self, path: Path, stamp: Stamp, at_ns: int) -> str:
        """The digest of the file, whose stamp was this at that time; OSError where it cannot be read."""
        remembered = self._notes.of(path)
        noted = remembered.get("sha256")
        if remembered.get("stamp") == stamp.numbers() and isinstance(noted, str):
            return noted
        digest = sha256(path)
        if stamp.is_settled(at_ns) and stamp_of(path) == stamp:
            self._notes.write(path, {"stamp": stamp.numbers(), "sha256": digest})
        return digest


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
