"""The content of gzip files, of all their members, by the faster library where it is installed."""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_model import XspError

__all__ = ["MAGIC", "inflated"]

MAGIC = b"\x1f\x8b"
_WINDOW_BITS = 16 + zlib.MAX_WBITS


def inflated(file: BinaryIO, block_bytes: int, damaged: Callable[[str], XspError]) -> Iterator[bytes]:
    """The content in blocks of about so many bytes, none of them empty; `damaged` is what to raise, by reason."""
    try:
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
    except _errors() as error:
        raise damaged("its compressed stream is damaged") from error
    if not inflate.eof:
        raise damaged("its compressed stream ends early")


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
