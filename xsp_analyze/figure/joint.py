"""Rooflines of several traces in one: a colour a trace, the roofs of every device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.pages.report.figures import figure as blocks_of
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Analysis
    from xsp_analyze.service.answers import Answers

__all__ = ["joint_blocks"]

_LISTS = ("roofs", "points", "models")


def joint_blocks(traces: Mapping[str, Answers], analysis: Analysis) -> list[dict[str, Any]]:
    """The roofline of the analysis with those of all traces, by their names, and the sentences of each.

    XspError where the analysis draws no roofline, or a trace has no answer or nothing to draw.
    """
    if analysis.figure is None or analysis.figure.kind != "roofline":
        raise XspError(
            f"{analysis.id} ({analysis.title}) draws no roofline, and only rooflines hold several traces",
            advice="A09, A14, A15 and B23 draw rooflines; `xsp compare` and `xsp cohort` put other tables side by side",
        )
    panels, notes = {}, []
    for name, answers in traces.items():
        result = answers.of(analysis.id)
        if isinstance(result, str):
            raise XspError(f"{name}: {result.rstrip('.')}")
        blocks = blocks_of(answers, result)
        if not any(block["type"] == "roofline" for block in blocks):
            raise XspError(f"{name}: {analysis.id} ({analysis.title}) has nothing to draw in this trace")
        panels[name] = next(block for block in blocks if block["type"] == "roofline")
        notes += [{**b, "text": f"{name}: {b['text']}"} for b in blocks if b["type"] == "text"]
    return [_join_blocks(panels), *notes]


def _join_blocks(panels: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One block: precisions of all, and in roofs, points and models which trace each is of."""
    first = next(iter(panels.values()))
    precisions = list(dict.fromkeys(name for block in panels.values() for name in block["precisions"]))
    lists: dict[str, list[dict[str, Any]]] = {key: [] for key in _LISTS}
    for trace, block in enumerate(panels.values()):
        for key in _LISTS:
            lists[key] += [_of_trace(each, trace, block["precisions"], precisions) for each in block[key]]
    return {
        **first,
        "precisions": precisions,
        "traces": list(panels),
        **lists,
        "roofs": _distinct_roofs(lists["roofs"]),
    }


def _of_trace(each: Mapping[str, Any], trace: int, own: Sequence[str], precisions: Sequence[str]) -> dict[str, Any]:
    index = each["precision"]
    return {**each, "trace": trace, "precision": None if index is None else precisions.index(own[index])}


def _distinct_roofs(roofs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each roof once; one that several traces have is of none of them."""
    distinct: dict[tuple[object, ...], dict[str, Any]] = {}
    for roof in roofs:
        key = (roof["precision"], f"{roof['peak']:.4g}", f"{roof['bandwidth']:.4g}")
        other = distinct.get(key)
        distinct[key] = roof if other is None or other["trace"] == roof["trace"] else {**other, "trace": None}
    return list(distinct.values())
