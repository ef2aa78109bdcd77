"""What the file system says of a file, by which a later command knows that it has not been touched."""

from __future__ import annotations

import os
import time
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Stamp", "stamp_of", "stamps_in"]

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
        """As JSON has it."""
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
            own, followed = os.lstat(path), _followed(path)
            stamps += [
                (os.path.relpath(path, folder), _of(own)),
                (os.path.relpath(path, folder), _of(followed or own)),
            ]
        if len(stamps) > _MAX_FILES:
            return None
    return sorted(stamps, key=lambda each: each[0])


def _followed(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except OSError:
        return None


def _of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
