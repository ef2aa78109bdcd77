"""Which span each span refers to as its parent, and which references lead nowhere or in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan

__all__ = ["parents"]


def parents(spans: Sequence[JaegerSpan]) -> tuple[list[int], list[Finding]]:
    """For each span the position of its parent or -1; a reference that closes a circle counts as none."""
    index_of = {span.spanID: i for i, span in enumerate(spans)}
    parent, missing = [-1] * len(spans), 0
    for i, span in enumerate(spans):
        parent_id = _parent_id(span)
        if parent_id:
            parent[i] = index_of.get(parent_id, -1)
            missing += parent[i] < 0
    cut = _in_circles(parent)
    for i in cut:
        parent[i] = -1
    return parent, [
        Finding(LedgerKind.MISSING_REFERENCE, count=missing),
        Finding(LedgerKind.REFERENCE_CYCLE, count=len(cut)),
    ]


def _parent_id(span: JaegerSpan) -> str:
    for reference in span.references or ():
        if reference.refType == "CHILD_OF":
            return reference.spanID
    return span.parentSpanID or next((r.spanID for r in span.references or ()), "")


def _in_circles(parent: Sequence[int]) -> list[int]:
    """Every member of a circle; spans that only lead into one are not."""
    seen = [0] * len(parent)  # the walk that came by first, from 1
    members: list[int] = []
    for first in range(len(parent)):
        at = first
        while at >= 0 and not seen[at]:
            seen[at] = first + 1
            at = parent[at]
        if at >= 0 and seen[at] == first + 1:
            members.append(at)
            following = parent[at]
            while following != at:
                members.append(following)
                following = parent[following]
    return members
