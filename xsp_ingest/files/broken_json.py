"""JSON as tools really write it: what is broken is mended where it is plain what is meant, else left out and noted.

Sound files never come here: a reader that finds no JSON raises `BrokenJsonError`, and is then given the content anew,
mended on its way. A document is an object or a list; what is lost where something is broken is an entry of its list,
or of a list that is a member of its object.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from xsp_ingest.files.content import pieces
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["BrokenJsonError", "HopelessJsonError", "Mending", "refuse_broken", "sound_value"]

_MAX_ENTRY = 1 << 26
_MAX_LOST = 10_000
_MAX_NAMED = 8
_BLOCK_BYTES = 1 << 18  # that readers are given at once
_AHEAD = 1 << 18  # where the next entry begins is looked for so far first
_MARK = "\xef\xbb\xbf"  # of byte order, as Latin-1


class BrokenJsonError(XspError):
    """The content is no JSON, or ends before its JSON does: another reading may leave out what is broken."""


class HopelessJsonError(BrokenJsonError):
    """So much is broken that what is left is no trace."""


class Cause(StrEnum):
    """What is no JSON in a file."""

    CONTROL = "a raw control character in a text"
    BACKSLASH = "a backslash in a text that escapes nothing"
    QUOTE = "a bare quote within a text"
    BARE = "a bare word in place of a value"
    EMPTY = "no value where one has to be"
    COMMA = "a comma too many, or none between two entries"
    BEHIND = "what stands behind the end of the JSON was not read"
    OPEN = "no bracket at the end of the list, as Chrome's format allows; events may be missing behind its last one"
    STRUCTURE = "no JSON there"
    CUT = "the file ends in it"


@dataclass(slots=True)
class Mending:
    """Rewrites contents, and notes by path and offset what was mended there or left out."""

    mended: dict[tuple[Path, int], Cause] = field(default_factory=dict)
    lost: dict[tuple[Path, int], tuple[Cause, str]] = field(default_factory=dict)
    cut: dict[Path, int] = field(default_factory=dict)
    damaged: set[Path] = field(default_factory=set)  # what is compressed in it is not what was written
    kept: int = 0  # entries

    def rewrite(self, path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The content as sound JSON; as it is, where it is neither object nor list. BrokenJsonError where in vain."""
        held: list[str] = []
        held_bytes = 0
        for piece in _Document(blocks, path, self).pieces():
            held.append(piece)
            held_bytes += len(piece)
            if held_bytes >= _BLOCK_BYTES:
                yield "".join(held).encode("latin-1")
                held, held_bytes = [], 0
        if held_bytes:
            yield "".join(held).encode("latin-1")

    def findings(self) -> Iterator[Finding]:
        """What the ledger says: each entry that was lost by where it stood, and mended places by their cause."""
        for (path, offset), (cause, what) in list(self.lost.items())[:_MAX_NAMED]:
            yield Finding(LedgerKind.BROKEN_ENTRY, f"{what} at byte {offset} of {path.name} was left out: {cause}")
        detail = f"further broken entries, behind the first {_MAX_NAMED}, were left out"
        if len(self.lost) > _MAX_NAMED:
            yield Finding(LedgerKind.BROKEN_ENTRY, detail, len(self.lost) - _MAX_NAMED)
        for path, offset in self.cut.items():
            detail = f"{path.name} ends at byte {offset} before its JSON does: what was to follow is missing"
            if path in self.damaged:
                detail = (
                    f"{path.name} is damaged: what was to follow byte {offset} is missing, earlier values may be wrong"
                )
            yield Finding(LedgerKind.CUT_OFF_JSON, detail)
        for cause in Cause:
            offsets = [offset for (_, offset), why in self.mended.items() if why == cause]
            if offsets:
                done = "" if cause == Cause.BEHIND else "mended, first "
                yield Finding(LedgerKind.MENDED_JSON, f"{cause}: {done}at byte {min(offsets)}", len(offsets))


_STRICT = "Read it without --strict-json"
_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*+(?:\{\s*+["}]|\[\s*+[{\["\]])')


