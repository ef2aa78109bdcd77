"""The plain scanner of large PyTorch traces: events decoded by msgspec some megabytes at a time."""

from __future__ import annotations

import gc
import json
import re
from array import array
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import lru_cache
from itertools import compress
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from xsp_ingest.files.content import ContentWindow, Refusals, open_source
from xsp_ingest.formats.torch_profiler.events import (
    ARGS,
    DETAIL_COLUMNS,
    EVENT_COLUMNS,
    FRAME_COLUMNS,
    FRAMEWORK_FRAMES,
    JSON_ARGS,
    MODULE_PREFIX,
    UNREAD_FLOWS,
    Document,
)
from xsp_ingest.formats.torch_profiler.scan_plain import CannotScan, cut_off, integer, microseconds_to_ns, parse_json
from xsp_model import XspError
from xsp_model.columns.arrays import series
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints

__all__ = ["INT64_MIN_DIGITS", "Categories", "Columns", "Event", "Moments", "Sizes", "documents", "numbers"]

# Events as msgspec decodes them, and the columns of many of them.

NULL = -(1 << 63)
_MAX_MICROSECONDS = (1 << 63) // 1000
_POINT, _LINE_END = b".\n"
_WITHOUT_POINT = re.compile(rb"^(\d+)$", re.MULTILINE)


class Categories(dict[Any, int]):
    """Distinct texts by number, as they come: `str`, or what msgspec left as JSON; -1 for None."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._texts: dict[str, int] = {}

    def __missing__(self, text: str | bytes | None) -> int:
        if text is None:
            return -1
        category = json.dumps(parse_json(text, Path())) if isinstance(text, bytes) else text
        self[text] = number = self._texts.setdefault(category, len(self._texts))
        return number

    def ids(self, texts: Iterable[Any]) -> array[int]:
        """Their numbers."""
        return array("i", map(self.__getitem__, texts))

    def series(self, ids: NDArray[np.int32]) -> pl.Series:
        """The texts of these numbers."""
        texts = pl.Series(self._name, list(self._texts), dtype=EVENT_COLUMNS[self._name])
        return texts.gather(series(self._name, ids, ids >= 0))


class Sizes(dict[bytes, tuple[int, int, int]]):
    """The first three numbers of a list by its text; few texts differ."""

    def __missing__(self, text: bytes) -> tuple[int, int, int]:
        value = parse_json(text, Path()) if text else None
        sizes = [integer(each) for each in value[:3]] if isinstance(value, list) else []
        x, y, z = (NULL if each is None else each for each in (*sizes, *[None] * (3 - len(sizes))))
        self[text] = x, y, z
        return x, y, z

    def columns(self, texts: Iterable[Any]) -> Iterable[array[int]]:
        """Three columns, a row a text; null where it is None or has fewer."""
        sizes = map(self.__getitem__, (b"" if text is None else bytes(text) for text in texts))
        return (array("q", axis) for axis in zip(*sizes, strict=True))


class Moments:
    """Microseconds as written, a line each, an empty one where there are none."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._count = 0

    def add(self, texts: Sequence[Any]) -> None:
        """Adds msgspec.Raw, or None."""
        try:
            lines = b"\n".join(texts)
        except TypeError:
            lines = b"\n".join([b"" if text is None else text for text in texts])
        self._lines.append(lines)
        self._count += len(texts)

    def nanoseconds(self) -> Ints:
        """Of each the ns, null where there is no such number; CannotScan where one takes several lines."""
        lines = b"\n".join(self._lines)
        if lines.count(b"\n") != self._count - 1:
            raise CannotScan
        values = _plain(lines, self._count)
        if values is None:
            values = _with_nulls((_moment(line) for line in lines.split(b"\n")), self._count)
        return values


