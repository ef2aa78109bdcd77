"""The plain scanner: the standard library's JSON reader, exact and simple; for small files and as the reference."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_ingest.files.broken_json import BrokenJsonError
from xsp_ingest.files.content import read_all
from xsp_ingest.files.values import characters, int64
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
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "CannotScan",
    "cut_off",
    "integer",
    "microseconds_to_ns",
    "no_events",
    "not_json",
    "parse_json",
    "scan",
    "too_deep",
]

# What scanners say of a file that they cannot use, or that a slower one should read.


class CannotScan(Exception):  # noqa: N818 (an answer, not an error)
    """The file is no JSON, or such as another scanner should judge."""


_AGAIN = "Export or copy the trace again; a profiler that was killed leaves such files"


def cut_off(path: Path, _why: str = "") -> BrokenJsonError:
    """The file ends in the middle of its JSON or of its compressed stream."""
    return BrokenJsonError("the trace is cut off: the file ends before its JSON does", path=path, advice=_AGAIN)


def not_json(path: Path, offset: int) -> BrokenJsonError:
    """Something that is no JSON stands `offset` characters into the content."""
    return BrokenJsonError(f"the trace is not valid JSON at character {offset}", path=path, advice=_AGAIN)


def too_deep(path: Path) -> XspError:
    """Lists or objects in one another by the thousand."""
    return XspError(
        "the JSON nests lists or objects some thousand deep",
        path=path,
        advice="Is it a trace that torch.profiler wrote?",
    )


def no_events(path: Path) -> XspError:
    """JSON, but neither a list of events nor an object that holds one."""
    return XspError(
        "the JSON holds no list `traceEvents`", path=path, advice="Is it a trace that torch.profiler wrote?"
    )


_PYTHON = "python_function"
_INTEGER = re.compile(r"(?:stream )?(-?\d{1,19})")
_MAX_DIGITS = 4000
_LONGEST_TIME = 30  # decimal places before the point, far beyond 64 bits
_COLUMN_OF_KEY = {key: (column, rank) for column, keys in ARGS.items() for rank, key in enumerate(keys)}
_JSON_COLUMN_OF_KEY = {key: (column, rank) for column, keys in JSON_ARGS.items() for rank, key in enumerate(keys)}
_AXES = {"grid": ("grid_x", "grid_y", "grid_z"), "block": ("block_x", "block_y", "block_z")}


class _Fraction(str):
    """A JSON number with a fraction or exponent, kept as its text so that nothing is rounded."""

    __slots__ = ()


def scan(path: Path, *, frames: bool = True) -> Document:
    """The file's events, and `frames` or none; XspError where it is no JSON, is cut off, or has no list of events."""
    document = parse_json(_content(path), path)
    if isinstance(document, list):
        return _columns(document, {}, frames=frames)
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise no_events(path)
    return _columns(document.pop("traceEvents"), document, frames=frames)


def _content(path: Path) -> bytes:
    try:
        return read_all(path, damaged=cut_off)
    except BrokenJsonError:
        raise
    except XspError as error:  # too long: the other scanners read it where it is sound
        raise BrokenJsonError(error.what, path=path, advice=error.advice) from error


