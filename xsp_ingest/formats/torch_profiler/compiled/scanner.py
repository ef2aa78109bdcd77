"""The compiled scanner: the same Document as the plain one, for large files, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.formats.torch_profiler.cannot_scan import CannotScan
from xsp_ingest.formats.torch_profiler.compiled.scan_state import DONE, FULL, PAD, UNSURE
from xsp_ingest.formats.torch_profiler.events import UNREAD_FLOWS, Document
from xsp_ingest.formats.torch_profiler.scan_plain import _parse
from xsp_ingest.formats.torch_profiler.scan_source import Source, open_source
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.compiled.columns import Tables

__all__ = ["MIN_BYTES", "PIECE_ROWS", "CannotScan", "documents", "scan"]

MIN_BYTES = 1 << 20
"""Content smaller than this is read faster by the plain scanner, since machine code takes time to load."""

PIECE_ROWS = 1 << 17
"""Events scanned and shaped at once."""

# For less content nobody waits, once per installation, until the scanner is made from what came along, or compiled.
_FINISH_BYTES, _COMPILE_BYTES = 8 << 20, 256 << 20
_BUFFER_BYTES = 1 << 22
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

    with open_source(path) as source:
        min_bytes = {Ready.LOAD: 0, Ready.FINISH: _FINISH_BYTES, Ready.COMPILE: _COMPILE_BYTES}
        ready = readiness()
        if ready == Ready.NEVER or source.expected_bytes < min_bytes[ready]:
            raise CannotScan
        scanner = _Scanner(path, source, Tables(max_rows, frames=frames))
        try:
            yield from scanner.documents()
        except ValueError as error:
            raise CannotScan from error


class _Scanner:
    def __init__(self, path: Path, source: Source, tables: Tables) -> None:
        self._path = path
        self._source = source
        self._tables = tables
        self._buffer = np.zeros(_BUFFER_BYTES + PAD, dtype=np.uint8)
        self._offset = 0
        self._end = 0
        self._passed = 0  # bytes that have left the buffer
        self._rest: list[bytes] = []  # the content without what is in the list
        self._rest_bytes = 0

    def documents(self) -> Iterator[Document]:
        """The whole content."""
        bare = self._peek() == _OPEN_LIST
        if bare:
            self._offset += 1
            yield from self._list()
        else:
            yield from self._object()
        if self._peek(at_end=-1) != -1:
            raise CannotScan
        head = {} if bare else self._head()
        counts = self._tables["not_objects"], self._tables["python_frames"]
        flows = {flow: count for flow in UNREAD_FLOWS if (count := self._tables[f"unread_{flow}"])}
        yield Document(*self._tables.frames(self._path), head, *counts, flows)

    def _head(self) -> dict[str, Any]:
        try:
            head = _parse(b"".join(self._rest), self._path)
        except XspError as error:
            raise CannotScan from error
        if "traceEvents" not in head:
            raise refusal.no_events(self._path)
        del head["traceEvents"]
        return head  # type: ignore[no-any-return]

    def _object(self) -> Iterator[Document]:
        """The members of the top-level object; their commas are checked when the rest is parsed."""
        self._take(_OPEN_OBJECT)
        has_events = False
        while (char := self._peek()) != _CLOSE_OBJECT:
            if char == _COMMA:
                self._take(_COMMA)
            elif char == _QUOTE:
                key = self._value()
                self._take(_COLON)
                if b"\\" in key or (has_events and key == b'"traceEvents"'):
                    raise CannotScan
                if key == b'"traceEvents"':
                    has_events = True
                    if self._peek() != _OPEN_LIST:
                        raise CannotScan
                    self._offset += 1
                    yield from self._list()
                    self._rest.append(b"[]")
                else:
                    self._peek()
                    self._value()
            else:
                raise CannotScan
        self._take(_CLOSE_OBJECT)

    def _peek(self, at_end: int | None = None) -> int:
        """The next byte that is no blank; cut off where there is none, unless another answer is given."""
        while True:
            while self._offset < self._end:
                char = int(self._buffer[self._offset])
                if char not in b" \t\n\r":
                    return char
                self._offset += 1
            if not self._more():
                if at_end is None:
                    raise refusal.truncated(self._path)
                return at_end

    def _take(self, char: int) -> None:
        if self._peek() != char:
            raise CannotScan
        self._offset += 1
        self._rest.append(bytes([char]))

    def _value(self) -> bytes:
        """The value at the place, which no blank precedes, as written."""
        while True:
            result, stop = self._tables.value_end(self._buffer, self._offset, self._end)
            if result == DONE:
                break
            if result == UNSURE:
                raise CannotScan
            if not self._more():
                raise refusal.truncated(self._path)
        text = self._buffer[self._offset : stop].tobytes()
        self._offset = stop
        self._rest.append(text)
        self._rest_bytes += len(text)
        if self._rest_bytes > _MAX_REST_BYTES:
            raise XspError(f"beside its events the trace holds more than {_MAX_REST_BYTES >> 20} MiB", path=self._path)
        return text

    def _list(self) -> Iterator[Document]:
        """The list's entries, from behind its opening bracket; a document wherever the tables are full."""
        while True:
            result, self._offset = self._tables.scan(self._buffer, self._offset, self._end)
            if result == DONE:
                return
            if result == UNSURE:
                raise CannotScan
            if result == FULL and self._tables.is_piece:
                yield Document(*self._tables.frames(self._path))
                self._tables.forget_rows()
            elif result == FULL:
                self._tables.grow(self._growth(), self._end - self._offset)
            elif not self._more():
                raise refusal.truncated(self._path)

    def _growth(self) -> float:
        """How many times as much as so far the whole content may hold."""
        passed = max(self._passed + self._offset, 1)
        return 2 * max(self._source.expected_bytes, passed) / passed

    def _more(self) -> bool:
        """Reads on, keeping what is not yet scanned; False at the end of the content."""
        kept = self._end - self._offset
        room = len(self._buffer) - PAD
        if kept >= _MAX_ENTRY_BYTES:
            raise XspError(f"a value of the trace is longer than {_MAX_ENTRY_BYTES >> 20} MiB", path=self._path)
        target = self._buffer if kept < room else np.zeros(2 * room + PAD, dtype=np.uint8)
        target[:kept] = self._buffer[self._offset : self._end]
        self._buffer = target
        self._passed += self._offset
        self._offset = 0
        read = self._source.fill(target[kept:-PAD].data)
        self._end = kept + read
        target[self._end : self._end + PAD] = 0
        return read > 0