def _plain(lines: bytes, count: int) -> Ints | None:
    """Where all are plain digits, or these with three decimals; else None."""
    points = lines.count(b".")
    characters = np.frombuffer(lines + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(characters == _LINE_END)
    there = np.diff(ends, prepend=-1) > 1
    if points not in {0, int(there.sum())}:
        lines = _WITHOUT_POINT.sub(rb"\1.000", lines)
        return _plain(lines, count) if lines.count(b".") != points else None
    if points and not (characters[ends[there] - 4] == _POINT).all():
        return None
    digits = lines.replace(b".", b"")
    if not digits.replace(b"\n", b"").isdigit():
        return None if there.any() else np.full(count, NULL)
    values = pl.Series([digits.decode()]).str.split("\n").explode().cast(pl.Int64, strict=False)
    if values.null_count() != count - int(there.sum()):
        return None
    numbers = values.fill_null(0).to_numpy()
    if not points and numbers.max() >= _MAX_MICROSECONDS:
        return None
    return np.where(there, numbers if points else numbers * 1000, NULL)


def _moment(line: bytes) -> int | None:
    return microseconds_to_ns(parse_json(line, Path())) if line else None


def numbers(name: str, values: Ints) -> pl.Series:
    """Whole numbers as a column."""
    return series(name, values, values != NULL)


def integers(values: Sequence[Any]) -> array[int]:
    """Whole numbers; text of digits counts as its number, other text and what int64 does not hold are null."""
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        parsed = (_of_text(value) if isinstance(value, str) else integer(value) for value in values)
        return array("q", (NULL if value is None else value for value in parsed))


_of_text = lru_cache(1 << 12)(integer)


def _with_nulls(values: Iterable[int | None], count: int) -> Ints:
    return np.fromiter((NULL if value is None else value for value in values), np.int64, count)


INT64_MIN_DIGITS = b"9223372036854775808"
"""Where it stands in a file, a number may be what the columns have for null."""
_Number = int | str | None  # of another type, it is left to `scan_plain`
_PYTHON = "python_function"
_AXES = {key: tuple(f"{key}_{axis}" for axis in "xyz") for key in ("grid", "block")}
_TEXTS = {key: column for column, keys in JSON_ARGS.items() for key in keys}
_KEYS = {**{key: column for column, keys in ARGS.items() for key in keys}, **_TEXTS, **dict.fromkeys(_AXES, "")}
_NUMBERS = tuple(name for name, kind in EVENT_COLUMNS.items() if kind == pl.Int64)
_CATEGORICAL = tuple(name for name in EVENT_COLUMNS if name not in _NUMBERS)
_DETAILS = tuple(name for name in DETAIL_COLUMNS if name != "event")


def _field(key: str, number: int) -> tuple[str, Any, Any]:
    kind, default = (_Number, NULL) if key not in _TEXTS and key not in _AXES else (msgspec.Raw, None)
    return f"f{number}", kind, msgspec.field(default=default, name=key)


if TYPE_CHECKING:
    _Args = Any
else:
    _Args = msgspec.defstruct("_Args", [_field(key, number) for number, key in enumerate(_KEYS)], gc=False)
_NO_ARGS = _Args()


class Event(msgspec.Struct, gc=False):
    """An event as it stands in the file; numbers with a fraction as their text, for floats lose digits.

    What is absent is None, an integer the smallest there is.
    """

    ph: str | None = None
    cat: str | None = None
    name: str = ""
    ts: msgspec.Raw = None  # type: ignore[assignment]
    dur: msgspec.Raw = None  # type: ignore[assignment]
    pid: _Number = NULL
    tid: _Number = NULL
    id: _Number = NULL
    args: _Args | None = None


class Columns:
    """The columns of events, as both other scanners give them."""

    def __init__(self, *, frames: bool = True) -> None:
        self.rows = 0
        self.python_frames = 0
        self._wants_frames = frames
        self._frames: list[pl.DataFrame] = []
        self.unread_flows: Counter[str] = Counter()
        self._passed = 0  # events, of use or not, since the last frames
        self._categories = {name: Categories(name) for name in _CATEGORICAL}
        self._sizes = Sizes()
        self._groups: dict[str | None, _Group] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Adds events; CannotScan or an error of msgspec's where another scanner should read them.

        Those of one category have the same keys: column by column there is little to ask of them.
        """
        by_category: dict[str | None, list[Event]] = defaultdict(list)
        indices: dict[str | None, list[int]] = defaultdict(list)
        for index, event in enumerate(events, self._passed):
            by_category[event.cat].append(event)
            indices[event.cat].append(index)
        self._passed += len(events)
        for category, some in by_category.items():
            if category == _PYTHON:
                self._add(category, *self._modules(some, indices[category]))
            elif category in UNREAD_FLOWS:
                self.unread_flows[str(category)] += len(some)
            else:
                self._add(category, some, indices[category])

    def _add(self, category: str | None, events: Sequence[Event], indices: Sequence[int]) -> None:
        if events:
            if category not in self._groups:
                self._groups[category] = _Group(self._categories, self._sizes)
            self._groups[category].add(events, indices)
            self.rows += len(events)

    def _modules(self, events: Sequence[Event], indices: Sequence[int]) -> tuple[list[Event], list[int]]:
        """Of Python's frames those that are modules'; the others are counted, and kept apart."""
        is_module = [event.name.startswith(MODULE_PREFIX) for event in events]
        functions = [event for event in compress(events, map(not_, is_module)) if event.ph == "X"]
        self.python_frames += len(functions)
        if self._wants_frames:
            self._add_frames([event for event in functions if not event.name.startswith(FRAMEWORK_FRAMES)])
        return list(compress(events, is_module)), list(compress(indices, is_module))

    def _add_frames(self, functions: Sequence[Event]) -> None:
        if not functions:
            return
        moments = {"ts_ns": Moments(), "dur_ns": Moments()}
        for column, texts in (("ts_ns", [e.ts for e in functions]), ("dur_ns", [e.dur for e in functions])):
            moments[column].add(texts)
        columns: dict[str, Ints] = {name: each.nanoseconds() for name, each in moments.items()}
        columns |= {
            "pid": np.array(integers([e.pid for e in functions])),
            "tid": np.array(integers([e.tid for e in functions])),
        }
        names = pl.Series("name", [e.name for e in functions], dtype=FRAME_COLUMNS["name"])
        rows = pl.DataFrame([names, *(numbers(name, values) for name, values in columns.items())])
        self._frames.append(rows.drop_nulls(["ts_ns", "dur_ns"]))

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Frames of EVENT_COLUMNS, DETAIL_COLUMNS and FRAME_COLUMNS of the events since the last ones."""
        kept = np.zeros(self._passed + 1, dtype=np.int64)
        for group in self._groups.values():
            kept[np.array(group.indices) + 1] = 1
        rows = np.cumsum(kept)
        columns = {name: np.full(self.rows, NULL) for name in (*_NUMBERS, *_DETAILS)}
        columns |= {name: np.full(self.rows, -1, dtype=np.int32) for name in _CATEGORICAL}
        for group in self._groups.values():
            group.fill(columns, rows[group.indices])
        self._groups, self._passed, self.rows = {}, 0, 0
        events = [
            self._categories[name].series(columns[name]) if name in _CATEGORICAL else numbers(name, columns[name])
            for name in EVENT_COLUMNS
        ]
        detailed = np.flatnonzero(np.logical_or.reduce([columns[name] != NULL for name in _DETAILS]))
        details = [numbers("event", detailed), *(numbers(name, columns[name][detailed]) for name in _DETAILS)]
        functions, self._frames = pl.concat([pl.DataFrame(schema=dict(FRAME_COLUMNS)), *self._frames]), []
        return pl.DataFrame(events), pl.DataFrame(details), functions


class _Group:
    """Events of one category: their indices among all, and columns, which may lack values at the end."""

    def __init__(self, categories: Mapping[str, Categories], sizes: Sizes) -> None:
        self.indices = array("q")
        self._categories = categories
        self._sizes = sizes
        self._columns: dict[tuple[str, str], array[int]] = {}
        self._moments = {"ts_ns": Moments(), "dur_ns": Moments()}

    def add(self, events: Sequence[Event], indices: Sequence[int]) -> None:
        """Adds events."""
        ph, cat, name, ts, dur, pid, tid, flow, args = zip(*map(msgspec.structs.astuple, events), strict=True)
        for column, texts in (("ph", ph), ("cat", cat), ("name", name)):
            self._extend("", column, self._categories[column].ids(texts))
        for column, moments in (("ts_ns", ts), ("dur_ns", dur)):
            self._moments[column].add(moments)
        for column, values in (("pid", pid), ("tid", tid), ("flow_id", flow)):
            self._extend("", column, integers(values))
        if args.count(None) < len(args):
            having = (_NO_ARGS if each is None else each for each in args)
            for key, values in zip(_KEYS, zip(*map(msgspec.structs.astuple, having), strict=True), strict=True):
                self._add_argument(key, values)
        self.indices.extend(indices)

    def _add_argument(self, key: str, values: Sequence[Any]) -> None:
        absent = None if key in _TEXTS or key in _AXES else NULL
        if values[0] is absent and values.count(absent) == len(values):
            return
        if key in _AXES:
            for axis, sizes in zip(_AXES[key], self._sizes.columns(values), strict=True):
                self._extend(key, axis, sizes)
        elif key in _TEXTS:
            self._extend(key, _KEYS[key], self._categories[_KEYS[key]].ids(map(_bytes, values)))
        else:
            self._extend(key, _KEYS[key], integers(values))

    def _extend(self, key: str, column: str, values: array[int]) -> None:
        """Adds values to the column of a key, after those that earlier events lack."""
        values_of_key = self._columns.setdefault((key, column), array(values.typecode))
        if lacking := len(self.indices) - len(values_of_key):
            values_of_key.extend(array(values.typecode, [NULL if values.typecode == "q" else -1]) * lacking)
        values_of_key.extend(values)

    def fill(self, columns: Mapping[str, NDArray[Any]], rows: Ints) -> None:
        """Puts the values into these rows; of several spellings of a key the preferred one, which comes first, wins."""
        for name, moments in self._moments.items():
            columns[name][rows] = moments.nanoseconds()
        for key in ("", *_KEYS):
            for (its, name), values in self._columns.items():
                if its == key:
                    _fill(columns[name], rows[: len(values)], np.frombuffer(values, dtype=columns[name].dtype))


def _fill(column: NDArray[Any], rows: Ints, values: NDArray[Any]) -> None:
    is_open = column[rows] == (NULL if column.dtype == np.int64 else -1)
    column[rows[is_open]] = values[is_open]


def _bytes(text: Any) -> bytes | None:  # noqa: ANN401 (msgspec.Raw or None)
    return None if text is None else bytes(text)


# The plain path: events decoded by msgspec some megabytes at a time, where nothing compiled is at hand or worth it.
#
# What msgspec does not read as Python's `json` does (NaN, text that is no UTF-8, names that are numbers) is left to
# that.

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
    with open_source(path, cut_off) as source:
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
        head = parse_json(before + json.dumps(_LIST).encode() + behind, path)
    except XspError as error:
        raise CannotScan from error
    if head.pop("traceEvents", None) != _LIST:  # another one came later
        raise CannotScan
    return head  # type: ignore[no-any-return]
