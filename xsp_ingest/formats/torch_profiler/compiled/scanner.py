"""The compiled scanner: the same Document as the plain one, for large files, in bounded memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.content import ContentWindow, Refusals, Source, open_source
from xsp_ingest.formats.torch_profiler.compiled.scan_state import DONE, FULL, PAD, UNSURE
from xsp_ingest.formats.torch_profiler.events import UNREAD_FLOWS, Document
from xsp_ingest.formats.torch_profiler.scan_plain import CannotScan, cut_off, no_events, parse_json
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.compiled.columns import Tables

__all__ = ["CannotScan", "documents", "scan"]

_MAX_ENTRY_BYTES = 1 << 26  # of one event, or of one value beside the list
_MAX_REST_BYTES = 1 << 28
_QUOTE, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _COMMA, _COLON = b'"{}[,:'


def scan(path: Path, *, frames: bool = True) -> Document:
    """The file's events; CannotScan where the plain one should read it, XspError where the file is cut off."""
    (document,) = documents(path, max_rows=None, frames=frames)
    return document


def documents(path: Path, max_rows: int | None, *, frames: bool = True) -> Iterator[Document]:
    """The file's events in documents of at most so many (None: one of all); the last one has the head and the counts.

    `frames` of functions are kept or not.
    A document's frames hold only until the next one is asked for: their memory is used again. Errors as of `scan`.
    """
    from xsp_ingest.formats.torch_profiler.compiled.columns import Ready, Tables, readiness  # noqa: PLC0415 (loads LLVM)

    with open_source(path, cut_off) as source:
        ready = readiness()
        if ready == Ready.NEVER or source.expected_bytes < ready.min_bytes:
            raise CannotScan
        scanner = _Scanner(path, source, Tables(max_rows, frames=frames))
        try:
            yield from scanner.documents()
        except ValueError as error:
            raise CannotScan from error


class _Scanner:
    def __init__(self, path: Path, source: Source, tables: Tables) -> None:
        refusals = Refusals(partial(cut_off, path), partial(_too_long, path))
        self._window = ContentWindow(
            source, limits().compiled_buffer_bytes, _MAX_ENTRY_BYTES, refusals, padding_bytes=PAD
        )
        self._path = path
        self._expected_bytes = source.expected_bytes
        self._tables = tables
        self._rest: list[bytes] = []  # the content without what is in the list
        self._rest_bytes = 0

    def documents(self) -> Iterator[Document]:
        """The whole content."""
        bare = self._window.next_byte() == _OPEN_LIST
        if bare:
            self._window.offset += 1
            yield from self._list()
        else:
            yield from self._object()
        if self._window.peek() is not None:
            raise CannotScan
        head = {} if bare else self._head()
        counts = self._tables["not_objects"], self._tables["python_frames"]
        flows = {flow: count for flow in UNREAD_FLOWS if (count := self._tables[f"unread_{flow}"])}
        yield Document(*self._tables.frames(self._path), head, *counts, flows)

    def _head(self) -> dict[str, Any]:
        try:
            head = parse_json(b"".join(self._rest), self._path)
        except XspError as error:
            raise CannotScan from error
        if "traceEvents" not in head:
            raise no_events(self._path)
        del head["traceEvents"]
        return head  # type: ignore[no-any-return]

    def _object(self) -> Iterator[Document]:
        """The members of the top-level object; their commas are checked when the rest is parsed."""
        self._take(_OPEN_OBJECT)
        has_events = False
        while (char := self._window.next_byte()) != _CLOSE_OBJECT:
            if char == _COMMA:
                self._take(_COMMA)
            elif char == _QUOTE:
                key = self._value()
                self._take(_COLON)
                if b"\\" in key or (has_events and key == b'"traceEvents"'):
                    raise CannotScan
                if key == b'"traceEvents"':
                    has_events = True
                    if self._window.next_byte() != _OPEN_LIST:
                        raise CannotScan
                    self._window.offset += 1
                    yield from self._list()
                    self._rest.append(b"[]")
                else:
                    self._window.next_byte()
                    self._value()
            else:
                raise CannotScan
        self._take(_CLOSE_OBJECT)

    def _take(self, char: int) -> None:
        if self._window.next_byte() != char:
            raise CannotScan
        self._window.offset += 1
        self._rest.append(bytes([char]))

    def _value(self) -> bytes:
        """The value at the offset, which no blank precedes, as written."""
        window = self._window
        while True:
            result, stop = self._tables.value_end(window.buffer, window.offset, len(window.text))
            if result == DONE:
                break
            if result == UNSURE:
                raise CannotScan
            window.more()
        text = bytes(window.text[window.offset : stop])
        window.offset = stop
        self._rest.append(text)
        self._rest_bytes += len(text)
        if self._rest_bytes > _MAX_REST_BYTES:
            raise XspError(f"beside its events the trace holds more than {_MAX_REST_BYTES >> 20} MiB", path=self._path)
        return text

    def _list(self) -> Iterator[Document]:
        """The list's entries, from behind its opening bracket; a document wherever the tables are full."""
        window = self._window
        while True:
            result, window.offset = self._tables.scan(window.buffer, window.offset, len(window.text))
            if result == DONE:
                return
            if result == UNSURE:
                raise CannotScan
            if result == FULL and self._tables.is_piece:
                yield Document(*self._tables.frames(self._path))
                self._tables.forget_rows()
            elif result == FULL:
                self._tables.grow(self._growth(), len(window.rest))
            else:
                window.more()

    def _growth(self) -> float:
        """How many times as much as so far the whole content may hold."""
        passed = max(self._window.passed_bytes + self._window.offset, 1)
        return 2 * max(self._expected_bytes, passed) / passed


def _too_long(path: Path) -> XspError:
    return XspError(f"a value of the trace is longer than {_MAX_ENTRY_BYTES >> 20} MiB", path=path)
