"""A trace file's content in bounded pieces, decompressed beside the scan where it is gzip."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Protocol

from xsp_ingest.files.content import check_held
from xsp_ingest.files.gzip_members import MAGIC, inflated
from xsp_ingest.files.safe_files import bounded
from xsp_ingest.formats.torch_profiler import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Source", "content_bytes", "open_source", "read_all"]

_BLOCK_BYTES = 1 << 22
_MIN_GAIN, _MAX_GAIN = 4, 100  # traces compress about 14 times
_TRAILER_BYTES = 4


class Source(Protocol):
    """Something to read a file's content from."""

    expected_bytes: int  # of content; an estimate

    def fill(self, target: memoryview) -> int:
        """Writes the next bytes to the target, and says how many: 0 at the end only."""


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The file's content; XspError while reading where the gzip stream is cut off or damaged."""
    with path.open("rb") as file:
        size, is_gzip = _measure(file)
        if not is_gzip:
            yield _Plain(file, size)
            return
        with ThreadPoolExecutor(1, "decompress") as pool:
            yield _Gzip(bounded(_inflated(file, path), path.stat().st_size, path), pool, size)


def content_bytes(path: Path) -> int:
    """How long the content is, decompressed; an estimate where the file is gzip."""
    with path.open("rb") as file:
        return _measure(file)[0]


def read_all(path: Path) -> bytes:
    """The whole content; XspError where the gzip stream is cut off or damaged, or the content too long for that."""
    with path.open("rb") as file:
        is_gzip = _measure(file)[1]
        blocks = _inflated(file, path) if is_gzip else iter(lambda: file.read(_BLOCK_BYTES), b"")
        content = bytearray()
        for block in blocks:
            content += block
            check_held(path, len(content))
    return bytes(content)


def _measure(file: BinaryIO) -> tuple[int, bool]:
    """The content's length, and whether it is gzip: that ends in its length, modulo 4 GiB, of its last member.

    Where the end is missing any bytes stand there: what they say is not taken for more than gzip makes of a trace,
    or else a small file that was cut off has the scanner compiled first, which takes so long that it seems to hang.
    """
    is_gzip = file.read(len(MAGIC)) == MAGIC
    size = file.seek(0, 2)
    if is_gzip and size > _TRAILER_BYTES:
        file.seek(-_TRAILER_BYTES, 2)
        recorded = int.from_bytes(file.read(_TRAILER_BYTES), "little")
        size = min(max(recorded, size * _MIN_GAIN), size * _MAX_GAIN)
    file.seek(0)
    return size, is_gzip


class _Plain:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.expected_bytes = size

    def fill(self, target: memoryview) -> int:
        return self._file.readinto(target)  # type: ignore[attr-defined, no-any-return]


class _Gzip:
    """Decompresses one block ahead, in a thread of its own."""

    def __init__(self, blocks: Iterator[bytes], pool: ThreadPoolExecutor, expected_bytes: int) -> None:
        self.expected_bytes = expected_bytes
        self._blocks = blocks
        self._pool = pool
        self._block = memoryview(b"")
        self._next = pool.submit(next, blocks, b"")

    def fill(self, target: memoryview) -> int:
        if not self._block:
            self._block = memoryview(self._next.result())
            if not self._block:
                return 0
            self._next = self._pool.submit(next, self._blocks, b"")
        taken = min(len(target), len(self._block))
        target[:taken] = self._block[:taken]
        self._block = self._block[taken:]
        return taken


def _inflated(file: BinaryIO, path: Path) -> Iterator[bytes]:
    return inflated(file, _BLOCK_BYTES, lambda _: refusal.truncated(path))
