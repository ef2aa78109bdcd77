"""Numbers with their units, and names of kernels, devices and columns, as people read them."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from os.path import commonprefix
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

from xsp_analyze.core import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Column

__all__ = [
    "FULL_COVERAGE",
    "IDLE",
    "THIN_SPACE",
    "UNKNOWN",
    "Scale",
    "apart",
    "apart_in",
    "bare",
    "count",
    "count_of",
    "cut",
    "cut_to_room",
    "duration",
    "engineering",
    "exact",
    "fit_names",
    "is_share",
    "number",
    "number_alike",
    "or_dash",
    "plain_spaces",
    "quantity",
    "scale_of",
    "scales_of",
    "share",
    "short_call",
    "size",
    "spelled_call",
    "tell_apart",
    "with_total",
]

# Units for people: which unit a column is shown in, and how a value then reads.
# `pages/assets/units.js` says the same for what pages draw themselves; a test holds the two together.

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
UNKNOWN = "-"
"""How a null reads."""
THIN_SPACE = "\u202f"
"""Narrow, and no line is broken at it: between thousands, and between a number and its unit."""
FULL_COVERAGE = 0.95
"""A statement on layers says how much of device time they hold where it is less than that."""
IDLE: Mapping[str, str] = MappingProxyType({
    "idle_sync_ns": "host waits",
    "idle_initialisation_ns": "start-up, loading, end",
    "idle_input_ns": "input",
    "idle_host_ns": "host work",
    "idle_profiler_ns": "profiler",
    "idle_launch_ns": "launch",
    "idle_unknown_ns": "unknown",
})  # fmt: skip
"""The causes of idle time as B03 has them, as verdict, findings and pages call them."""
_SHARE_NAMES = ("share", "occupancy", "utilization", "coverage", "match_rate")
"""Last words of the names of columns that hold a share in 0..1; shown in percent."""
_MIN_SHARED = 0.1  # shows three digits, and one more
_MAX_SHARED = 1e5
_SMALLEST = (1.0, 0.1, 0.01, 0.001, 0.0001)  # what so many decimals tell apart from nothing
_MAX_DECIMALS = len(_SMALLEST) - 1
_MAX_APART = 9  # decimals of two values that differ by little: nanoseconds of a second
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_THINLY = re.compile(f"(?<=\\d){THIN_SPACE}(?=[\\d%A-Za-z\u00b5])")


@dataclass(frozen=True, slots=True)
class Scale:
    """One way to show a quantity: divide by `divisor`, print with `decimals`, call it `unit`."""

    unit: str
    divisor: float = 1.0
    decimals: int | None = None  # null: three significant digits
    grouped: bool = True  # thousands apart; not for numbers that are names, such as process ids


_THOUSANDS = (1e15, 1e12, 1e9, 1e6, 1e3, 1.0)


def _of(prefixes: str, unit: str) -> tuple[Scale, ...]:
    """The scales of a unit, the largest first; `prefixes` are for 10 to the 15th, 12th, ... 3rd and 0th."""
    named = zip(prefixes, _THOUSANDS[len(_THOUSANDS) - len(prefixes) :], strict=True)
    return tuple(Scale(f"{prefix.strip()}{unit}", divisor) for prefix, divisor in named)


_LADDERS: dict[str, tuple[Scale, ...]] = {
    "ns": (Scale("s", 1e9), Scale("ms", 1e6), Scale("\N{MICRO SIGN}s", 1e3), Scale("ns")),
    "byte": (Scale("TiB", 1 << 40), Scale("GiB", 1 << 30), Scale("MiB", 1 << 20), Scale("KiB", 1 << 10), Scale("B")),
    "flop": _of("PTGMk ", "FLOP"),
    "flop/s": _of("PTGMk ", "FLOP/s"),
    "byte/s": _of("TGMk ", "B/s"),
    "Hz": _of("GMk ", "Hz"),
    "%": (Scale("%"),),
    "share": (Scale("%", 0.01),),
}


def scale_of(column: Column, values: Sequence[object]) -> Scale:
    """The scale in which the column's values are best compared: one for the whole column."""
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    unit = "share" if is_share(column) else column.unit
    # of times and work the unit is kept small enough that short entries do not vanish
    scale = _pick(unit, max(map(abs, numbers), default=0) / (1 if unit == "byte" else 10))
    return _without_decimals(replace(scale, grouped=unit in _LADDERS or column.role is Role.MEASURE), numbers)


