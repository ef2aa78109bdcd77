"""Labels that can be told apart: those that are alike get what differs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from xsp_analyze.render.units import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["numbered", "told_apart"]


def told_apart(labels: Sequence[str], details: Sequence[Sequence[str]]) -> list[str]:
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
    return numbered(made)


def _differing(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of each row what is not the same in all; no more columns than tell the rows apart."""
    chosen: list[int] = []
    for column in range(len(rows[0])):
        before, after = (len({tuple(row[i] for i in kept) for row in rows}) for kept in (chosen, [*chosen, column]))
        if after > before:
            chosen.append(column)
    return [[row[i] for i in chosen if row[i] != UNKNOWN] or [UNKNOWN] * bool(chosen) for row in rows]


def numbered(labels: Sequence[str]) -> list[str]:
    """Labels that are still alike, with a number each."""
    alike, seen = Counter(labels), Counter[str]()
    made = []
    for label in labels:
        seen[label] += 1
        made.append(f"{label} #{seen[label]}" if alike[label] > 1 else label)
    return made
