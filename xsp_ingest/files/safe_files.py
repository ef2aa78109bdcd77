"""What no reader has to look at (special files, links that leave a folder, bombs), and digests of what is read."""

from __future__ import annotations

import hashlib
import stat
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Self

from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

__all__ = [
    "MAX_CONTENT_BYTES",
    "MAX_RATIO",
    "Digests",
    "check",
    "check_unchanged",
    "files_of",
    "inside",
    "leaves",
    "limit_content",
    "sha256",
    "size_of",
]


# What no reader has to look at: special files, links that leave a folder, databases in use, decompression bombs.


MAX_CONTENT_BYTES = 1 << 36
"""No compressed file's content may be longer: 64 GiB."""
MAX_RATIO = 400
"""Nor, once it is longer than 1 GiB, so many times longer than the file; traces compress 10 to 60 times."""
_SQLITE = b"SQLite format 3\0"
_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check(path: Path) -> None:
    """XspError where the path, links followed, is no ordinary file that is at rest.

    A link that the user names is followed: it is his. A folder's own links are another matter, see `inside`.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        what = "a link that leads nowhere" if path.is_symlink() else "there is no such file"
        raise XspError(what, path=path) from error
    except OSError as error:
        raise XspError(f"the file cannot be read ({error.strerror})", path=path) from error
    for is_one, description in _SPECIAL:
        if is_one(mode):
            raise XspError(
                f"{description}, not a file", path=path, advice="Write its content into a file and give that"
            )
    if stat.S_ISREG(mode):
        _check_at_rest(path)


def _has_content(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:  # a name too long for any file among them
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _check_at_rest(path: Path) -> None:
    """XspError where another program is writing the SQLite database, or was stopped while it did."""
    beside = [path.with_name(path.name + suffix) for suffix in ("-journal", "-wal")]
    busy = next(filter(_has_content, beside), None)
    if busy is None:
        return
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return
    raise XspError(
        f"the SQLite database is being written, or its writer was interrupted ({busy.name} lies beside it)",
        path=path,
        advice="Wait for the program that writes it to end, or export again",
    )


def inside(folder: Path) -> tuple[list[Path], int]:
    """The ordinary files and folders in the folder by name, and how many others it has.

    Others are special files, and links that lead out of the folder or nowhere: a folder that somebody else packed
    must not choose which of the user's files are read.
    """
    everything = sorted(folder.iterdir())
    kept = [path for path in everything if not leaves(path, folder)]
    return kept, len(everything) - len(kept)


def leaves(path: Path, folder: Path) -> bool:
    """Whether what lies in the folder leads out of it or nowhere, or is no ordinary file or folder."""
    try:
        mode = path.stat().st_mode
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            return True
    except (OSError, RuntimeError):  # links in a circle
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def limit_content(blocks: Iterator[bytes], packed_bytes: int, path: Path) -> Iterator[bytes]:
    """The blocks of a decompressed file of `packed_bytes`; XspError once they are more than any trace has."""
    max_bytes = min(MAX_CONTENT_BYTES, max(limits().unpacked_ratio_min_bytes, MAX_RATIO * packed_bytes))
    return _limit_blocks(blocks, max_bytes, packed_bytes, path)


def _limit_blocks(blocks: Iterator[bytes], max_bytes: int, packed_bytes: int, path: Path) -> Iterator[bytes]:
    total = 0
    for block in blocks:
        total += len(block)
        if total > max_bytes:
            raise XspError(
                f"the file decompresses to more than {(total - 1) >> 30} GiB, {total // max(packed_bytes, 1)} times "
                "its size, which no trace does",
                path=path,
                advice="Decompress it yourself where you trust it",
            )
        yield block


# Digests of source files, worked out in a thread of their own while the files are read.

_READ_BYTES = 1 << 20


class Digests:
    """Works them out while it is entered; on leaving it early none is finished."""

    def __init__(self) -> None:
        self._left = Event()
        self._thread = ThreadPoolExecutor(1, "digest")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.shutdown(cancel_futures=True)

    def of(self, path: Path) -> Future[str]:
        """The digest to come; see `sha256`."""
        return self._thread.submit(sha256, path, self._left)


def sha256(path: Path, left: Event | None = None) -> str:
    """The digest of a file, or of a folder's files with their names."""
    digest = hashlib.sha256()
    for file in files_of(path):
        if file != path:
            digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
        with file.open("rb") as content:
            while chunk := content.read(_READ_BYTES):
                if left is not None and left.is_set():
                    raise CancelledError
                digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def check_unchanged(paths: Sequence[Path]) -> Iterator[None]:
    """XspError at the end of `with` where one of the files was written to meanwhile: rows and digest may not agree."""
    before = {path: _stamps(path) for path in paths}
    yield
    for path, stamps in before.items():
        if _stamps(path) != stamps:
            raise XspError("it changed while it was read", path=path, advice="Read it again once it is written")


def _stamps(path: Path) -> list[tuple[int, int, int]]:
    statuses = [file.stat() for file in files_of(path)]
    return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]


def size_of(path: Path) -> int:
    """Bytes of the file, or of the files of a folder."""
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> Sequence[Path]:
    """The file, or the files of a folder."""
    return [file for file in inside(path)[0] if file.is_file()] if path.is_dir() else [path]