def scales_of(columns: Sequence[tuple[Column, Sequence[object]]]) -> list[Scale]:
    """The scale of each column of a table: columns of a unit share one, so that a row reads at a glance.

    It is the smallest that suits one of them and in which none has a number of more than five digits, else the
    largest. A column keeps a smaller one of its own where its largest value would show as less than 0.1.
    """
    own = [scale_of(column, values) for column, values in columns]
    largest = [_largest(values) for _, values in columns]
    chosen = []
    for (column, values), scale, peak in zip(columns, own, largest, strict=True):
        rivals = [(s, m) for (c, _), s, m in zip(columns, own, largest, strict=True) if c.unit == column.unit and m > 0]
        shared = _shared_scale(scale, peak, rivals) if column.unit in _LADDERS else scale
        chosen.append(_without_decimals(replace(shared, decimals=None), values))
    return chosen


def _largest(values: Sequence[object]) -> float:
    return max((abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v)), default=0)


def _shared_scale(own: Scale, largest: float, rivals: Sequence[tuple[Scale, float]]) -> Scale:
    """The scale for a column among the others of its unit: theirs and their largest values."""
    if not rivals:
        return own
    peak = max(value for _, value in rivals)
    scales = sorted((scale for scale, _ in rivals), key=lambda s: s.divisor)
    shared = next((s for s in scales if peak < _MAX_SHARED * s.divisor), scales[-1])
    fits = largest == 0 or largest >= _MIN_SHARED * shared.divisor
    return shared if fits and shared.divisor != own.divisor else own


def _without_decimals(scale: Scale, values: Sequence[object]) -> Scale:
    """Without decimals where the numbers are shown as they are and none of them has any."""
    if scale.divisor != 1 or scale.unit == "%":
        return scale
    numbers = (v for v in values if isinstance(v, int | float) and math.isfinite(v))
    return replace(scale, decimals=0) if all(v == int(v) for v in numbers) else scale


def is_share(column: Column) -> bool:
    """Whether the column holds shares in 0..1."""
    return column.unit == "share" or (not column.unit and column.name.endswith(_SHARE_NAMES))


def _pick(unit: str, largest: float) -> Scale:
    """The scale in which so much reads with one to three digits before the point, once rounded."""
    ladder = _LADDERS.get(unit) or (Scale(unit),)
    return next((scale for scale, lower in pairwise(ladder) if largest >= 999.5 * lower.divisor), ladder[-1])


def or_dash(value: object) -> object:
    """The value, or how a null reads."""
    return UNKNOWN if value is None else value


def number(value: float | None, scale: Scale) -> str:
    """The value in the scale; a value too small for its decimals is shown as below the least one, never as 0."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return _figures(value / scale.divisor if scale.divisor != 1 else value, scale.decimals, grouped=scale.grouped)


def _figures(value: float, decimals: int | None, *, grouped: bool = True) -> str:
    """Digits: three that count, or so many decimals; a half goes away from zero, as in JavaScript."""
    if not value:
        return "0" if decimals is None else f"{0:.{decimals}f}"
    fraction = _three_digits(value) if decimals is None else decimals
    smallest = _SMALLEST[fraction] if fraction < len(_SMALLEST) else 10.0**-fraction
    if abs(value) < smallest / 2:
        return f"<{smallest:.{fraction}f}" if value > 0 else f">-{smallest:.{fraction}f}"
    exact = Decimal.from_float(value)  # noqa: FURB164 (which marks nothing in the caller's context)
    digits = f"{exact.quantize(Decimal((0, (1,), -fraction)), context=_EXACT):,f}"
    return digits.replace(",", THIN_SPACE if grouped else "")


def _three_digits(value: float) -> int:
    """How many decimals show three significant digits of the value, as far as there are as many."""
    return min(max(2 - int(f"{value:.2e}".partition("e")[2]), 0), _MAX_DECIMALS)


def apart_in(values: Sequence[float | None], scale: Scale) -> list[str]:
    """Values that are compared, in the scale: with as many digits as the least difference among them needs."""
    scale = _without_decimals(scale, values)
    distinct = sorted({v / scale.divisor for v in values if v is not None and math.isfinite(v)})
    steps = [two - one for one, two in pairwise(distinct)]
    if scale.decimals is not None or not steps:
        return [number(v, scale) for v in values]
    needed = min(1 - int(f"{min(steps):.1e}".partition("e")[2]), _MAX_APART)
    finest = {v: max(_three_digits(v), needed) for v in distinct if v}
    return [number(v, replace(scale, decimals=finest.get((v or 0) / scale.divisor))) for v in values]


def apart(values: Sequence[float | None], unit: str) -> list[str]:
    """The same in the one unit that suits the largest of them, with the unit: `177.91 ms`, `178.20 ms`."""
    scale = _pick(unit, _largest(values))
    return [_with_unit(text, scale) for text in apart_in(values, scale)]


def with_total(values: Sequence[float | None], unit: str) -> list[str]:
    """Parts and what they add up to: all in one unit and with the same decimals, one more than the largest needs."""
    scale = _without_decimals(_pick(unit, _largest(values)), values)
    if scale.decimals is None:
        scale = replace(scale, decimals=_three_digits(_largest(values) / scale.divisor) + 1)
    return [_with_unit(number(v, scale), scale) for v in values]


def _with_unit(text: str, scale: Scale) -> str:
    return f"{text}{THIN_SPACE}{scale.unit}" if scale.unit and text != UNKNOWN else text


def count(value: float | None) -> str:
    """A number of things; of a mean step perhaps a broken one: `1 234` or `0.5`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == int(value):
        return _figures(value, 0)
    text = _figures(value, None)
    return text.rstrip("0").rstrip(".") if "." in text else text


