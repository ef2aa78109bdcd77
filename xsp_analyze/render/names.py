"""Names fitted to a column: kernels' names run to hundreds of characters and differ at both ends or in between."""

from __future__ import annotations

import re
from collections import Counter
from os.path import commonprefix
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bare", "cut", "fitted"]

_CPP = re.compile(r"[<(]")
_NAMESPACES = re.compile(r"^void |(?:(?:\b[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>)::)+(?=\w)")
_PARAMETERS = re.compile(r"(?<=[\w>])\((?=[^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$)")
_LAST_TOKEN = re.compile(r"\w*$")
_CONTEXT = 8  # most characters of the word in which two names part that stand before that place
_MAX_HEAD = 24
_GAP = "…"


def fitted(names: Sequence[str], width: int) -> list[str]:
    """Every name in at most `width` cells.

    One that is too long loses its return type, namespaces and parameters; if it still is, its middle. Names that
    would read the same then show the place where they part, as far as the room goes.
    """
    distinct = list(dict.fromkeys(names))  # a trace has a million kernels and a hundred names
    by_name = dict(zip(distinct, _fitted(distinct, width), strict=True))
    return [by_name[name] for name in names]


def _fitted(names: Sequence[str], width: int) -> list[str]:
    shorter = [name if cell_len(name) <= width else bare(name) for name in names]
    cells = [cut(name, width) for name in shorter]
    alike = _alike(shorter, cells)
    for originals in alike.values():
        parted = _parted(originals, width)
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


def _parted(names: Sequence[str], width: int) -> dict[str, str]:
    """Of names with the same ends: the head, a gap, and what stands around the first place where they part."""
    common: str = commonprefix(list(names))  # noqa: RUF071 (of characters)
    token = _LAST_TOKEN.search(common)
    start = max(token.start() if token else 0, len(common) - _CONTEXT)
    head = min(start, width // 3, _MAX_HEAD)
    texts = {name: cut(f"{name[:head]}{_GAP if start > head else ''}{name[start:]}", width) for name in names}
    counts = Counter(texts.values())
    return texts if max(counts.values()) < len(names) else {}
