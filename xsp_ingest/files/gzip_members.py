"""The content of gzip files, of all their members, by the faster library where it is installed."""

from __future__ import annotations

import io
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from xsp_model import XspError

__all__ = ["MAGIC", "inflate_blocks", "inflated_head"]

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
