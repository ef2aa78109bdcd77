"""The plain path: events decoded by msgspec some megabytes at a time, where nothing compiled is at hand or worth it.

What msgspec does not read as Python's `json` does (NaN, text that is no UTF-8, names that are numbers) is left to that.
"""

from __future__ import annotations

import gc
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.content import ContentWindow, Refusals, open_source
from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.formats.torch_profiler.events import Document
from xsp_ingest.formats.torch_profiler.refusal import CannotScan
from xsp_ingest.formats.torch_profiler.scan_plain import _parse
from xsp_ingest.formats.torch_profiler.streamed.columns import INT64_MIN_DIGITS, Columns, Event
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["documents"]

_MAX_ENTRY_BYTES = 1 << 26  # of an event, or of what comes behind the list
_MAX_TRIES = 8  # positions that look like the end of an event, or of the list
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_BEHIND = re.compile(r"trailing characters \(byte (\d+)\)")
_BLANKS = " \t\r\n"
_LIST = "the list of events\ue000"  # stands in the top-level object for the list itself
_EVENTS = msgspec.json.Decoder(list[Event])


def documents(path: Path, max_rows: int, *, frames: bool = True) -> Iterator[Document]:
    """The file's events in documents of about so many, and `frames` or none; the last one has the head and the counts.

    CannotScan where `scan_plain` should read the file.
    """
    with open_source(path, refusal.cut_off) as source:
        window = ContentWindow(
            source, limits().streamed_piece_bytes, _MAX_ENTRY_BYTES, Refusals(CannotScan, CannotScan)
        )
        try:
            yield from _documents(window, path, max_rows, frames=frames)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CannotScan from error


def _documents(window: ContentWindow, path: Path, max_rows: int, *, frames: bool) -> Iterator[Document]:
    before = _start(window)
    columns = Columns(frames=frames)
    while True:
        with _without_collection():
            events, is_last = _events(window)
            columns.add(events)
            del events
        if is_last:
            head = _head(before, window, path)
            yield Document(*columns.frames(), head, 0, columns.python_frames, columns.unread_flows)
            return
        if columns.rows >= max_rows:
            yield Document(*columns.frames())


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without looking for circles of objects, of which decoding makes none: that took a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _start(window: ContentWindow) -> bytes:
    """Leaves the window at the list's first entry; the text before, up to the opening bracket."""
    window.fill()
    text = str(window.text, "latin-1")  # a character a byte: only ASCII matters here
    offset = _behind_blanks(text, 0)
    if text[offset : offset + 1] == "{":
        offset = _list_of(text, offset + 1)
    if text[offset : offset + 1] != "[":
        raise CannotScan
    window.offset = offset + 1
    return bytes(window.text[:offset])


def _list_of(text: str, offset: int) -> int:
    """Where the value of `traceEvents` starts; the offset is behind the bracket that opens the object."""
    decoder = json.JSONDecoder()
    while True:
        key, offset = decoder.raw_decode(text, _behind_blanks(text, offset))
        offset = _behind_blanks(text, offset)
        if not isinstance(key, str) or text[offset : offset + 1] != ":":
            raise CannotScan
        offset = _behind_blanks(text, offset + 1)
        if key == "traceEvents":
            return offset
        _, offset = decoder.raw_decode(text, offset)
        offset = _behind_blanks(text, offset)
        if text[offset : offset + 1] != ",":
            raise CannotScan
        offset += 1


def _behind_blanks(text: str, offset: int) -> int:
    while text[offset : offset + 1] and text[offset] in _BLANKS:
        offset += 1
    return offset


def _events(window: ContentWindow) -> tuple[Sequence[Event], bool]:
    """Events from the window on, and whether they are the list's last ones.

    What decodes as a list between brackets of our own are whole entries: wherever it is cut, that is between two.
    """
    if len(window.rest) < limits().streamed_piece_bytes:
        window.fill()
    while True:
        rest = window.rest
        for stop, start in _cuts(rest):
            events, end = _decode_events(rest[:stop])
            if end is not None:
                return _last_events(window, end), True
            if events is not None and stop < start:
                window.offset += start
                return events, False
        window.more()


def _last_events(window: ContentWindow, end: int) -> Sequence[Event]:
    """Events before the list's own bracket, which is the last before the end; leaves the window behind it."""
    rest = window.rest
    bracket = bytes(rest[:end]).rfind(b"]")
    events, _ = _decode_events(rest[:bracket])
    if events is None:
        raise CannotScan
    window.offset += bracket + 1
    return events


def _cuts(text: memoryview) -> Iterator[tuple[int, int]]:
    """Where whole entries may end and where the next starts, the last ones first; then twice the end of the text."""
    for first in (max(len(text) - limits().streamed_cut_bytes, 0), 0):
        if candidates := list(_BETWEEN.finditer(text, first)):
            yield from ((match.start() + 1, match.end()) for match in reversed(candidates[-_MAX_TRIES:]))
            break
    yield len(text), len(text)


def _decode_events(entries: memoryview) -> tuple[Sequence[Event] | None, int | None]:
    """The events, or None; then just behind which byte the list ended, where it did before the entries."""
    text = b"".join((b"[", entries, b"]"))
    if INT64_MIN_DIGITS in text:
        raise CannotScan
    try:
        return _EVENTS.decode(text), None
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        behind = _BEHIND.search(str(error))
        return None, int(behind[1]) - 1 if behind else None


def _head(before: bytes, window: ContentWindow, path: Path) -> dict[str, Any]:
    """The top-level object without the list; the window stands behind that."""
    while window.fill():
        pass
    behind = bytes(window.rest)
    if not before.strip():
        if behind.strip():
            raise CannotScan
        return {}
    try:
        head = _parse(before + json.dumps(_LIST).encode() + behind, path)
    except XspError as error:
        raise CannotScan from error
    if head.pop("traceEvents", None) != _LIST:  # another one came later
        raise CannotScan
    return head  # type: ignore[no-any-return]
