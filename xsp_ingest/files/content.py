"""A file's content, plain or gzip: in bounded pieces, in whole lines, or whole where it is small enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.files.source import open_source
from xsp_model import XspError
from xsp_model.memory import limit_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["cut_off", "lines", "pieces", "read_all"]

_MAX_READ_BYTES = 1 << 29  # no content longer than this is held in memory at once
_ALWAYS_HELD_BYTES = 1 << 24
_TIMES_CONTENT = 6  # of JSON: itself, its objects, and the columns made of them

_MAX_LINE_BYTES = 1 << 26
_AGAIN = "Export or copy it again; a program that was killed leaves such files"


def cut_off(path: Path, why: str = "the file ends before its content does") -> XspError:
    """What to say of a file that lacks its end."""
    return XspError(f"the file is cut off: {why}", path=path, advice=_AGAIN)


def pieces(path: Path, damaged: Callable[[Path, str], XspError] = cut_off) -> Iterator[bytes]:
    """The content in pieces of at most 4 MiB, none of them empty; `damaged` where gzip is damaged or cut off."""
    with open_source(path, damaged) as source:
        while piece := source.block():
            yield piece


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


def read_all(
    path: Path, max_bytes: int = _MAX_READ_BYTES, *, damaged: Callable[[Path, str], XspError] = cut_off
) -> bytes:
    """The whole content; XspError where it is longer than `max_bytes`, which also stops a decompression bomb."""
    parts: list[bytes] = []
    total = 0
    for piece in pieces(path, damaged):
        total += len(piece)
        _check_held(path, total, max_bytes)
        parts.append(piece)
    return b"".join(parts)


def _check_held(path: Path, content_bytes: int, max_bytes: int) -> None:
    """XspError where content of this length is not to be held in memory: by itself, or by what memory there is."""
    if content_bytes > max_bytes:
        raise XspError(f"the file's content is longer than {max_bytes >> 20} MiB", path=path)
    if content_bytes > _ALWAYS_HELD_BYTES and content_bytes * _TIMES_CONTENT > (limit := limit_bytes()):
        raise XspError(
            f"the content is read as a whole, and is too long for the {limit / 1e9:.2f} GB of memory that xsp may take",
            path=path,
            advice="Read it where there is more",
        )
