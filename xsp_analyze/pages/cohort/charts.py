"""Figures of a cohort: time by class of kernels as stacked bars, and which models are alike as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.cohort.facts import CLASSES
from xsp_analyze.pages import blocks
from xsp_analyze.pages.tones import tone
from xsp_analyze.text.shown import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.cohort.cohort import System
    from xsp_analyze.cohort.tables import Join
    from xsp_analyze.pages.blocks import Block

__all__ = ["dendrogram", "label", "mixes"]

_PERCENT = {"unit": "%", "divisor": 0.01, "decimals": 1}


def label(system: System) -> str:
    """What the row is called where it must be short."""
    return clean(" on ".join(filter(None, (system.label, system.facts.system))))


def mixes(systems: Sequence[System]) -> Block:
    """One bar a model, divided into classes of kernels; a name leads to the model's report."""
    groups = [s.facts.mix.class_shares for s in systems]
    series = [
        {"name": name, "tone": tone(name), "values": [group.get(name, 0.0) for group in groups], **_PERCENT}
        for name in CLASSES
        if any(name in group for group in groups)
    ]
    links = [blocks.address(s.member.report) for s in systems]
    return blocks.bars("stack", list(map(label, systems)), series, links=links)


def dendrogram(systems: Sequence[System], joins: Sequence[Join], order: Sequence[int]) -> Block:
    """A tree: models that join further left are more alike; the distance is 1 less the cosine."""
    ends = {leaf: (0.0, row + 0.5) for row, leaf in enumerate(order)}  # distance and height, by number of the cluster
    brackets = []
    for number, join in enumerate(joins, len(systems)):
        first, second = ends[join.first], ends[join.second]
        brackets.append({"from": [first, second], "at": join.distance})
        ends[number] = (join.distance, (first[1] + second[1]) / 2)
    return {
        "type": "dendrogram",
        "title": "Tree of similar models",
        "read": _first_join(systems, joins),
        "labels": [label(systems[leaf]) for leaf in order],
        "joins": brackets,
    }


def _first_join(systems: Sequence[System], joins: Sequence[Join]) -> str:
    """The first join in words, for those who do not see the tree."""
    if not joins:
        return "one model"
    first = joins[0]
    pair = f"{label(systems[first.first])} and {label(systems[first.second])}"
    return f"Of {len(systems)} models, {pair} are most alike, at a distance of {first.distance:.3f}"
