"""A bounded stretch of a JSON file at a time, and how to go about in it without parsing what is not needed."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.files.content import cut_off
from xsp_ingest.files.content_window import ContentWindow, Refusals
from xsp_ingest.files.source import open_source
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from xsp_ingest.files.source import Source

__all__ = ["TOKEN", "JsonWindow", "check_depth", "no_json", "open_json", "skip", "stretch", "value"]

_MAX_BYTES = 1 << 33
_DEEPEST = 64
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]*+")
_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_BETWEEN = re.compile(rb"[ \t\r\n,]*+")
_BACKSLASH = re.compile(rb"\\")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _COMMA = b'",'
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


class JsonWindow(ContentWindow):
    """A window over a JSON file, whose entries and short values it holds."""

    def __init__(self, path: Path, source: Source) -> None:
        refusals = Refusals(partial(cut_off, path, "it ends before its JSON does"), partial(_too_long, path))
        room_bytes = 2 * limits().content_block_bytes  # a block behind what is left of the last one
        super().__init__(source, room_bytes, limits().json_entry_max_bytes, refusals)
        self.path = path

    def fill(self) -> bool:
        """Adds the next bytes; XspError where they are too many."""
        has_more = super().fill()
        if self.passed_bytes + len(self.text) > _MAX_BYTES:
            raise XspError(f"the JSON is longer than {_MAX_BYTES >> 30} GiB", path=self.path)
        return has_more

    def expect(self, pattern: re.Pattern[bytes], what: str) -> None:
        """Goes behind what the pattern matches here; XspError where it does not."""
        while (match := pattern.match(self.text, self.offset)) is None:
            if bytes(self.rest).strip(_MARK + _BLANKS + b":"):
                raise XspError(what, path=self.path)
            self.more()
        self.offset = match.end()


@contextmanager
def open_json(path: Path) -> Iterator[JsonWindow]:
    """A window over the file's content, behind a byte order mark."""
    with open_source(path, cut_off) as source:
        window = JsonWindow(path, source)
        while len(window.text) < len(_MARK) and window.fill():
            pass
        window.offset = len(_MARK) if window.text[: len(_MARK)] == _MARK else 0
        yield window


def _too_long(path: Path) -> XspError:
    return XspError(f"an entry of the JSON is longer than {limits().json_entry_max_bytes >> 20} MiB", path=path)


def stretch(window: JsonWindow) -> tuple[bytes, bool]:
    """Whole entries of the list that the window is in, at least one, in brackets; and whether they are the last.

    Behind the last ones the window stands before the list's closing bracket.
    """
    while True:
        steps, depth, commas = _depths(window.buffer[window.offset : len(window.text)])
        ends = np.flatnonzero(depth < 0)
        last = len(ends) > 0
        if last:
            depth, steps = depth[: ends[0]], steps[: ends[0]]
        check_depth(int(depth.max(initial=0)), window)
        closed = np.flatnonzero((depth == 0) & (steps < 0))
        if not last and not len(closed):  # numbers and texts, which no bracket ends
            closed = np.flatnonzero((depth == 0) & commas[: len(depth)]) - 1
            closed = closed[closed >= 0]
        if last or len(closed):
            behind = window.offset + (len(depth) if last else int(closed[-1]) + 1)
            return b"".join((b"[", _take_text(window, behind), b"]")), last
        window.more()


def _take_text(window: JsonWindow, behind: int) -> memoryview:
    """The window's bytes up to there, without what separates them from earlier ones; they are used then."""
    between = _BETWEEN.match(window.text, window.offset, behind)
    start = between.end() if between else window.offset
    window.offset = behind
    return window.text[start:behind]


def value(window: JsonWindow) -> bytes:
    """The text of the value that stands here, which is at most 32 MiB; the window goes behind it."""
    start = window.next_byte()
    if start not in b'"[{':
        while (match := _SCALAR.match(window.text, window.offset)) is None or match.end() == len(window.text):
            window.more()
        if not match[0]:
            raise no_json(window)
        window.offset = match.end()
        return match[0]
    depth, from_here = 0, 0
    while True:
        token = TOKEN.search(window.text, window.offset + from_here)
        if token is None or token[0] == b'"':
            from_here = (len(window.text) if token is None else token.start()) - window.offset
            window.more()
            continue
        from_here = token.end() - window.offset
        depth += (token[0] in b"[{") - (token[0] in b"]}")
        check_depth(depth, window)
        if depth <= 0:
            return bytes(_take_text(window, token.end()))


def skip(window: JsonWindow) -> None:
    """Goes behind the value that stands here, however long it is; of its text only brackets and quotes matter."""
    if window.next_byte() not in b"[{":
        value(window)
        return
    depth = 0
    while True:
        for token in TOKEN.finditer(window.text, window.offset):
            if token[0] == b'"':  # of a text that does not end here
                window.offset = token.start()
                break
            depth += (token[0] in b"[{") - (token[0] in b"]}")
            check_depth(depth, window)
            window.offset = token.end()
            if depth == 0:
                return
        else:
            window.offset = len(window.text)
        window.more()


def check_depth(depth: int, window: JsonWindow) -> None:
    """XspError where it is deeper than anything a profiler writes."""
    if depth > _DEEPEST:
        raise XspError(f"the JSON is nested more than {_DEEPEST} deep", path=window.path)


def no_json(window: JsonWindow) -> XspError:
    """What to say of a file that is none."""
    return XspError(
        "the file is not valid JSON",
        path=window.path,
        advice="Write or copy it again; a killed program leaves such files",
    )


def _depths(content: NDArray[np.uint8]) -> tuple[NDArray[np.int8], NDArray[np.int32], NDArray[np.bool_]]:
    """For each byte of text that begins outside of quotes: a bracket's +1 or -1, how deep it is behind it, commas."""
    if _BACKSLASH.search(content.data):
        content = np.frombuffer(_ESCAPED.sub(b"  ", content.data), dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((content == _QUOTE).view(np.uint8)).view(np.bool_)
    steps = _STEPS[content]
    steps[quoted] = 0
    return steps, np.cumsum(steps, dtype=np.int32), (content == _COMMA) & ~quoted
