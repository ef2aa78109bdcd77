"""A bounded stretch of a JSON file at a time, and how to go about in it without parsing what is not needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.files.content import cut_off, pieces
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["TOKEN", "Window", "check_depth", "no_json", "opened", "skip", "stretch", "value"]

_MAX_ENTRY_BYTES = 1 << 25
_MAX_BYTES = 1 << 33
_DEEPEST = 64
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]*+")
_SPACE = b" \t\r\n"
_BETWEEN = b" \t\r\n,"
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _COMMA = ord('"'), ord(",")
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


@dataclass(slots=True)
class Window:
    """The part of the file that is being looked at: from `at` on it is not used yet."""

    path: Path
    source: Iterator[bytes]
    text: bytes = b""
    at: int = 0
    total: int = 0

    def more(self) -> None:
        """Adds the next piece; XspError where there is none, or what is not used yet is too long."""
        piece = next(self.source, None)
        if piece is None:
            raise cut_off(self.path, "it ends before its JSON does")
        self.text = self.text[self.at :] + piece
        self.at = 0
        self.total += len(piece)
        if len(self.text) > _MAX_ENTRY_BYTES:
            raise XspError(f"an entry of the JSON is longer than {_MAX_ENTRY_BYTES >> 20} MiB", path=self.path)
        if self.total > _MAX_BYTES:
            raise XspError(f"the JSON is longer than {_MAX_BYTES >> 30} GiB", path=self.path)

    def expect(self, pattern: re.Pattern[bytes], what: str) -> None:
        """Goes behind what the pattern matches here; XspError where it does not."""
        while True:
            if match := pattern.match(self.text, self.at):
                self.at = match.end()
                return
            if self.text[self.at :].strip(b"\xef\xbb\xbf \t\r\n:"):
                raise XspError(what, path=self.path)
            self.more()

    def peek(self, passed: bytes = _SPACE) -> bytes:
        """The next byte that is none of these, and stands before it."""
        while True:
            while self.at < len(self.text):
                if self.text[self.at] not in passed:
                    return self.text[self.at : self.at + 1]
                self.at += 1
            self.more()


def opened(path: Path) -> Window:
    """A window at the start of the file's content, behind a byte order mark."""
    window = Window(path, pieces(path))
    window.more()
    window.at = 3 if window.text.startswith(b"\xef\xbb\xbf") else 0
    return window


def stretch(window: Window) -> tuple[bytes, bool]:
    """Whole entries of the list that the window is in, at least one, without brackets; and whether they are the last.

    Behind the last ones the window stands before the list's closing bracket.
    """
    while True:
        steps, depth, commas = _depths(window.text[window.at :])
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
            behind = window.at + (len(depth) if last else int(closed[-1]) + 1)
            text = window.text[window.at : behind].lstrip(_BETWEEN)
            window.at = behind
            return text, last
        window.more()


def value(window: Window) -> bytes:
    """The text of the value that stands here, which is at most 32 MiB; the window goes behind it."""
    start = window.peek()
    if start not in b'"[{':
        while (match := _SCALAR.match(window.text, window.at)) is None or match.end() == len(window.text):
            window.more()
        if not match[0]:
            raise no_json(window)
        window.at = match.end()
        return match[0]
    depth, from_here = 0, 0
    while True:
        token = TOKEN.search(window.text, window.at + from_here)
        if token is None or token[0] == b'"':
            from_here = (len(window.text) if token is None else token.start()) - window.at
            window.more()
            continue
        from_here = token.end() - window.at
        depth += (token[0] in b"[{") - (token[0] in b"]}")
        check_depth(depth, window)
        if depth <= 0:
            text = window.text[window.at : token.end()]
            window.at = token.end()
            return text


def skip(window: Window) -> None:
    """Goes behind the value that stands here, however long it is; of its text only brackets and quotes matter."""
    if window.peek() not in b"[{":
        value(window)
        return
    depth = 0
    while True:
        token = TOKEN.search(window.text, window.at)
        if token is None or token[0] == b'"':
            window.at = len(window.text) if token is None else token.start()
            window.more()
            continue
        window.at = token.end()
        depth += (token[0] in b"[{") - (token[0] in b"]}")
        check_depth(depth, window)
        if depth == 0:
            return


def check_depth(depth: int, window: Window) -> None:
    """XspError where it is deeper than anything a profiler writes."""
    if depth > _DEEPEST:
        raise XspError(f"the JSON is nested more than {_DEEPEST} deep", path=window.path)


def no_json(window: Window) -> XspError:
    """What to say of a file that is none."""
    return XspError(
        "the file is not valid JSON",
        path=window.path,
        advice="Write or copy it again; a killed program leaves such files",
    )


def _depths(text: bytes) -> tuple[NDArray[np.int8], NDArray[np.int32], NDArray[np.bool_]]:
    """For each byte of text that begins outside of quotes: a bracket's +1 or -1, how deep it is behind it, commas."""
    if b"\\" in text:
        text = _ESCAPED.sub(b"  ", text)
    content = np.frombuffer(text, dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((content == _QUOTE).view(np.uint8)).view(np.bool_)
    steps = _STEPS[content]
    steps[quoted] = 0
    return steps, np.cumsum(steps, dtype=np.int32), (content == _COMMA) & ~quoted
