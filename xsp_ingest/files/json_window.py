"""JSON files of any size: a bounded stretch at a time, entries of lists, chosen parts, without parsing the rest."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from xsp_ingest.files.broken_json import BrokenJsonError
from xsp_ingest.files.content import ContentWindow, Refusals, cut_off, open_source
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from xsp_ingest.files.content import Source

__all__ = [
    "EACH",
    "TOKEN",
    "Entries",
    "JsonPart",
    "JsonWindow",
    "Targets",
    "check_depth",
    "entries",
    "no_json",
    "open_json",
    "outer_keys",
    "skip",
    "stretch",
    "value",
    "walk",
]


# A bounded stretch of a JSON file at a time, and how to go about in it without parsing what is not needed.


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
        refusals = Refusals(partial(_cut_off, path, "it ends before its JSON does"), partial(_too_long, path))
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
    with open_source(path, _cut_off) as source:
        window = JsonWindow(path, source)
        while len(window.text) < len(_MARK) and window.fill():
            pass
        window.offset = len(_MARK) if window.text[: len(_MARK)] == _MARK else 0
        yield window


def _cut_off(path: Path, why: str) -> BrokenJsonError:
    error = cut_off(path, why)
    return BrokenJsonError(error.what, path=path, advice=error.advice)


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


def no_json(window: JsonWindow) -> BrokenJsonError:
    """What to say of a file that is none."""
    return BrokenJsonError(
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


# The keys at the start of a JSON object, without those of objects in it.

_COLON = re.compile(rb"\s*+:")


def outer_keys(head: bytes) -> Iterator[bytes]:
    """The keys of the outermost object, as written, as far as the text goes."""
    depth = 0
    for token in TOKEN.finditer(head):
        if depth == 1 and token[0][:1] == b'"' and len(token[0]) > 1 and _COLON.match(head, token.end()):
            yield token[0][1:-1]
        depth += (token[0] in b"[{") - (token[0] in b"]}")


# The entries of a large JSON list, a bounded stretch of the file at a time.

T = TypeVar("T", bound=msgspec.Struct)
_LIST = re.compile(rb"\s*+\[")
_OBJECT = re.compile(rb"\s*+\{")
_VALUE_LIST = re.compile(rb"\s*+:\s*+\[")


@dataclass(slots=True)
class Entries:
    """What was odd about a list, counted while it is read."""

    foreign: int = 0  # entries that are no objects
    not_utf8: int = 0  # stretches of the file with bytes that are not UTF-8


def entries(path: Path, kind: type[T], seen: Entries, *, key: bytes | None = None) -> Iterator[list[T]]:
    """The objects of the list in order, some at a time, as values of a msgspec Struct whose fields take anything.

    The list is the file's content or, with `key`, what the object in the file holds under it. XspError where there is
    no such list, it is cut off or nested too deeply, or is no JSON.
    """
    decoder = msgspec.json.Decoder(list[kind | list[Any] | str | int | float | bool | None])  # type: ignore[valid-type]
    with open_json(path) as window:
        if key is None:
            window.expect(_LIST, "the file holds no JSON list")
        else:
            window.expect(_OBJECT, "the file holds no JSON object")
            _find(window, key)
        last = False
        while not last:
            text, last = stretch(window)
            values = _decode_entries(decoder, text, window, seen)
            objects = [entry for entry in values if isinstance(entry, kind)]
            seen.foreign += len(values) - len(objects)
            if objects:
                yield objects


def _find(window: JsonWindow, key: bytes) -> None:
    """Goes into the list under the key of the outermost object."""
    depth, offset, quoted_key = 0, window.offset, b'"' + key + b'"'
    while True:
        match = TOKEN.search(window.text, offset)
        token = match[0] if match else b'"'
        if match is None or token == b'"':
            behind = len(window.text) if match is None else match.start()
            window.offset = behind
            window.more()
            offset = 0
        elif depth == 0 and token == quoted_key:
            window.offset = match.end()
            window.expect(_VALUE_LIST, f"the JSON holds no list `{key.decode()}`")
            return
        else:
            offset = match.end()
            depth += (token in b"[{") - (token in b"]}")
            if depth < 0:
                raise XspError(f"the JSON holds no list `{key.decode()}`", path=window.path)
            check_depth(depth, window)


def _decode_entries(
    decoder: msgspec.json.Decoder[list[Any]], text: bytes, window: JsonWindow, seen: Entries
) -> list[Any]:
    try:
        return decoder.decode(text)
    except UnicodeDecodeError:
        seen.not_utf8 += 1
    except msgspec.DecodeError as error:
        raise no_json(window) from error
    try:
        return decoder.decode(text.decode(errors="replace").encode())
    except msgspec.DecodeError as error:
        raise no_json(window) from error


# Chosen parts of a large JSON document in file order: long lists some entries at a time, short values whole.
#
# A location is the keys that lead to it, with EACH for any entry of a list: `("data", EACH, "spans")`. What leads to no
# target is passed over without being parsed.

EACH = "*"
Location = tuple[str, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Targets:
    """The types of the entries of `lists` and of `values`, by location; and what the document is, for complaints."""

    what: str
    lists: Mapping[Location, Any] = field(default_factory=dict)
    values: Mapping[Location, Any] = field(default_factory=dict)

    def leads(self, location: Location) -> bool:
        """Whether a target is at the location or within."""
        return any(full[: len(location)] == location for full in (*self.lists, *self.values))


@dataclass(frozen=True, slots=True)
class JsonPart:
    """What stands at a location: a value, or some entries of a list; `numbers` has one for each of its EACH."""

    location: Location
    numbers: tuple[int, ...]
    content: Any


def walk(path: Path, targets: Targets) -> Iterator[JsonPart]:
    """The parts of the document at the targets; a list has at least one part, if an empty one.

    XspError where the file is cut off, nested too deeply, no JSON, or a part is not of its type. What stands twice
    comes twice.
    """
    with open_json(path) as window:
        if window.next_byte() not in b"[{":
            raise no_json(window)
        yield from _at(window, (), (), targets)


def _at(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    first = window.next_byte()
    if location in targets.lists and first in b"[":
        for entries in _entries(window, targets.lists[location], targets):
            yield JsonPart(location, numbers, entries)
    elif location in targets.lists:
        raise XspError(
            f"{targets.what} is not as its tool writes it (no list `{location[-1] if location else ''}`)",
            path=window.path,
        )
    elif location in targets.values:
        yield JsonPart(location, numbers, _decode_value(value(window), targets.values[location], window, targets))
    elif first in b"{":
        yield from _members(window, location, numbers, targets)
    elif first in b"[" and targets.leads((*location, EACH)):
        yield from _each(window, location, numbers, targets)
    else:
        skip(window)


def _members(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    window.offset += 1
    while window.next_byte(b" \t\r\n,") not in b"}":
        key = _decode_value(value(window), str, window, targets)
        if window.next_byte() not in b":":
            raise no_json(window)
        window.offset += 1
        inner = (*location, key)
        if key != EACH and targets.leads(inner):
            yield from _at(window, inner, numbers, targets)
        else:
            skip(window)
    window.offset += 1


def _each(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    window.offset += 1
    count = 0
    while window.next_byte(b" \t\r\n,") not in b"]":
        yield from _at(window, (*location, EACH), (*numbers, count), targets)
        count += 1
    window.offset += 1


def _entries(window: JsonWindow, kind: Any, targets: Targets) -> Iterator[list[Any]]:  # noqa: ANN401 (a type msgspec takes)
    window.offset += 1
    last = False
    while not last:
        text, last = stretch(window)
        yield _decode_value(text, list[kind], window, targets)
    window.offset += 1


def _decode_value(text: bytes, kind: type[_T], window: JsonWindow, targets: Targets) -> _T:
    try:
        return _parse_json(text, kind)
    except msgspec.ValidationError as error:
        raise XspError(f"{targets.what} is not as its tool writes it ({error})", path=window.path) from error
    except msgspec.DecodeError as error:
        raise no_json(window) from error
    except RecursionError as error:
        raise XspError(f"{targets.what} is nested too deeply", path=window.path) from error


def _parse_json(text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except UnicodeDecodeError:  # a second copy only where it must be
        return msgspec.json.decode(text.decode("utf-8", errors="replace"), type=kind)