def refuse_broken(path: Path) -> None:
    """BrokenJsonError where the file's content is a JSON document, but not as the standard has it."""
    try:
        is_document = bool(_DOCUMENT.match(next(pieces(path), b"")))
    except XspError:
        return  # nothing comes of what is compressed, as its reader says
    if not is_document:
        return
    mending = Mending()
    for _ in mending.rewrite(path, pieces(path)):
        pass
    mending.mended = {at: cause for at, cause in mending.mended.items() if cause != Cause.BEHIND}  # lines of JSON
    if mending.cut:
        raise BrokenJsonError(f"the file is cut off at byte {mending.cut[path]}", path=path, advice=_STRICT)
    lost = ((at, f"{what} at byte {at[1]}: {cause}") for at, (cause, what) in mending.lost.items())
    faults = dict(lost) | {at: f"{cause} at byte {at[1]}" for at, cause in mending.mended.items()}
    if faults:
        raise BrokenJsonError(f"the file is not valid JSON: {faults[min(faults)]}", path=path, advice=_STRICT)
    decoder, passed = codecs.getincrementaldecoder("utf-8")(), 0
    for block in chain(pieces(path), [b""]):
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = passed - held + error.start
            raise BrokenJsonError(
                f"the file is not valid JSON: no UTF-8 at byte {at}", path=path, advice=_STRICT
            ) from error
        passed += len(block)


# One value that may be broken, as what it must mean.

_DEEPEST = 256
_MAX_TEXT = 1 << 14
_BLANKS = re.compile(r"[ \t\r\n]*+")
_BARE = re.compile(r"[^\s,\]}\[{\":]++")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?")
_LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false"}
_SOUND_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LONE = re.compile(r'\\(?P<kept>[\\"])|\\')
_BARE_QUOTE = re.compile(r'(?P<kept>\\.)|"', re.DOTALL)
_BOUNDARY = re.compile(r'\}\s*+,\s*+\{\s*+"')  # of two entries: no text goes on over it
_ODD = re.compile(r'[\0-\x1f\\"]')
_CONTROL = re.compile(r"[\0-\x1f]")
_KEY = r'"(?:[^"\\]|\\.){0,256}"\s*+:'
# A quote that ends a text by what follows it; the text is a key, the value of a member, an entry of a list.
_BEHIND_KEY = re.compile(r'"(?=\s*+:)')
_BEHIND_MEMBER = re.compile(rf'"(?=\s*+(?:\}}\s*+(?:[,\]}}]|$)|,\s*+{_KEY}))', re.DOTALL)
_NEXT_MEMBER = re.compile(rf"\s*+,\s*+{_KEY}", re.DOTALL)
_BEHIND_ENTRY = re.compile(r'"(?=\s*+[\],])')


class _HopelessError(ValueError):
    """Nobody can say what a value means, or more text is needed to."""


def begun_value(text: str, at: int) -> tuple[str, dict[int, Cause]]:
    """Of a value that is cut off what lists of objects in it hold, all closed; ValueError where that is nothing."""
    value = _Value(text, at)
    try:
        value.mend()
    except _HopelessError:
        return value.beginning()
    raise _HopelessError


def sound_value(text: str, at: int) -> tuple[str, int, dict[int, Cause]]:
    """The value that stands there as sound JSON, its end, and what was mended where; ValueError where in vain."""
    try:
        return _Value(text, at).mend()
    except _HopelessError:  # a text may end in a backslash, as paths of folders do on Windows
        return _Value(text, at, may_end_escaped=True).mend()


