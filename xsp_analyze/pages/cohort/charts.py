"""Figures of a cohort as HTML: time by group of operators as bars, and which models are alike as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.cohort.linkage import cosines, leaf_order, linkage
from xsp_analyze.cohort.mix import GROUPS
from xsp_analyze.pages.cohort.markup import escaped, link
from xsp_analyze.render.units import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.cohort.cohort import System
    from xsp_analyze.cohort.linkage import Join

__all__ = ["MOST_LEAVES", "bars", "label", "tree"]

MOST_LEAVES = 200
"""More models than this are no tree that one could read."""

_NAMES = [name for name, _ in GROUPS] + ["other"]
_ROW, _LEFT, _WIDE, _TEXT, _TOP = 22, 14, 420, 320, 8
_TICKS = 4


def label(system: System) -> str:
    """What the row is called where it must be short."""
    return " on ".join(filter(None, (system.facts.model, system.facts.system)))


def bars(systems: Sequence[System]) -> str:
    """One bar a model, divided into groups of operators."""
    used = {name for s in systems for name in s.facts.mix.groups}
    legend = "".join(
        f'<li><i style="background:var(--g{n})"></i>{escaped(name)}</li>'
        for n, name in enumerate(_NAMES)
        if name in used
    )
    rows = []
    for system in systems:
        parts = system.facts.mix.groups
        words = ", ".join(f"{name} {share(part)}" for name, part in sorted(parts.items(), key=lambda p: -p[1]))
        inner = "".join(
            f'<i style="width:{100 * parts[name]:.3f}%;background:var(--g{n})"'
            f' title="{escaped(name)} {share(parts[name])}"></i>'
            for n, name in enumerate(_NAMES)
            if name in parts
        )
        name = link(system.member.report, label(system))
        rows.append(
            f'<div class="label" title="{escaped(label(system))}">{name}</div>'
            f'<div class="bar" role="img" aria-label="{escaped(words)}">{inner}</div>'
        )
    return f'<ul class="legend">{legend}</ul><div class="mixes">{"".join(rows)}</div>'


def tree(systems: Sequence[System]) -> str:
    """A dendrogram: models that join further left are more alike; the distance is 1 less the cosine."""
    joins = linkage(1 - cosines([s.facts.mix.shares for s in systems]))
    order = leaf_order(joins, len(systems))
    most = max((j.distance for j in joins), default=0.0) or 1.0
    place = {leaf: (0.0, (n + 0.5) * _ROW + _TOP) for n, leaf in enumerate(order)}
    paths = [_join(join, len(systems) + n, place, most) for n, join in enumerate(joins)]
    height = len(systems) * _ROW + _TOP
    names = "".join(
        f'<text x="{_TEXT - 8}" y="{place[leaf][1] + 4:.1f}" text-anchor="end">{_short(label(systems[leaf]))}</text>'
        for leaf in order
    )
    ticks = "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/><text class="tick" x="{x:.1f}" y="{height + 14}"'
        f' text-anchor="middle">{most * n / _TICKS:.2f}</text>'
        for n in range(_TICKS + 1)
        if (x := _TEXT + _WIDE * n / _TICKS)
    )
    wide = _TEXT + _WIDE + _LEFT + 10
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Tree of similar models"><svg width="{wide}"'
        f' height="{height + 22}" viewBox="0 0 {wide} {height + 22}" role="img"'
        f' aria-label="{escaped(_told(systems, joins))}">'
        f"{ticks}{names}{''.join(paths)}</svg></div>"
    )


def _join(join: Join, number: int, place: dict[int, tuple[float, float]], most: float) -> str:
    """The bracket of a join; where it stands is noted under its number."""
    (x1, y1), (x2, y2) = place[join.first], place[join.second]
    x = _WIDE * join.distance / most
    place[number] = (x, (y1 + y2) / 2)
    return f'<path d="M{_TEXT + x1:.1f} {y1:.1f}H{_TEXT + x:.1f}V{y2:.1f}H{_TEXT + x2:.1f}"/>'


def _short(text: str, most: int = 44) -> str:
    return escaped(text if len(text) <= most else f"{text[: most - 1]}\u2026")


def _told(systems: Sequence[System], joins: Sequence[Join]) -> str:
    """The first join in words, for those who do not see the tree."""
    if not joins:
        return "one model"
    first = joins[0]
    pair = f"{label(systems[first.first])} and {label(systems[first.second])}"
    return f"Of {len(systems)} models, {pair} are most alike, at a distance of {first.distance:.3f}"
