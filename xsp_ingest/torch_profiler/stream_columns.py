"""Events as msgspec decodes them, and the columns of many of them."""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import polars as pl

from xsp_ingest.torch_profiler.events import ARGS, DETAIL_COLUMNS, EVENT_COLUMNS, MODULE_PREFIX, UNREAD_FLOWS
from xsp_ingest.torch_profiler.scan_plain import _parse, microseconds_to_ns, whole_number
from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from xsp_model.arrays import Ints

__all__ = ["LEAST", "Columns", "Event"]

_NULL = -(1 << 63)
LEAST = b"9223372036854775808"
"""Where it stands in a file, a number may be what the columns have for null."""

_Number = int | str | None  # of another type, it is left to `scan_plain`
_PYTHON = "python_function"
_AXES = {key: tuple(f"{key}_{axis}" for axis in "xyz") for key in ("grid", "block")}
_TEXTS = {"Input Dims": "input_dims", "Input dims": "input_dims", "Input type": "input_types"}
_KEYS = {**{key: column for column, keys in ARGS.items() for key in keys}, **_TEXTS, **dict.fromkeys(_AXES, "")}
_NUMBERS = tuple(name for name, kind in EVENT_COLUMNS.items() if kind == pl.Int64)
_WORDS = tuple(name for name in EVENT_COLUMNS if name not in _NUMBERS)
_AXIS_NAMES = tuple(name for names in _AXES.values() for name in names)
_MOST_MICROSECONDS = (1 << 63) // 1000
_POINT, _LINE_END = b".\n"
_WITHOUT_POINT = re.compile(rb"^(\d+)$", re.MULTILINE)


def _field(key: str, number: int) -> tuple[str, Any, Any]:
    kind, default = (_Number, _NULL) if key not in _TEXTS and key not in _AXES else (msgspec.Raw, None)
    return f"f{number}", kind, msgspec.field(default=default, name=key)


if TYPE_CHECKING:
    _Args = Any
else:
    _Args = msgspec.defstruct("_Args", [_field(key, number) for number, key in enumerate(_KEYS)], gc=False)


class Event(msgspec.Struct, gc=False):
    """An event as it stands in the file; numbers with a fraction as their text, for floats lose digits.

    What is absent is None, a whole number the least there is.
    """

    ph: str | None = None
    cat: str | None = None
    name: str = ""
    ts: msgspec.Raw = None  # type: ignore[assignment]
    dur: msgspec.Raw = None  # type: ignore[assignment]
    pid: _Number = _NULL
    tid: _Number = _NULL
    id: _Number = _NULL
    args: _Args | None = None


class Columns:
    """The columns of events, as both other scanners give them."""

    def __init__(self) -> None:
        self.rows = 0
        self.python_frames = 0
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._words = {name: _Words(name) for name in _WORDS}
        self._sizes = _Sizes()

    def add(self, events: Sequence[Event]) -> None:
        """Adds events; CannotScan or an error of msgspec's where another scanner should read them.

        Those of one category have the same keys: column by column there is little to ask of them.
        """
        places: dict[str | None, list[int]] = defaultdict(list)
        for place, event in enumerate(events):
            places[event.cat].append(place)
        if _PYTHON in places:
            places[_PYTHON] = self._modules(events, places[_PYTHON])
        groups = [np.array(each, dtype=np.int64) for cat, each in places.items() if each and cat not in UNREAD_FLOWS]
        kept = np.zeros(len(events) + 1, dtype=np.int64)
        for group in groups:
            kept[group + 1] = 1
        rows = np.cumsum(kept)
        part = _empty(int(rows[-1]))
        for group in groups:
            self._fill(part, rows[group], [events[place] for place in group.tolist()])
        self._parts.append(part)
        self.rows += int(rows[-1])

    def _modules(self, events: Sequence[Event], places: Sequence[int]) -> list[int]:
        """Of Python's frames those that are modules'; the others are counted."""
        modules = [place for place in places if events[place].name.startswith(MODULE_PREFIX)]
        if len(modules) < len(places):
            known = set(modules)
            self.python_frames += sum(events[place].ph == "X" for place in places if place not in known)
        return modules

    def _fill(self, part: dict[str, NDArray[Any]], rows: Ints, events: Sequence[Event]) -> None:
        """Puts the events' values into these rows."""
        ph, cat, name, ts, dur, pid, tid, flow, args = zip(*map(msgspec.structs.astuple, events), strict=True)
        for column, values in (("ph", ph), ("cat", cat), ("name", name)):
            part[column][rows] = self._words[column].codes(values)
        for column, texts in (("ts_ns", ts), ("dur_ns", dur)):
            part[column][rows] = _nanoseconds(texts)
        for column, numbers in (("pid", pid), ("tid", tid), ("flow_id", flow)):
            part[column][rows] = _whole(numbers)
        having = [place for place, each in enumerate(args) if each is not None]
        if having:
            columns = zip(*map(msgspec.structs.astuple, (args[place] for place in having)), strict=True)
            for (key, column), values in zip(_KEYS.items(), columns, strict=True):
                self._fill_argument(part, rows[having], key, column, values)

    def _fill_argument(
        self, part: dict[str, NDArray[Any]], rows: Ints, key: str, column: str, values: Sequence[Any]
    ) -> None:
        """Likewise of a key of `args`; of several spellings the preferred one, which comes first, wins."""
        absent = None if key in _TEXTS or key in _AXES else _NULL
        if values[0] is absent and values.count(absent) == len(values):
            return
        if key in _AXES:
            for axis, sizes in zip(_AXES[key], self._sizes.columns(values), strict=True):
                part[axis][rows] = sizes
            return
        found = self._words[column].codes(map(_bytes, values)) if key in _TEXTS else _whole(values)
        open_rows = part[column][rows] == (-1 if key in _TEXTS else _NULL)
        if open_rows.all():
            part[column][rows] = found
        else:
            part[column][rows[open_rows]] = found[open_rows]

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Frames of EVENT_COLUMNS and DETAIL_COLUMNS of the events since the last ones."""
        parts = self._parts or [_empty(0)]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._parts, self.rows = [], 0
        events = [
            self._words[name].series(columns[name]) if name in self._words else _numbers(name, columns[name])
            for name in EVENT_COLUMNS
        ]
        names = [name for name in DETAIL_COLUMNS if name != "event"]
        detailed = np.flatnonzero(np.logical_or.reduce([columns[name] != _NULL for name in names]))
        details = [_numbers("event", detailed), *(_numbers(name, columns[name][detailed]) for name in names)]
        return pl.DataFrame(events), pl.DataFrame(details)


def _empty(count: int) -> dict[str, NDArray[Any]]:
    numbers = {name: np.full(count, _NULL) for name in (*_NUMBERS, *DETAIL_COLUMNS) if name != "event"}
    return numbers | {name: np.full(count, -1, dtype=np.int32) for name in _WORDS}


def _bytes(text: Any) -> bytes | None:  # noqa: ANN401 (msgspec.Raw or None)
    return None if text is None else bytes(text)


class _Words(dict[Any, int]):
    """Distinct texts by number, as they come: `str`, or for JSON its bytes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words: dict[str, int] = {}

    def __missing__(self, text: Any) -> int:  # noqa: ANN401 (str, bytes or None)
        if text is None:
            return -1
        word = json.dumps(_parse(text, Path())) if isinstance(text, bytes) else text
        self[text] = code = self._words.setdefault(word, len(self._words))
        return code

    def codes(self, texts: Iterable[Any]) -> NDArray[np.int32]:
        """Their numbers; -1 for None."""
        return np.fromiter(map(self.__getitem__, texts), dtype=np.int32)

    def series(self, codes: NDArray[np.int32]) -> pl.Series:
        """The texts of these numbers."""
        known = pl.Series(self._name, list(self._words), dtype=pl.Categorical)
        return known.gather(scratch.series(self._name, codes, codes >= 0))


