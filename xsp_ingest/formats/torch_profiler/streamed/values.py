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
from xsp_ingest.formats.torch_profiler.scan_plain import _parse, microseconds_to_ns, whole_number
from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from xsp_model.arrays import Ints

__all__ = ["NULL", "Moments", "Sizes", "Words", "numbers", "whole"]

NULL = -(1 << 63)
_MOST_MICROSECONDS = (1 << 63) // 1000
_POINT, _LINE_END = b".\n"
_WITHOUT_POINT = re.compile(rb"^(\d+)$", re.MULTILINE)


class Words(dict[Any, int]):
    """Distinct texts by number, as they come: `str`, or what msgspec left as JSON; -1 for None."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words: dict[str, int] = {}

    def __missing__(self, text: str | bytes | None) -> int:
        if text is None:
            return -1
        word = json.dumps(_parse(text, Path())) if isinstance(text, bytes) else text
        self[text] = code = self._words.setdefault(word, len(self._words))
        return code

    def codes(self, texts: Iterable[Any]) -> array[int]:
        """Their numbers."""
        return array("i", map(self.__getitem__, texts))

    def series(self, codes: NDArray[np.int32]) -> pl.Series:
        """The texts of these numbers."""
        known = pl.Series(self._name, list(self._words), dtype=EVENT_COLUMNS[self._name])
        return known.gather(scratch.series(self._name, codes, codes >= 0))


class Sizes(dict[bytes, tuple[int, int, int]]):
    """The first three numbers of a list by its text; few texts differ."""

    def __missing__(self, text: bytes) -> tuple[int, int, int]:
        value = _parse(text, Path()) if text else None
        found = [whole_number(each) for each in value[:3]] if isinstance(value, list) else []
        x, y, z = (NULL if each is None else each for each in (*found, *[None] * (3 - len(found))))
        self[text] = x, y, z
        return x, y, z

    def columns(self, texts: Iterable[Any]) -> Iterable[array[int]]:
        """Three columns, a row a text; null where it is None or has fewer."""
        found = map(self.__getitem__, (b"" if text is None else bytes(text) for text in texts))
        return (array("q", axis) for axis in zip(*found, strict=True))


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
        found = _plain(lines, self._count)
        if found is None:
            found = _filled((_moment(line) for line in lines.split(b"\n")), self._count)
        return found


def _plain(lines: bytes, count: int) -> Ints | None:
    """Where all are plain digits, or these with three decimals; else None."""
    points = lines.count(b".")
    letters = np.frombuffer(lines + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(letters == _LINE_END)
    there = np.diff(ends, prepend=-1) > 1
    if points not in {0, int(there.sum())}:
        lines = _WITHOUT_POINT.sub(rb"\1.000", lines)
        return _plain(lines, count) if lines.count(b".") != points else None
    if points and not (letters[ends[there] - 4] == _POINT).all():
        return None
    digits = lines.replace(b".", b"")
    if not digits.replace(b"\n", b"").isdigit():
        return None if there.any() else np.full(count, NULL)
    values = pl.Series([digits.decode()]).str.split("\n").explode().cast(pl.Int64, strict=False)
    if values.null_count() != count - int(there.sum()):
        return None
    found = values.fill_null(0).to_numpy()
    if not points and found.max() >= _MOST_MICROSECONDS:
        return None
    return np.where(there, found if points else found * 1000, NULL)


def _moment(line: bytes) -> int | None:
    return microseconds_to_ns(_parse(line, Path())) if line else None


def numbers(name: str, values: Ints) -> pl.Series:
    """Whole numbers as a column."""
    return scratch.series(name, values, values != NULL)


def whole(values: Sequence[Any]) -> array[int]:
    """Whole numbers; text of digits counts as its number, other text and what int64 does not hold are null."""
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        found = (_of_text(value) if isinstance(value, str) else whole_number(value) for value in values)
        return array("q", (NULL if value is None else value for value in found))


_of_text = lru_cache(1 << 12)(whole_number)


def _filled(values: Iterable[int | None], count: int) -> Ints:
    return np.fromiter((NULL if value is None else value for value in values), np.int64, count)
