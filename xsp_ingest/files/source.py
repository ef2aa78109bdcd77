"""What a file's content is read from, plain or gzip: that is decompressed one block ahead, in a thread of its own."""

from __future__ import annotations

import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from xsp_ingest.files.safe_files import limit_content
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from xsp_model import XspError

__all__ = ["MAGIC", "Source", "content_bytes", "inflate_blocks", "inflated_head", "open_source"]


# The content of gzip files, of all their members, by the faster library where it is installed.


MAGIC = b"\x1f\x8b"
_WINDOW_BITS = 16 + zlib.MAX_WBITS


def inflate_blocks(file: BinaryIO, block_bytes: int, damaged: Callable[[str], XspError]) -> Iterator[bytes]:
    """The content in blocks of about so many bytes, none of them empty; `damaged` is what to raise, by reason."""
    try:
        has_end = yield from _blocks(file, block_bytes)
    except _errors() as error:
        raise damaged("its compressed stream is damaged") from error
    if not has_end:
        raise damaged("its compressed stream ends early")


def inflated_head(head: bytes, max_bytes: int, damaged: Callable[[str], XspError]) -> bytes:
    """So many bytes of the content at most, of as many members as it takes, from the first bytes of a file.

    `damaged` is what to raise where nothing comes of them.
    """
    content = bytearray()
    try:
        for block in _blocks(io.BytesIO(head), max_bytes):
            content += block
            if len(content) >= max_bytes:
                break
    except _errors() as error:
        if not content:
            raise damaged("its compressed stream is damaged") from error
    return bytes(content[:max_bytes])


def _blocks(file: BinaryIO, block_bytes: int) -> Generator[bytes, None, bool]:
    """The content as far as it goes, and whether the last member has an end."""
    inflate = _decompressor()
    while raw := file.read(limits().gzip_read_bytes):
        while raw := raw.lstrip(b"\0") if inflate.eof else raw:  # zero bytes may stand behind a member
            if inflate.eof:
                inflate = _decompressor()
            if block := inflate.decompress(raw, block_bytes):
                yield block
            raw = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if block := inflate.flush():
        yield block
    return bool(inflate.eof)


def _decompressor() -> Any:  # noqa: ANN401 (two libraries, one interface)
    isal = _isal()
    return zlib.decompressobj(_WINDOW_BITS) if isal is None else isal.decompressobj(_WINDOW_BITS)


def _errors() -> tuple[type[Exception], ...]:
    isal = _isal()
    return (zlib.error,) if isal is None else (zlib.error, isal.error)


def _isal() -> Any:  # noqa: ANN401
    """Intel's library, three times as fast, where it is installed."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return None


_MIN_GAIN, _MAX_GAIN = 4, 100  # traces compress about 14 times
_TRAILER_BYTES = 4


class Source(Protocol):
    """Content to be taken either by blocks or into memory that is at hand, both from the start and once."""

    expected_bytes: int  # of content; an estimate

    def block(self) -> bytes:
        """The next bytes, at most `content_block_bytes`: none at the end only."""

    def fill(self, target: memoryview) -> int:
        """Writes the next bytes, at most a block, to the target, and says how many: 0 at the end only."""


@contextmanager
def open_source(path: Path, damaged: Callable[[Path, str], XspError]) -> Iterator[Source]:
    """The file's content; reading it raises what `damaged` makes of the reason where gzip is cut off or damaged.

    XspError while reading, too, where the file decompresses to more than any trace does.
    """
    with path.open("rb") as file:
        size, is_gzip = _measure(file)
        if not is_gzip:
            yield _Plain(file, size)
            return
        blocks = inflate_blocks(file, limits().content_block_bytes, partial(damaged, path))
        with ThreadPoolExecutor(1, "decompress") as pool:
            yield _Gzip(limit_content(blocks, path.stat().st_size, path), pool, size)


def content_bytes(path: Path) -> int:
    """How long the content is, decompressed; an estimate where the file is gzip."""
    with path.open("rb") as file:
        return _measure(file)[0]


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
        self._block_bytes = limits().content_block_bytes
        self.expected_bytes = size

    def block(self) -> bytes:
        return self._file.read(self._block_bytes)

    def fill(self, target: memoryview) -> int:
        return self._file.readinto(target[: self._block_bytes])  # type: ignore[attr-defined, no-any-return]


class _Gzip:
    """Decompresses one block ahead."""

    def __init__(self, blocks: Iterator[bytes], pool: ThreadPoolExecutor, expected_bytes: int) -> None:
        self.expected_bytes = expected_bytes
        self._blocks = blocks
        self._rest = memoryview(b"")  # of the block that is being taken
        self._pool = pool
        self._context = copy_context()  # so that the thread has the caller's limits
        self._next = self._begin_next()

    def _begin_next(self) -> Future[bytes]:
        return self._pool.submit(self._context.run, _next, self._blocks)

    def block(self) -> bytes:
        block = self._next.result()
        if block:
            self._next = self._begin_next()
        return block

    def fill(self, target: memoryview) -> int:
        if not self._rest:
            self._rest = memoryview(self.block())
        taken = min(len(target), len(self._rest))
        target[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken


def _next(blocks: Iterator[bytes]) -> bytes:
    return next(blocks, b"")
