"""Digests of source files, worked out in a thread of their own while the files are read."""

from __future__ import annotations

import hashlib
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Self

from xsp_ingest.files.safe_files import inside
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

__all__ = ["Digests", "check_unchanged", "files_of", "sha256"]

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


def files_of(path: Path) -> Sequence[Path]:
    """The file, or the files of a folder."""
    return [file for file in inside(path)[0] if file.is_file()] if path.is_dir() else [path]
