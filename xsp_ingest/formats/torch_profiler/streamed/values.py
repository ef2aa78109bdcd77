"""Values of many events, as msgspec gives them, in columns of numbers."""

from __future__ import annotations

import json
import re
from array import array
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_ingest.formats.torch_profiler.cannot_scan import CannotScan
from xsp_ingest.formats.torch_profiler.events import EVENT_COLUMNS
from xsp_ingest.formats.torch_profiler.scan_plain import _parse, integer, microseconds_to_ns
from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from xsp_model.arrays import Ints

__all__ = ["NULL", "Categories", "Moments", "Sizes", "integers", "numbers"]

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
        category = json.dumps(_parse(text, Path())) if isinstance(text, bytes) else text
        self[text] = number = self._texts.setdefault(category, len(self._texts))
        return number

    def ids(self, texts: Iterable[Any]) -> array[int]:
        """Their numbers."""
        return array("i", map(self.__getitem__, texts))

    def series(self, ids: NDArray[np.int32]) -> pl.Series:
        """The texts of these numbers."""
        texts = pl.Series(self._name, list(self._texts), dtype=EVENT_COLUMNS[self._name])
        return texts.gather(scratch.series(self._name, ids, ids >= 0))


class Sizes(dict[bytes, tuple[int, int, int]]):
    """The first three numbers of a list by its text; few texts differ."""

    def __missing__(self, text: bytes) -> tuple[int, int, int]:
        value = _parse(text, Path()) if text else None
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
    return microseconds_to_ns(_parse(line, Path())) if line else None


def numbers(name: str, values: Ints) -> pl.Series:
    """Whole numbers as a column."""
    return scratch.series(name, values, values != NULL)


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
