"""Values as files hold them: of any type in JSON, times exactly in ns, columns of texts and times."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model.columns.arrays import series
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints

__all__ = [
    "UNITS_NS",
    "Among",
    "Strings",
    "characters",
    "decode_texts",
    "finite",
    "int64",
    "integer",
    "json_integer",
    "nanoseconds",
    "natural",
    "strings_by_id",
    "text",
    "varint",
    "with_sane_times",
]

# Values of JSON that may be of any type, as what they ought to be, or nothing; times exactly in ns.

_MAX_DIGITS = 4_000
_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)


def characters(value: str) -> str:
    """The text; half of a surrogate pair, which JSON may escape and is no character, becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", errors="replace").decode()


def text(value: object) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def int64(value: object) -> int | None:
    """A 64-bit integer; None for any other value, be it a text of digits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT64 else None


def integer(value: object) -> int | None:
    """A 64-bit integer, from a number or from its digits."""
    return int64(int(value) if isinstance(value, str) and _INTEGER.match(value) else value)


def finite(value: object) -> float | None:
    """A finite number, from a number or from its text; None for any other value, and for what no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def json_integer(digits: str) -> int | float:
    """What `parse_int` of `json` makes of digits: of more than Python makes an integer of, an infinity."""
    return int(digits) if len(digits) <= _MAX_DIGITS else (-math.inf if digits.startswith("-") else math.inf)


UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""How many ns each unit of time is."""


def nanoseconds(value: object, unit_ns: int) -> int | None:
    """A time in units of `unit_ns` as ns; None for what is no finite number or beyond what can be added up.

    Exact from the digits that stand in the file; what is left below a nanosecond is rounded to the nearest.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, int):
        time_ns = value * unit_ns
    elif isinstance(value, float) and not math.isfinite(value):
        return None
    else:
        try:
            digits = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            return None
        if not digits.is_finite() or abs(digits.adjusted()) > 20:  # noqa: PLR2004 (far beyond any time)
            return 0 if digits.is_finite() and digits.adjusted() < 0 else None
        time_ns = round(digits * unit_ns)
    return time_ns if -LATEST_NS < time_ns < LATEST_NS else None


# Integers from their digits, of which a damaged file may have thousands: more than Python or 64 bits take.
_DIGITS = re.compile(r"\d{1,20}\Z", re.ASCII)


def natural(text: str, bits: int = 63) -> int | None:
    """The number that the digits are; None where the text is anything else, or the number needs more bits."""
    number = int(text) if _DIGITS.match(text) else None
    return number if number is not None and not number >> bits else None


# Integers of variable length as protobuf writes them: seven bits a byte, the lowest first.
_MAX_VARINT_BYTES = 10
_HIGH_BIT = 0x80


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at an offset and the offset behind it, -1 where there is none."""
    value = 0
    for n in range(min(_MAX_VARINT_BYTES, end - at)):
        byte = data[at + n]
        value |= (byte & (_HIGH_BIT - 1)) << (7 * n)
        if byte < _HIGH_BIT:
            return value, at + n + 1
    return 0, -1


# Columns as profilers store them: texts as bytes or as ids of a table of texts, and times that may be garbage.

_TIMES = ("start", "end", "timestamp", "duration", "utcEpochNs")
_DENSE, _SMALL = 4, 1 << 16  # numbers of which so large a part, or so few, are looked up in a table


@dataclass(frozen=True, slots=True)
class Among:
    """The rows whose integer column holds one of these values."""

    column: str
    values: tuple[int, ...]

    @property
    def sql(self) -> str:
        """The same as a condition of SQL."""
        return f'"{self.column}" IN ({", ".join(str(int(value)) for value in self.values)})'


@dataclass(frozen=True)
class Strings:
    """The file's interned strings: names by the ids that other tables hold."""

    ids: Ints  # sorted
    values: pl.Series

    def of(self, ids: pl.Series) -> pl.Series:
        """The strings of these ids as a Categorical; null where the id is null or the file has no such string."""
        if not len(self.ids):
            return pl.Series(ids.name, [None] * len(ids), dtype=pl.Categorical)
        index = _indices(self.ids, ids.fill_null(0).to_numpy())
        if ids.null_count():
            index = np.where(ids.is_null().to_numpy(), np.int32(-1), index)
        lost = index < 0
        is_used = np.zeros(len(self.ids) + 1, dtype=np.bool_)
        is_used[index] = True  # -1, lost, is the last
        used = np.flatnonzero(is_used[:-1])
        category_id = np.full(len(self.ids) + 1, -1, dtype=np.int32)
        category_id[used] = np.arange(len(used), dtype=np.int32)
        category_ids = category_id[index]
        categories = self.values[used].cast(pl.Categorical)
        return categories.gather(series(ids.name, category_ids, ~lost if lost.any() else None)).alias(ids.name)

    def id_of(self, value: str) -> int | None:
        """The id of this string, the first where several are the same."""
        index = (self.values == value).arg_max() if len(self.values) else None
        return int(self.ids[index]) if index is not None and self.values[index] == value else None


def strings_by_id(ids: pl.Series, values: pl.Series) -> Strings:
    """Strings by their ids, the first of those with the same id."""
    if len(ids) != len(values):  # one of the columns is missing, so no id has a string
        ids, values = ids.clear(), values.clear()
    both = pl.DataFrame({"id": ids, "value": values}).drop_nulls("id").unique("id", keep="first", maintain_order=True)
    both = both.sort("id")
    return Strings(both["id"].to_numpy(), both["value"].fill_null(""))


def _indices(keys: Ints, numbers: Ints) -> NDArray[np.int32]:
    """The index of each number among the keys, which are sorted and no two the same; -1 where it is none."""
    low, high = int(keys[0]), int(keys[-1])
    if high - low < _DENSE * len(keys) + _SMALL and abs(low) < LATEST_NS and abs(high) < LATEST_NS:
        table = np.full(high - low + 3, -1, dtype=np.int32)  # the first and the last stand for what is outside
        table[keys - (low - 1)] = np.arange(len(keys), dtype=np.int32)
        inside = np.clip(numbers, low - 1, high + 1)
        inside -= low - 1
        indices: NDArray[np.int32] = table[inside]
        return indices
    index = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
    return np.where(keys[index] == numbers, index, -1).astype(np.int32)


def decode_texts(raw: pl.Series) -> tuple[pl.Series, int]:
    """Bytes as text; foreign bytes show as U+FFFD, and the texts that had any are counted."""
    if raw.dtype != pl.Binary:
        return raw.cast(pl.String), 0
    try:
        return raw.cast(pl.String), 0
    except pl.exceptions.PolarsError:
        texts = [None if value is None else value.decode(errors="replace") for value in raw]
        foreign = sum(1 for value, text in zip(raw, texts, strict=True) if text is not None and text.encode() != value)
        return pl.Series(raw.name, texts, dtype=pl.String), foreign


def _is_sane(times: pl.Series) -> bool:
    earliest, latest = times.min(), times.max()
    return earliest is None or (int(str(earliest)) > -LATEST_NS and int(str(latest)) < LATEST_NS)


def with_sane_times(rows: pl.DataFrame, times: Sequence[str] = _TIMES) -> pl.DataFrame:
    """The rows with times that no clock shows made unknown, so that no difference overflows."""
    insane = [name for name in times if name in rows.columns and not _is_sane(rows[name])]
    return rows.with_columns(
        pl.when(pl.col(name).is_between(-LATEST_NS, LATEST_NS, closed="none")).then(pl.col(name)).alias(name)
        for name in insane
    )
