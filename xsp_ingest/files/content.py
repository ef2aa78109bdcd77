"""A file's content, plain or gzip: its beginning, bounded pieces, whole lines, text, a window, or all if small."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from xsp_ingest.files.safe_files import limit_content
from xsp_model import XspError
from xsp_model.limits import limit_bytes, limits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

__all__ = [
    "MAGIC",
    "MAX_LINE_CHARACTERS",
    "ContentWindow",
    "Probe",
    "Refusals",
    "Source",
    "content_bytes",
    "cut_off",
    "decode_head",
    "inflate_blocks",
    "inflated_head",
    "lines",
    "open_source",
    "open_text",
    "pieces",
    "read_all",
    "rewriting",
]

# What a file's content is read from: gzip is decompressed one block ahead, in a thread of its own. The content of gzip
# files, of all their members, by the faster library where it is installed.
MAGIC = b"\x1f\x8b"
_WINDOW_BITS = 16 + zlib.MAX_WBITS
_LITTLE_BYTES = 16  # where a stream is damaged, what came of all that was read at once is lost
_LARGE_BYTES = 1 << 16


def inflate_blocks(
    file: BinaryIO, block_bytes: int, damaged: Callable[[str], XspError], read_bytes: int | None = None
) -> Iterator[bytes]:
    """The content in blocks of about so many bytes, none of them empty; `damaged` is what to raise, by reason."""
    try:
        if read_bytes is None:
            has_end = yield from _blocks(file, block_bytes, limits().gzip_read_bytes)
        else:
            has_end = yield from _large_blocks(_blocks(file, block_bytes, read_bytes))
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
        for block in _blocks(io.BytesIO(head), max_bytes, limits().gzip_read_bytes):
            content += block
            if len(content) >= max_bytes:
                break
    except _errors() as error:
        with suppress(*_errors()):
            for block in () if content else _blocks(io.BytesIO(head), max_bytes, _LITTLE_BYTES):
                content += block
        if not content:
            raise damaged("its compressed stream is damaged") from error
    return bytes(content[:max_bytes])


def _blocks(file: BinaryIO, block_bytes: int, read_bytes: int) -> Generator[bytes, None, bool]:
    """The content as far as it goes, and whether the last member has an end."""
    inflate = _decompressor()
    while raw := file.read(read_bytes):
        while raw := raw.lstrip(b"\0") if inflate.eof else raw:  # zero bytes may stand behind a member
            if inflate.eof:
                inflate = _decompressor()
            if block := inflate.decompress(raw, block_bytes):
                yield block
            raw = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if block := inflate.flush():
        yield block
    return bool(inflate.eof)


def _large_blocks(blocks: Generator[bytes, None, bool]) -> Generator[bytes, None, bool]:
    held = bytearray()
    ends: tuple[type[Exception], ...] = (StopIteration, *_errors())
    while True:
        try:
            held += next(blocks)
        except ends as end:
            if held:
                yield bytes(held)
            if isinstance(end, StopIteration):
                return bool(end.value)
            raise
        if len(held) >= _LARGE_BYTES:
            yield bytes(held)
            held.clear()


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


Rewrite = Callable[["Path", "Iterator[bytes]"], "Iterator[bytes]"]
_REWRITE: ContextVar[Rewrite | None] = ContextVar("rewrite", default=None)


@contextmanager
def rewriting(rewrite: Rewrite) -> Iterator[None]:
    """Whoever opens a source meanwhile gets what this makes of its blocks."""
    token = _REWRITE.set(rewrite)
    try:
        yield
    finally:
        _REWRITE.reset(token)


@contextmanager
def open_source(path: Path, damaged: Callable[[Path, str], XspError]) -> Iterator[Source]:
    """The file's content; reading it raises what `damaged` makes of the reason where gzip is cut off or damaged.

    XspError while reading, too, where the file decompresses to more than any trace does.
    """
    with path.open("rb") as file:
        size, is_gzip = _measure(file)
        rewrite = _REWRITE.get()
        plain = _Plain(file, size)
        if not is_gzip and rewrite is None:
            yield plain
            return
        blocks = iter(plain.block, b"")
        if is_gzip:
            read_bytes, why = None, partial(damaged, path)
            if rewrite is not None:
                read_bytes, why = _LITTLE_BYTES, partial(XspError, path=path)
            inflated = inflate_blocks(file, limits().content_block_bytes, why, read_bytes)
            blocks = limit_content(inflated, path.stat().st_size, path)
        with ThreadPoolExecutor(1, "decompress") as pool:
            yield _Gzip(blocks if rewrite is None else rewrite(path, blocks), pool, size)


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


# The beginning of a file, by which its format is recognised.

_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Probe:
    """A file's first 64 KiB, as they are and decompressed: all that `sniff` looks at, besides SQLite's tables."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """The first bytes as they are on disk."""
        try:
            with self.path.open("rb") as file:
                return file.read(_HEAD_BYTES)
        except OSError as error:
            raise XspError(f"the file cannot be read ({error.strerror})", path=self.path) from error

    @cached_property
    def is_gzip(self) -> bool:
        """Whether the file is gzip-compressed."""
        return self.head.startswith(MAGIC)

    @cached_property
    def text(self) -> bytes:
        """The first bytes of the content, decompressed where needed."""
        if not self.is_gzip:
            return self.head
        return inflated_head(self.head, _HEAD_BYTES, self._damage_error)

    def _damage_error(self, _: str) -> XspError:
        sentence = "the file says it is gzip but cannot be decompressed"
        return XspError(sentence, path=self.path, advice="Copy it again")
