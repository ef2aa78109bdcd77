"""A file's content, plain or gzip: in bounded pieces, in whole lines, as text, in a window, or whole if small."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.files.source import open_source
from xsp_model import XspError
from xsp_model.limits import limit_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

    from xsp_ingest.files.source import Source

__all__ = [
    "MAX_LINE_CHARACTERS",
    "ContentWindow",
    "Refusals",
    "cut_off",
    "decode_head",
    "lines",
    "open_text",
    "pieces",
    "read_all",
]

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


# The part of a file's content that is being looked at, in one buffer that is filled again and again.

_BLANKS = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a window raises, by who reads through it."""

    cut_off: Callable[[], Exception]  # content that ends where there has to be more
    too_long: Callable[[], Exception]  # more that is not used yet than the window holds


class ContentWindow:
    """Content in memory: of `text`, what stands before `offset` is used.

    `text` is a view of `buffer`, where zeros follow it: as many as the padding. `fill` moves the bytes and may
    replace the buffer, so neither views of it nor matches in it hold any longer than until then.
    """

    def __init__(
        self, source: Source, room_bytes: int, max_bytes: int, refusals: Refusals, *, padding_bytes: int = 0
    ) -> None:
        self.buffer = np.zeros(room_bytes + padding_bytes, dtype=np.uint8)
        self.text = self.buffer.data[:0]
        self.offset = 0
        self.passed_bytes = 0  # that have left the buffer
        self._source = source
        self._max_bytes = max_bytes
        self._refusals = refusals
        self._padding_bytes = padding_bytes

    @property
    def rest(self) -> memoryview:
        """What is not used yet."""
        return self.text[self.offset :]

    def more(self) -> None:
        """Adds the next bytes to the text, or refuses the content, which ends here."""
        if not self.fill():
            raise self._refusals.cut_off()

    def fill(self) -> bool:
        """Adds the next bytes to the text, of which only the rest stays; False at the end of the content."""
        kept = len(self.text) - self.offset
        if kept >= self._max_bytes:
            raise self._refusals.too_long()
        target, room = self._target(kept)
        target[:kept] = self.buffer[self.offset : len(self.text)]
        read = self._source.fill(target[kept:room].data)
        end = kept + read
        target[end : end + self._padding_bytes] = 0
        self.passed_bytes += self.offset
        self.buffer, self.text, self.offset = target, target.data[:end], 0
        return read > 0

    def _target(self, kept: int) -> tuple[NDArray[np.uint8], int]:
        """The buffer, or a larger one where less than half of it is free, and its size without the padding."""
        room = len(self.buffer) - self._padding_bytes
        if 2 * kept <= room or room >= self._max_bytes:
            return self.buffer, room
        room = min(2 * room, self._max_bytes)
        return np.zeros(room + self._padding_bytes, dtype=np.uint8), room

    def next_byte(self, passed: bytes = _BLANKS) -> int:
        """The next byte that is none of these, as by `peek`; the content is refused where it ends."""
        while (byte := self.peek(passed)) is None:
            self.more()
        return byte

    def peek(self, passed: bytes = _BLANKS) -> int | None:
        """The next byte that is none of these, before which the offset is then; None where the content ends."""
        while True:
            text = self.text
            for offset in range(self.offset, len(text)):
                if text[offset] not in passed:
                    self.offset = offset
                    return text[offset]
            self.offset = len(text)
            if not self.fill():
                return None


# A file's content as text, plain or gzip, in UTF-8 or UTF-16, its lines bounded.

MAX_LINE_CHARACTERS = 1 << 24
"""No line is longer in a file that is read by lines."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 1 << 18


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The file as text: plain or gzip, UTF-8 or (as PowerShell redirects) UTF-16, with any line ending."""
    with open_source(path, cut_off) as source, io.BufferedReader(_Content(source), _BUFFER_BYTES) as stream:
        encoding = "utf-16" if stream.peek(2)[:2] in _UTF16 else "utf-8-sig"
        with _Lines(stream, encoding=encoding, errors="replace", newline=None) as text:
            text.path = path
            yield text


class _Content(io.RawIOBase):
    """A file's content, decompressed where needed and no longer than any trace, as a stream of bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override] # typeshed: any buffer
        """The next bytes; none at the end. XspError where gzip is damaged or cut off."""
        return self._source.fill(target)


class _Lines(io.TextIOWrapper):
    """Lines none of which is so long that a damaged or hostile file could fill the memory with it."""

    path: Path | None = None

    def __next__(self) -> str:  # type: ignore[override] # as typeshed's own TextIOWrapper says
        line = self.readline(MAX_LINE_CHARACTERS)
        if len(line) >= MAX_LINE_CHARACTERS:
            raise XspError(
                f"a line of the file is longer than {MAX_LINE_CHARACTERS >> 20} MiB",
                path=self.path,
                advice="Copy or export the file again",
            )
        if not line:
            raise StopIteration
        return line


def decode_head(head: bytes) -> str:
    """The first bytes of a file as text."""
    return head.decode("utf-16" if head[:2] in _UTF16 else "utf-8-sig", errors="ignore").replace("\r", "\n")
