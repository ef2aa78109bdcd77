"""Names as people can read them: cut to a width, told apart, numbered, calls with their arguments."""

from __future__ import annotations

import re
from collections import Counter
from os.path import commonprefix
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

from xsp_analyze.text.units import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "IDLE",
    "bare",
    "cut",
    "cut_to_room",
    "fit_names",
    "number_alike",
    "short_call",
    "spelled_call",
    "tell_apart",
]

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