class _Sizes(dict[bytes, tuple[int, int, int]]):
    """Three numbers of a list's text; few differ."""

    def __missing__(self, text: bytes) -> tuple[int, int, int]:
        value = _parse(text, Path())
        sizes = [whole_number(each) for each in value[:3]] if isinstance(value, list) else []
        x, y, z = (_NULL if each is None else each for each in (*sizes, *[None] * (3 - len(sizes))))
        self[text] = x, y, z
        return x, y, z

    def columns(self, texts: Sequence[Any]) -> Ints:
        """Three rows, a column a text; null where it is None or has fewer."""
        found = [(_NULL, _NULL, _NULL) if text is None else self[bytes(text)] for text in texts]
        return np.array(found, dtype=np.int64).T


def _numbers(name: str, values: Ints) -> pl.Series:
    return scratch.series(name, values, values != _NULL)


def _whole(values: Sequence[int | str | None]) -> Ints:
    """Whole numbers; text of digits counts as its number, other text and what int64 does not hold are null."""
    try:
        return np.frombuffer(array("q", cast("Sequence[int]", values)), dtype=np.int64)
    except (TypeError, OverflowError):
        found = (_of_text(value) if isinstance(value, str) else whole_number(value) for value in values)
        return _filled(found, len(values))


_of_text = lru_cache(1 << 12)(whole_number)


def _filled(values: Iterable[int | None], count: int) -> Ints:
    return np.fromiter((_NULL if value is None else value for value in values), np.int64, count)


def _nanoseconds(texts: Sequence[Any]) -> Ints:
    """Of microseconds as written the ns; null where there is no such number."""
    try:
        return _moments(texts)
    except TypeError:  # not all are there
        there = [place for place, text in enumerate(texts) if text is not None]
        found = np.full(len(texts), _NULL)
        if there:
            found[there] = _moments([texts[place] for place in there])
        return found


def _moments(texts: Sequence[Any]) -> Ints:
    """Likewise where all are there, else TypeError: plain numbers all together, where others are each by itself."""
    lines = b"\n".join(texts)
    points = lines.count(b".")
    if points not in {0, len(texts)}:
        lines = _WITHOUT_POINT.sub(rb"\1.000", lines)
    digits = lines.replace(b".", b"")
    if digits.replace(b"\n", b"").isdigit() and (not points or _have_three_decimals(lines, len(texts))):
        numbers = pl.Series([digits.decode()]).str.split("\n").explode().cast(pl.Int64, strict=False)
        if not numbers.null_count() and (points or numbers.max() < _MOST_MICROSECONDS):  # type: ignore[operator]
            return numbers.to_numpy() if points else numbers.to_numpy() * 1000
    return _filled((microseconds_to_ns(_parse(bytes(text), Path())) for text in texts), len(texts))


def _have_three_decimals(lines: bytes, count: int) -> bool:
    letters = np.frombuffer(lines + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(letters == _LINE_END)
    is_so: bool = lines.count(b".") == count and bool((letters[np.maximum(ends - 4, 0)] == _POINT).all())
    return is_so
