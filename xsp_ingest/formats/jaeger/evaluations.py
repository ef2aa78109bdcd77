"""Splits a trace by how deep each evaluation in it was profiled, which MLModelScope tags at the model's spans."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.files.values import text
from xsp_ingest.formats.jaeger.document import JaegerTrace, tags_of
from xsp_ingest.formats.jaeger.metrics import logged
from xsp_ingest.formats.jaeger.references import parents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan

__all__ = ["evaluated_levels", "evaluations"]

_TAG = "evaluation_trace_level"
_Key = tuple[str, bool]  # trace level, and whether kernels were counted


def evaluated_levels(trace: JaegerTrace) -> list[str]:
    """The levels at which the trace says that its model was evaluated, each once, in order of appearance."""
    return list(dict.fromkeys(level for span in trace.spans if (level := _level(span)) is not None))


def evaluations(trace: JaegerTrace) -> list[JaegerTrace]:
    """The trace, or where it holds evaluations at several levels a trace for each, in order of their first span.

    A span goes with the tagged span that it lies in. Outside of these it goes with those inside of it or, where there
    are none, inside of what holds it, if they are of one level; else with the last tagged span that had begun.
    """
    if not evaluated_levels(trace):
        return [trace]
    tree = _Tree(trace.spans, parents(trace.spans)[0])
    keys_by_tagged = _keys(tree)
    if len(set(keys_by_tagged.values())) <= 1:
        return [trace]
    keys = _spread(tree, keys_by_tagged)
    parts: dict[_Key, list[JaegerSpan]] = defaultdict(list)
    for i in sorted(range(len(keys)), key=tree.start_of):
        span, above = trace.spans[i], tree.parent[i]
        if above >= 0 and keys[above] != keys[i]:  # several evaluations lie in a span that is in one of them only
            span.references, span.parentSpanID = None, ""
        parts[keys[i]].append(span)
    return [JaegerTrace(spans, trace.traceID, trace.processes) for spans in parts.values()]


@dataclass(frozen=True, slots=True)
class _Tree:
    """Spans, and the position of each one's parent or -1."""

    spans: Sequence[JaegerSpan]
    parent: Sequence[int]

    def start_of(self, i: int) -> int:
        return self.spans[i].startTime or 0

    def outwards(self, i: int) -> Iterator[int]:
        """The span, its parent, and so on."""
        while i >= 0:
            yield i
            i = self.parent[i]

    def outer_first(self) -> Iterator[int]:
        inside: dict[int, list[int]] = defaultdict(list)
        for i, above in enumerate(self.parent):
            inside[above].append(i)
        open_spans = inside[-1][::-1]
        while open_spans:
            i = open_spans.pop()
            yield i
            open_spans += inside.pop(i, [])


def _level(span: JaegerSpan) -> str | None:
    return text(tags_of(span.tags).get(_TAG))


def _keys(tree: _Tree) -> dict[int, _Key]:
    """The key of each tagged span; launches of a run with counters log them, wherever they hang."""
    levels = {i: level for i, span in enumerate(tree.spans) if (level := _level(span)) is not None}
    begun = _Begun(tree, sorted(levels, key=tree.start_of))
    counted = {
        next((each for each in tree.outwards(i) if each in levels), begun.last(i))
        for i, span in enumerate(tree.spans)
        if logged(span.logs)
    }
    return {i: (level, i in counted) for i, level in levels.items()}


def _spread(tree: _Tree, keys_by_tagged: Mapping[int, _Key]) -> list[_Key]:
    """The key of every span."""
    begun = _Begun(tree, sorted(keys_by_tagged, key=tree.start_of))
    inside: dict[int, set[_Key]] = defaultdict(set)
    for i, key in keys_by_tagged.items():
        for outer in tree.outwards(i):
            inside[outer].add(key)
    keys: dict[int, _Key] = {}
    for i in tree.outer_first():
        above = tree.parent[i]
        sure = keys_by_tagged.get(i) or (keys[above] if above in keys and len(inside[above]) <= 1 else None)
        only = next(iter(inside[i])) if len(inside[i]) == 1 else None
        keys[i] = sure or only or keys_by_tagged[begun.last(i)]
    return [keys[i] for i in range(len(tree.spans))]


class _Begun:
    """Which of the tagged spans had begun last when another did."""

    def __init__(self, tree: _Tree, tagged: Sequence[int]) -> None:
        self._tree, self._tagged = tree, tagged
        self._starts = [tree.start_of(i) for i in tagged]

    def last(self, i: int) -> int:
        """The first of all where none had."""
        return self._tagged[max(bisect_right(self._starts, self._tree.start_of(i)) - 1, 0)]
