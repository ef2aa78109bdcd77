"""Under which name a converted trace is kept: one for the same content, read the same way by the same program."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp.cache.notes import Notes
from xsp.cache.program import program
from xsp.cache.stamp import Stamp, stamp_of, stamps_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp.reading import Reading

__all__ = ["Digests", "Seen", "key", "look"]

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
