"""The entries of a large JSON list, a bounded stretch of the file at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from xsp_ingest.content import cut_off, pieces
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Entries", "entries"]

T = TypeVar("T", bound=msgspec.Struct)

_MOST_ENTRY_BYTES = 1 << 25
_MOST_BYTES = 1 << 33
_DEEPEST = 64
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[")
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_VALUE_LIST = re.compile(rb"\s*+:\s*+\[")
_BETWEEN = b" \t\r\n,"
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTE = ord('"')
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


@dataclass(slots=True)
class Entries:
    """What was odd about a list, counted while it is read."""

    foreign: int = 0  # entries that are no objects
    not_utf8: int = 0  # stretches of the file with bytes that are not UTF-8


@dataclass(slots=True)
class _Window:
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
        if len(self.text) > _MOST_ENTRY_BYTES:
            raise XspError(f"an entry of the JSON is longer than {_MOST_ENTRY_BYTES >> 20} MiB", path=self.path)
        if self.total > _MOST_BYTES:
            raise XspError(f"the JSON is longer than {_MOST_BYTES >> 30} GiB", path=self.path)

    def expect(self, pattern: re.Pattern[bytes], what: str) -> None:
        """Goes behind what the pattern matches here; XspError where it does not."""
        while True:
            if found := pattern.match(self.text, self.at):
                self.at = found.end()
                return
            if self.text[self.at :].strip(b"\xef\xbb\xbf \t\r\n:"):
                raise XspError(what, path=self.path)
            self.more()


def entries(path: Path, kind: type[T], seen: Entries, *, key: bytes | None = None) -> Iterator[list[T]]:
    """The objects of the list in order, some at a time, as values of a msgspec Struct whose fields take anything.

    The list is the file's content or, with `key`, what the object in the file holds under it. XspError where there is
    no such list, it is cut off or nested too deeply, or is no JSON.
    """
    window = _Window(path, pieces(path))
    if key is None:
        window.expect(_LIST, "the file holds no JSON list")
    else:
        window.expect(_OBJECT, "the file holds no JSON object")
        _find(window, key)
    decoder = msgspec.json.Decoder(list[kind | list[Any] | str | int | float | bool | None])  # type: ignore[valid-type]
    last = False
    while not last:
        text, last = _stretch(window)
        found = _decoded(decoder, text, window, seen)
        objects = [entry for entry in found if isinstance(entry, kind)]
        seen.foreign += len(found) - len(objects)
        if objects:
            yield objects


def _find(window: _Window, key: bytes) -> None:
    """Goes into the list under the key of the outermost object."""
    depth, at, wanted = 0, window.at, b'"' + key + b'"'
    while True:
        found = _TOKEN.search(window.text, at)
        token = found[0] if found else b'"'
        if found is None or token == b'"':
            behind = len(window.text) if found is None else found.start()
            window.at = behind
            window.more()
            at = 0
        elif depth == 0 and token == wanted:
            window.at = found.end()
            window.expect(_VALUE_LIST, f"the JSON holds no list `{key.decode()}`")
            return
        else:
            at = found.end()
            depth += (token in b"[{") - (token in b"]}")
            if depth < 0:
                raise XspError(f"the JSON holds no list `{key.decode()}`", path=window.path)
            _check_depth(depth, window)


def _stretch(window: _Window) -> tuple[bytes, bool]:
    """Whole entries, at least one, without the list's brackets; and whether they are the last."""
    while True:
        steps, depth = _depths(window.text[window.at :])
        ends = np.flatnonzero(depth < 0)
        last = len(ends) > 0
        if last:
            depth, steps = depth[: ends[0]], steps[: ends[0]]
        _check_depth(int(depth.max(initial=0)), window)
        closed = np.flatnonzero((depth == 0) & (steps < 0))
        if last or len(closed):
            behind = window.at + (len(depth) if last else int(closed[-1]) + 1)
            text = window.text[window.at : behind].lstrip(_BETWEEN)
            window.at = behind
            return text, last
        window.more()


def _depths(text: bytes) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """For each byte of text that begins outside of quotes: a bracket's +1 or -1, and how deep it is behind it."""
    if b"\\" in text:
        text = _ESCAPED.sub(b"  ", text)
    content = np.frombuffer(text, dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((content == _QUOTE).view(np.uint8)).view(np.bool_)
    steps = _STEPS[content]
    steps[quoted] = 0
    return steps, np.cumsum(steps, dtype=np.int32)


def _check_depth(depth: int, window: _Window) -> None:
    if depth > _DEEPEST:
        raise XspError(f"the JSON is nested more than {_DEEPEST} deep", path=window.path)


def _decoded(decoder: msgspec.json.Decoder[list[Any]], text: bytes, window: _Window, seen: Entries) -> list[Any]:
    try:
        return decoder.decode(b"[" + text + b"]")
    except UnicodeDecodeError:
        seen.not_utf8 += 1
    except msgspec.DecodeError as error:
        raise _no_json(window) from error
    try:
        return decoder.decode(b"[" + text.decode(errors="replace").encode() + b"]")
    except msgspec.DecodeError as error:
        raise _no_json(window) from error


def _no_json(window: _Window) -> XspError:
    return XspError(
        "the file is not valid JSON",
        path=window.path,
        advice="Write or copy it again; a killed program leaves such files",
    )
