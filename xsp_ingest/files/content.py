"""A file's content, plain or gzip: in bounded pieces, in whole lines, or whole where it is small enough."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO

from xsp_ingest.files.safe_files import bounded
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MAX_READ_BYTES", "cut_off", "lines", "pieces", "read_all"]

MAX_READ_BYTES = 1 << 29
"""No content longer than this is held in memory at once."""

_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_READ_BYTES = 1 << 18
_PIECE_BYTES = 1 << 22
_MAX_LINE_BYTES = 1 << 26
_AGAIN = "Export or copy it again; a program that was killed leaves such files"


def cut_off(path: Path, why: str = "the file ends before its content does") -> XspError:
    """What to say of a file that lacks its end."""
    return XspError(f"the file is cut off: {why}", path=path, advice=_AGAIN)


def pieces(path: Path) -> Iterator[bytes]:
    """The content in pieces of at most 4 MiB, none of them empty; XspError where gzip is damaged or cut off."""
    with path.open("rb") as file:
        is_gzip = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        if is_gzip:
            yield from bounded(_inflated(file, path), path.stat().st_size, path)
            return
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _inflated(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The content of all members of a gzip file."""
    inflate = zlib.decompressobj(_GZIP_WINDOW)
    try:
        while raw := file.read(_READ_BYTES):
            while raw := raw.lstrip(b"\0") if inflate.eof else raw:  # zero bytes may stand behind a member
                if inflate.eof:
                    inflate = zlib.decompressobj(_GZIP_WINDOW)
                if piece := inflate.decompress(raw, _PIECE_BYTES):
                    yield piece
                raw = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    except zlib.error as error:
        raise cut_off(path, "its compressed stream is damaged") from error
    if not inflate.eof:
        raise cut_off(path, "its compressed stream ends early")


def lines(path: Path) -> Iterator[bytes]:
    """The content in pieces of whole lines; only the last one may lack its line end.

    XspError where one line is longer than 64 MiB: no format read by lines has such.
    """
    rest = b""
    for piece in pieces(path):
        end = piece.rfind(b"\n") + 1
        if end == 0:
            rest += piece
            if len(rest) > _MAX_LINE_BYTES:
                raise XspError("a line of the file is longer than 64 MiB", path=path)
            continue
        yield rest + piece[:end]
        rest = piece[end:]
    if rest:
        yield rest


def read_all(path: Path, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """The whole content; XspError where it is longer than `max_bytes`, which also stops a decompression bomb."""
    parts: list[bytes] = []
    left = max_bytes
    for piece in pieces(path):
        left -= len(piece)
        if left < 0:
            raise XspError(f"the file's content is longer than {max_bytes >> 20} MiB", path=path)
        parts.append(piece)
    return b"".join(parts)