def count_of(value: float, one: str, many: str) -> str:
    """A number of things with their name: `1 copy`, `2 copies`."""
    return f"{count(value)} {one if value == 1 else many}"


def duration(value_ns: float | None) -> str:
    """A single duration, in the unit that suits it: `1.23 ms`."""
    return quantity(value_ns, "ns")


def size(value_bytes: float | None) -> str:
    """A single size: `1.50 MiB`."""
    return quantity(value_bytes, "byte")


def quantity(value: float | None, unit: str) -> str:
    """A single quantity in a unit at rest, in the one that suits it: `53.6 GFLOP`; other units stay as they are."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    scale = _pick(unit, abs(value))
    scale = _without_decimals(scale, [value]) if unit in _LADDERS else scale
    return _with_unit(number(value, scale), scale)


def share(value: float | None) -> str:
    """A share in 0..1 as percent: `12.3 %`."""
    return quantity(value, "share")


def exact(value: float | None, unit: str) -> str:
    """The value as it is stored, in its unit at rest: `1 234 567 ns`."""
    if value is None:
        return "unknown"
    before, point, fraction = f"{Decimal(repr(value)):f}".partition(".")
    digits = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", THIN_SPACE, before)
    tail = "" if fraction in {"", "0"} else f"{point}{fraction}"
    return f"{digits}{tail}{THIN_SPACE}{unit}" if unit else f"{digits}{tail}"


def engineering(value: float, unit: str = "") -> str:
    """`19.5 TFLOP/s`: three digits that count and the prefix, with a plain space; for figures, in any typeface."""
    step, prefix = next((step for step in _PREFIXES if value >= step[0]), (1.0, ""))
    return f"{value / step:.3g} {prefix}{unit}".rstrip()


def plain_spaces(text: str) -> str:
    """The text for a terminal: not all of them show narrow spaces, so numbers have plain ones there."""
    return _THINLY.sub(" ", text)


# Names as people can read them: cut to a width, told apart, numbered, calls with their arguments.

_CPP = re.compile(r"[<(]")
_NAMESPACES = re.compile(r"^void |(?:(?:\b[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>)::)+(?=\w)")
_PARAMETERS = re.compile(r"(?<=[\w>])\((?=[^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$)")
_LAST_TOKEN = re.compile(r"\w*$")
_CONTEXT = 8  # most characters of the word in which two names part that stand before that place
_MAX_HEAD = 24
_GAP = "…"
_MIN_KEPT = 16  # characters of a text that is cut for want of room


def fit_names(names: Sequence[str], width: int) -> list[str]:
    """Every name in at most `width` cells.

    One that is too long loses its return type, namespaces and parameters; if it still is, its middle. Names that
    would read the same then show the place where they part, as far as the room goes.
    """
    distinct = list(dict.fromkeys(names))  # a trace has a million kernels and a hundred names
    by_name = dict(zip(distinct, _fit_distinct_names(distinct, width), strict=True))
    return [by_name[name] for name in names]


def _fit_distinct_names(names: Sequence[str], width: int) -> list[str]:
    shorter = [name if cell_len(name) <= width else bare(name) for name in names]
    cells = [cut(name, width) for name in shorter]
    alike = _alike(shorter, cells)
    for originals in alike.values():
        parted = _texts_around_difference(originals, width)
        for index, name in enumerate(shorter):
            if name in parted and cell_len(name) > width:
                cells[index] = parted[name]
    return cells


def cut(text: str, width: int) -> str:
    """The text with its middle left out: kernels differ at both ends of their names."""
    if cell_len(text) <= width:
        return text
    tail = set_cell_size(text[::-1], width // 3).rstrip()[::-1]  # half a wide character becomes a blank
    return f"{set_cell_size(text, width - cell_len(tail) - 1)}{_GAP}{tail}"


def cut_to_room(texts: Sequence[str], room: int) -> tuple[list[str], int | None]:
    """The texts, the longest without their middle where all of them, equal ones once, have more than `room` characters.

    And how many characters those keep that are cut; None where none is.
    """
    distinct = dict.fromkeys(texts)
    left, kept = room, None
    for number, length in enumerate(sorted(map(len, distinct))):
        share = max(left // (len(distinct) - number), _MIN_KEPT)
        if length > share:
            kept = share
            break
        left -= length
    if kept is None:
        return list(texts), None
    tail = kept // 3
    short = {text: text if len(text) <= kept else f"{text[: kept - tail - 1]}{_GAP}{text[-tail:]}" for text in distinct}
    return [short[text] for text in texts], kept


def bare(name: str) -> str:
    """A C++ name without its type, namespaces (its arguments' too) and parameters; any other name as it is."""
    if not _CPP.search(name):
        return name
    name = _NAMESPACES.sub("", name)
    parameters = _PARAMETERS.search(name)
    return name[: parameters.start()] if parameters else name


def _alike(names: Sequence[str], cells: Sequence[str]) -> dict[str, list[str]]:
    """Different names that were cut to the same text, by it."""
    together: dict[str, dict[str, None]] = {}
    for name, cell in zip(names, cells, strict=True):
        together.setdefault(cell, {})[name] = None
    return {cell: list(originals) for cell, originals in together.items() if len(originals) > 1}


def _texts_around_difference(names: Sequence[str], width: int) -> dict[str, str]:
    """Of names with the same ends: the head, a gap, and what stands around the first place where they part."""
    common: str = commonprefix(list(names))  # noqa: RUF071 (of characters)
    token = _LAST_TOKEN.search(common)
    start = max(token.start() if token else 0, len(common) - _CONTEXT)
    head = min(start, width // 3, _MAX_HEAD)
    texts = {name: cut(f"{name[:head]}{_GAP if start > head else ''}{name[start:]}", width) for name in names}
    counts = Counter(texts.values())
    return texts if max(counts.values()) < len(names) else {}


# Labels that can be told apart: those that are alike get what differs.


def tell_apart(labels: Sequence[str], details: Sequence[Sequence[str]]) -> list[str]:
    """Each label; where several are alike, with those of its details that differ among them, or at last a number.

    `details` has a sequence for each label, alike in length.
    """
    groups: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        groups.setdefault(label, []).append(index)
    made = list(labels)
    for label, members in groups.items():
        if len(members) > 1:
            for index, differing in zip(members, _differing([details[i] for i in members]), strict=True):
                made[index] = f"{label} ({', '.join(differing)})" if differing else label
    return number_alike(made)


def _differing(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each row what is not the same in all; no more columns than tell the rows apart."""
    chosen: list[int] = []
    for column in range(len(rows[0])):
        before, after = (len({tuple(row[i] for i in kept) for row in rows}) for kept in (chosen, [*chosen, column]))
        if after > before:
            chosen.append(column)
    return [[row[i] for i in chosen if row[i] != UNKNOWN] or [UNKNOWN] * bool(chosen) for row in rows]


def number_alike(labels: Sequence[str]) -> list[str]:
    """Labels that are still alike, with a number each."""
    alike, seen = Counter(labels), Counter[str]()
    made = []
    for label in labels:
        seen[label] += 1
        made.append(f"{label} #{seen[label]}" if alike[label] > 1 else label)
    return made


# A call of an operator as people read it: what it is called with, in one line.
_MAX_SHORT = 34
_MAX_SHAPES = 90


def spelled_call(row: Mapping[str, Any]) -> str:
    """A row of B23: `aten::linear of 1x141x512, 512x512 in bf16`."""
    shapes = f" of {cut(row['shapes'], _MAX_SHAPES)}" if row["shapes"] else ""
    dtypes = f" in {row['dtypes']}" if row["dtypes"] else ""
    return f"{row['operator']}{shapes}{dtypes}"


def short_call(row: Mapping[str, Any], max_length: int = _MAX_SHORT) -> str:
    """The same beside a point or a number: `linear 1x141x512, 512x512`."""
    name = str(row["operator"]).rpartition("::")[2]
    return cut(f"{name} {row['shapes'] or ''}".strip(), max_length)