class _Value:
    def __init__(self, text: str, at: int, *, may_end_escaped: bool = False) -> None:
        self._text = text
        self._at = at
        self._may_end_escaped = may_end_escaped
        self._out: list[str] = []
        self._causes: dict[int, Cause] = {}
        self._closed = 0, ""  # how much of it is out when an object in a list ends, and what closes it then

    def beginning(self) -> tuple[str, dict[int, Cause]]:
        count, closers = self._closed
        if not count:
            raise _HopelessError
        return "".join(self._out[:count]) + closers, self._causes

    def mend(self) -> tuple[str, int, dict[int, Cause]]:
        closers: list[str] = []
        self._value(closers)
        while closers:
            char = self._next()
            begins = self._out[-1] in {"[", "{"}
            if char == closers[-1]:
                closers.pop()
                self._take(char)
                if char == "}" and closers[-1:] == ["]"]:
                    self._closed = len(self._out), "".join(reversed(closers))
            elif begins:
                self._entry(closers)
            elif char == ",":
                self._take(char)
                if self._next() == closers[-1]:
                    self._note(Cause.COMMA)
                    self._out.pop()
                else:
                    self._entry(closers)
            else:
                raise _HopelessError
        return "".join(self._out), self._at, self._causes

    def _next(self) -> str:
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> None:
        self._out.append(char)
        self._at += 1

    def _note(self, cause: Cause) -> None:
        self._causes.setdefault(self._at, cause)

    def _entry(self, closers: list[str]) -> None:
        """An entry of the list that is open, or a member of the object."""
        if closers[-1] == "}":
            if self._next() != '"':
                raise _HopelessError
            self._string(_BEHIND_KEY)
            if self._next() != ":":
                raise _HopelessError
            self._take(":")
        self._value(closers)

    def _value(self, closers: list[str]) -> None:
        char = self._next()
        if char in {"[", "{"}:
            if len(closers) >= _DEEPEST:
                raise _HopelessError
            self._take(char)
            closers.append("]" if char == "[" else "}")
        elif char == '"':
            self._string(_BEHIND_ENTRY if closers[-1:] == ["]"] else _BEHIND_MEMBER)
        elif char in {",", "}"} and self._out[-1:] == [":"]:
            self._note(Cause.EMPTY)
            self._out.append("null")
        else:
            self._literal()

    def _literal(self) -> None:
        bare = _BARE.match(self._text, self._at)
        if bare is None or bare.end() == len(self._text):
            raise _HopelessError
        literal = _LITERALS.get(bare[0]) or (bare[0] if _NUMBER.fullmatch(bare[0]) else None)
        if literal is None:
            self._note(Cause.BARE)
        self._out.append(literal or "null")
        self._at = bare.end()

    def _string(self, behind: re.Pattern[str]) -> None:
        """A text, which ends at the first quote behind which stands what follows such texts."""
        start = self._at + 1
        between = _BOUNDARY.search(self._text, start, start + _MAX_TEXT)
        for quote in behind.finditer(self._text, start, between.end() if between else start + _MAX_TEXT):
            end = quote.start()
            if self._may_end_escaped or not self._is_escaped(end, start):
                break
            if behind is _BEHIND_MEMBER and _NEXT_MEMBER.match(self._text, end + 1):
                break  # the backslash is a path's last character
        else:
            raise _HopelessError
        self._out.append(f'"{self._sound_text(self._text[start:end])}"')
        self._at = end + 1

    def _is_escaped(self, at: int, start: int) -> bool:
        """Whether an odd number of backslashes stands before the place."""
        before = at
        while before > start and self._text[before - 1] == "\\":
            before -= 1
        return (at - before) % 2 == 1

    def _sound_text(self, text: str) -> str:
        if not _ODD.search(text):
            return text
        if "\\" in _SOUND_ESCAPE.sub("", text):  # then none of its backslashes escapes more than a quote or another
            self._note(Cause.BACKSLASH)
            text = _LONE.sub(lambda each: each[0] if each["kept"] else r"\\", text)
        if '"' in _SOUND_ESCAPE.sub("", text):
            self._note(Cause.QUOTE)
            text = _BARE_QUOTE.sub(lambda each: each["kept"] or r"\"", text)
        if _CONTROL.search(text):
            self._note(Cause.CONTROL)
            text = _CONTROL.sub(lambda each: f"\\u{ord(each[0]):04x}", text)
        return text


# A document of any length, as pieces of text, a byte of the content a character.


def _refuse_constant(literal: str) -> NoReturn:
    raise _HopelessError(literal)  # NaN and Infinity, which are no JSON


_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).raw_decode
_MAX_NEAR = 16  # an error as near to the end of what is at hand may be one for want of more
_NAME = re.compile(r'"name"\s*+:\s*+"([^"\\]{1,80})')
_MEMBER_KEY = re.compile(r'"[^"\\]*+"\s*+:')
_END_OF_ALL = re.compile(r"\}\s*+(\])(?=\s*+$)")
_END_OF_MEMBER = re.compile(r'\}\s*+(\])(?=\s*+(?:\}\s*+$|,\s*+"[^"\\]*+"\s*+:))')
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_OBJECTS = re.compile(r"\[\s*+\{")
_EVENT = re.compile(r'"ph"\s*+:')
_MAX_TRIES = 64
_EVENTS = re.compile(r'"traceEvents"\s*+:\s*+(?=\[)')


def _shares(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _AHEAD):
            yield block[start : start + _AHEAD]