def parse_json(data: bytes, path: Path) -> Any:  # noqa: ANN401 (JSON of any shape)
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")  # some editors put it there
    try:
        try:
            return json.loads(text, parse_float=_Fraction, parse_constant=lambda _: None)
        except json.JSONDecodeError:
            raise
        except ValueError:  # digits by the thousand, which Python makes no number of
            return json.loads(text, parse_float=_Fraction, parse_int=_digits, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        is_cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        raise (cut_off(path) if is_cut_off else not_json(path, error.pos)) from error
    except RecursionError as error:
        raise too_deep(path) from error


def _digits(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS else _Fraction(text)


class _Sparse:
    """Columns that few events have: positions and values."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.values: dict[tuple[str, int], list[Any]] = defaultdict(list)

    def put(self, column: str, rank: int, row: int, value: Any) -> None:  # noqa: ANN401
        self.rows[column, rank].append(row)
        self.values[column, rank].append(value)

    def series(self, column: str, kind: pl.DataType, height: int) -> pl.Series:
        """The column at full height; of several spellings the preferred one wins."""
        out = np.full(height, None, dtype=object)
        ranks = sorted((rank for name, rank in self.rows if name == column), reverse=True)
        for rank in ranks:
            out[self.rows[column, rank]] = self.values[column, rank]
        return pl.Series(column, out.tolist() if ranks else [None] * height, dtype=kind)

    def details(self, height: int) -> pl.DataFrame:
        """DETAIL_COLUMNS of the events that have any."""
        event = pl.int_range(height, dtype=pl.Int64, eager=True).alias("event")
        columns = [self.series(name, kind, height) for name, kind in DETAIL_COLUMNS.items() if name != "event"]
        return pl.DataFrame([event, *columns]).filter(pl.any_horizontal(pl.exclude("event").is_not_null()))


def _columns(entries: list[Any], head: dict[str, Any], *, frames: bool) -> Document:
    objects = [e for e in entries if isinstance(e, dict)]
    events = [e for e in objects if not _is_frame(e) and e.get("cat") not in UNREAD_FLOWS]
    functions = [e for e in objects if e.get("ph") == "X" and _is_frame(e)]
    arrows = Counter(category for e in objects if (category := e.get("cat")) in UNREAD_FLOWS)
    sparse = _Sparse()
    for row, event in enumerate(events):
        args = event.get("args")
        if isinstance(args, dict):
            _take_arguments(sparse, row, args)
    height = len(events)
    texts: dict[str, list[Any]] = {key: [_category(e.get(key)) for e in events] for key in ("ph", "cat")}
    texts["name"] = [_name(e) for e in events]
    numbers = {
        "ts_ns": [microseconds_to_ns(e.get("ts")) for e in events],
        "dur_ns": [microseconds_to_ns(e.get("dur")) for e in events],
        **{key: [integer(e.get(key)) for e in events] for key in ("pid", "tid")},
        "flow_id": [integer(e.get("id")) for e in events],
    }
    dense = texts | numbers
    columns = [
        pl.Series(name, dense[name], dtype=kind) if name in dense else sparse.series(name, kind, height)
        for name, kind in EVENT_COLUMNS.items()
    ]
    not_objects = len(entries) - len(objects)
    kept = _frames(functions if frames else [])
    return Document(pl.DataFrame(columns), sparse.details(height), kept, head, not_objects, len(functions), arrows)


def _frames(functions: list[dict[str, Any]]) -> pl.DataFrame:
    rows = [
        (
            _name(e),
            microseconds_to_ns(e.get("ts")),
            microseconds_to_ns(e.get("dur")),
            *map(integer, (e.get("pid"), e.get("tid"))),
        )
        for e in functions
        if not _name(e).startswith(FRAMEWORK_FRAMES)
    ]
    return pl.DataFrame(rows, schema=dict(FRAME_COLUMNS), orient="row").drop_nulls(["ts_ns", "dur_ns"])


def _is_frame(event: dict[str, Any]) -> bool:
    return event.get("cat") == _PYTHON and not _name(event).startswith(MODULE_PREFIX)


def _take_arguments(sparse: _Sparse, row: int, args: dict[str, Any]) -> None:
    for key, value in args.items():
        if (ranked := _COLUMN_OF_KEY.get(key)) is not None:
            if (number := integer(value)) is not None:
                sparse.put(ranked[0], ranked[1], row, number)
        elif (axes := _AXES.get(key)) is not None:
            if isinstance(value, list):
                for axis, size in zip(axes, value, strict=False):
                    sparse.put(axis, 0, row, integer(size))
        elif (ranked := _JSON_COLUMN_OF_KEY.get(key)) is not None:
            sparse.put(ranked[0], ranked[1], row, json.dumps(value))


def _category(value: object) -> str | None:
    return characters(value) if isinstance(value, str) and not isinstance(value, _Fraction) else None


def _name(event: dict[str, Any]) -> str:
    value = event.get("name", "")
    return characters(str(value)) if isinstance(value, str) else json.dumps(value)


def integer(value: object) -> int | None:
    """The integer that it is, or whose digits it is (`7`, `stream 7`); None where int64 holds none such."""
    if isinstance(value, str) and not isinstance(value, _Fraction):
        match = _INTEGER.fullmatch(value)
        value = int(match[1]) if match else None
    return int64(value)


def microseconds_to_ns(value: object) -> int | None:
    """Microseconds as written (an int, or the text of a decimal) in whole ns, exactly; half a ns goes to even."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        result = value * 1000
    else:
        try:
            exact = Decimal(value)
            if exact and exact.adjusted() > _LONGEST_TIME:  # as an integer it may have a million digits
                return None
            result = int((exact * 1000).to_integral_value())
        except (InvalidOperation, ValueError, OverflowError):
            return None
    return int64(result)