class _Document:
    def __init__(self, blocks: Iterator[bytes], path: Path, notes: Mending) -> None:
        self._blocks = _shares(blocks)  # small, as the decoder counts the lines of all text before an error
        self._path = path
        self._notes = notes
        self._text = ""
        self._at = 0
        self._passed = 0  # characters that have left the text
        self._has_ended = False
        self._breaks_off = False  # within an entry, or what is compressed
        self._looked_until = 0
        self._first_keys: dict[str, None] = {}  # that entries of lists begin with

    def pieces(self) -> Iterator[str]:
        self._fill()
        self._at = len(_MARK) if self._text.startswith(_MARK) else 0
        char = self._next()
        if char not in {"[", "{"}:
            self._at = 0
            while self._text:
                yield self._text
                self._at = len(self._text)
                self._fill()
            return
        self._at += 1
        yield char
        yield from self._list(is_all=True) if char == "[" else self._object()
        if self._next():
            self._note(self._at, Cause.BEHIND)
        elif self._path in self._notes.damaged:
            self._cut()

    def _fill(self) -> bool:
        """Adds the next block; False at the end."""
        try:
            block = b"" if self._has_ended else next(self._blocks, b"")
        except XspError as error:  # what is compressed breaks off
            block, self._breaks_off = b"", True
            if error.what.endswith("damaged"):
                self._notes.damaged.add(self._path)
        self._has_ended = not block
        self._drop_used()
        self._text += block.decode("latin-1")
        if len(self._text) > _MAX_ENTRY:
            raise BrokenJsonError(f"an entry of the JSON is longer than {_MAX_ENTRY >> 20} MiB", path=self._path)
        return not self._has_ended

    def _drop_used(self) -> None:
        self._text, self._passed, self._at = self._text[self._at :], self._passed + self._at, 0

    def _next(self) -> str:
        """The next character that is no blank, at which the place is then; nothing at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text) or not self._fill():
                return self._text[self._at : self._at + 1]

    def _note(self, at: int, cause: Cause) -> None:
        self._notes.mended[self._path, self._passed + at] = cause

    def _cut(self) -> None:
        self._notes.cut.setdefault(self._path, self._passed + len(self._text))

    def _object(self) -> Iterator[str]:
        """The members of the outermost object."""
        between = ""
        while char := self._next():
            if char == "}":
                self._at += 1
                yield char
                return
            key = self._key()
            if key is None:
                yield from self._events_behind(between)
                return
            yield between + key
            between = ","
            if self._next() == "[":
                self._at += 1
                yield "["
                yield from self._list(is_all=False)
            else:
                value = self._value()
                if value is None:
                    yield "null"
                    yield from self._events_behind(between)
                    return
                yield value
            self._pass_comma("}")
        self._cut()
        yield "}"

    def _key(self) -> str | None:
        while (key := _MEMBER_KEY.match(self._text, self._at)) is None:
            if len(self._text) - self._at > _AHEAD or not self._fill():
                return None
        self._at = key.end()
        return key[0]

    def _events_behind(self, between: str) -> Iterator[str]:
        """What is left of an object a member of which cannot be told from the next: its events, if they are to come."""
        self._lose(self._passed + self._at, "a member of the outermost object", Cause.STRUCTURE)
        while (events := _EVENTS.search(self._text, self._at)) is None:
            self._at = max(self._at, len(self._text) - _AHEAD)
            if not self._fill():
                yield "}"
                return
        self._at = events.end()
        yield between + events[0]
        self._at += 1
        yield "["
        yield from self._list(is_all=False)
        yield from self._object() if self._next() else "}"

    def _list(self, *, is_all: bool) -> Iterator[str]:
        """The entries of a list, without a broken one, and its end."""
        between = ""
        while char := self._next():
            if char == "]":
                self._at += 1
                yield char
                return
            value = self._sound_stretch() or self._value()
            if value is not None:
                self._notes.kept += 1
                yield between + value
                between = ","
                self._pass_comma("]")
            else:
                self._resume(_END_OF_ALL if is_all else _END_OF_MEMBER)
        if is_all and not self._breaks_off:
            self._note(self._at, Cause.OPEN)
        else:
            self._cut()
        yield "]"

    def _sound_stretch(self) -> str:
        """The entries at hand, if none of them is broken: looking at each takes many times as long."""
        if self._passed + self._at < self._looked_until or not self._first_keys:
            return ""
        end = self._at
        for between in re.finditer(rf'\}}\s*+,\s*+\{{\s*+"(?:{self._keys()})"\s*+:', self._text[self._at :]):
            end = self._at + between.start() + 1
        self._looked_until = self._passed + max(end, self._at + 1)
        stretch = self._text[self._at : end]
        try:
            count = len(msgspec.json.decode(b"[%b]" % stretch.encode("latin-1"), type=list[dict[str, Any]]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        self._notes.kept += max(count - 1, 0)
        self._at = end
        return stretch

    def _keys(self) -> str:
        return "|".join(map(re.escape, self._first_keys))

    def _pass_comma(self, closer: str) -> None:
        """Goes to the next entry or the end of them; notes where not one comma is before an entry, or any before it."""
        commas = 0
        while (char := self._next()) == ",":
            self._at += 1
            commas += 1
        if char and commas != (char != closer):
            self._note(self._at, Cause.COMMA)

    def _value(self) -> str | None:
        """The value that stands here, mended where it has to be, the place behind it; None where it is lost."""
        while True:
            start = self._at
            try:
                value, end = _decode(self._text, start)
            except RecursionError as error:
                raise BrokenJsonError("the JSON is nested too deeply", path=self._path) from error
            except ValueError as error:
                error_at = getattr(error, "pos", start)
                is_short = "Unterminated" in str(error) or error_at > len(self._text) - _MAX_NEAR
                if is_short and self._fill():
                    continue
                return self._mended_value(error_at - start)
            if end == len(self._text) and not self._has_ended:  # a number may go on
                self._fill()
                continue
            if len(self._first_keys) < _MAX_NAMED and isinstance(value, dict) and value:
                self._first_keys[next(iter(value))] = None
            self._at = end
            return self._text[start:end]

    def _mended_value(self, error_at: int) -> str | None:
        self._drop_used()
        while len(self._text) - self._at - error_at < _AHEAD and self._fill():
            pass
        start = self._at
        try:
            value, end, causes = sound_value(self._text[start : start + error_at + _AHEAD], 0)
            _decode(value)
        except ValueError:
            return self._begun_value()
        for offset, cause in causes.items():
            self._note(start + offset, cause)
        self._at = start + end
        return value

    def _begun_value(self) -> str | None:
        """What a value holds whose end is missing, if it is no event: such are lost as a whole."""
        if not self._has_ended or _EVENT.search(self._text, self._at):
            return None
        try:
            value, causes = begun_value(self._text, self._at)
        except ValueError:
            return None
        for offset, cause in causes.items():
            self._note(offset, cause)
        self._at, self._breaks_off = len(self._text), True
        return value

    def _resume(self, list_end: re.Pattern[str]) -> None:
        """Goes to the next entry that begins as others did, or to the list's end; the entry here is lost."""
        start = self._passed + self._at
        keys = self._keys() or r'[^"\\]{1,60}'
        begin = re.compile(rf'[,}}\]]\s*+(\{{\s*+"(?:{keys})"\s*+:)')
        while (behind := self._first_outside(begin)) is None and self._fill():
            pass
        behind = self._first_outside(list_end) if behind is None else behind
        end = len(self._text) if behind is None else behind
        name = _NAME.search(self._text, self._at, end)
        what = f"an entry ({name[1].encode('latin-1').decode(errors='replace')})" if name else "an entry"
        self._lose(start, what, Cause.CUT if behind is None else Cause.STRUCTURE)
        self._at, self._breaks_off = end, behind is None

    def _first_outside(self, pattern: re.Pattern[str]) -> int | None:
        """Where the pattern's group begins first that is in no list of objects within the entry that stands here."""
        for match in islice(pattern.finditer(self._text, self._at + 1), _MAX_TRIES):
            unclosed: list[int] = []
            for token in _TOKEN.finditer(self._text, self._at, match.start(1)):
                if token[0] in {"[", "{"}:
                    unclosed.append(token.start())
                elif token[0] in {"]", "}"} and unclosed:
                    unclosed.pop()
            if not (unclosed and _OBJECTS.match(self._text, unclosed[-1])):
                return match.start(1)
        return None

    def _lose(self, start: int, what: str, cause: Cause) -> None:
        self._notes.lost.setdefault((self._path, start), (cause, what))
        if len(self._notes.lost) > max(_MAX_LOST, self._notes.kept // 10):
            raise HopelessJsonError(f"more than {_MAX_LOST} entries of the JSON are broken", path=self._path)
