"""What the viewer may ask: paths, what each takes, and answers as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from xsp_analyze.pages.viewer.block import (
    MAX_GAPS,
    MAX_LAUNCHES,
    about,
    matching_spans,
    range_statistics,
    unclosed_sentences,
)
from xsp_analyze.pages.viewer.boxes import Windows
from xsp_analyze.pages.viewer.lanes import thin
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.pages.viewer.block import Viewed

__all__ = ["QUESTIONS", "BadQuestionError", "TraceAnswers"]

_MAX_TEXT = 200
_MAX_FIELDS = 8
_COUNTER_CELLS = 2_000
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)


class BadQuestionError(XspError):
    """A query that says nothing that can be answered; its text is one sentence."""


@dataclass(frozen=True, slots=True)
class _Window:
    begin: int
    until: int


class TraceAnswers:
    """Answers about one trace; asked by several threads."""

    def __init__(self, viewed_trace: Viewed, title: str) -> None:
        self._viewed_trace = viewed_trace
        self._title = title
        self._windows = Windows(viewed_trace.drawing.boxes)

    def answer(self, path: str, query: str) -> bytes:
        """The answer to one of QUESTIONS as JSON; BadQuestionError says what is wrong with the query."""
        fields = _fields(query, QUESTIONS[path])
        return msgspec.json.encode(_ANSWERS[path](self, fields), enc_hook=str)

    def about(self, _: Mapping[str, str]) -> object:
        """All that does not depend on what is looked at."""
        return self._about

    @cached_property
    def _about(self) -> dict[str, Any]:
        return {
            **about(self._viewed_trace),
            "title": self._title,
            "left_out": " ".join(unclosed_sentences(self._viewed_trace.drawing)) or None,
        }

    def boxes(self, fields: Mapping[str, str]) -> object:
        """The boxes of a window, merged below the resolution asked for, or below more where they were too many."""
        window = _window(fields)
        level = self._windows.level(window.begin, window.until, max(_number(fields, "resolution"), 0))
        return {"resolution": level.resolution, "from": level.begin, "to": level.end, **level.boxes.encode()}

    def flows(self, fields: Mapping[str, str]) -> object:
        """The launches under way in a window; of too many those nearest to its middle."""
        window = _window(fields)
        inside = self._viewed_trace.launches.overlapping(window.begin, window.until)
        middle = (window.begin + window.until) // 2
        return inside.nearest(middle, middle, MAX_LAUNCHES).encode()

    def gaps(self, fields: Mapping[str, str]) -> object:
        """The idle stretches of a window; of too many the longest."""
        window = _window(fields)
        return self._viewed_trace.gaps.overlapping(window.begin, window.until).longest(MAX_GAPS).encode()

    def counters(self, fields: Mapping[str, str]) -> object:
        """The counters of a window."""
        window = _window(fields)
        return [
            thin(counter.between(window.begin, window.until), _COUNTER_CELLS, (window.begin, window.until)).encode(at)
            for at, counter in self._viewed_trace.counters.items()
        ]

    def search(self, fields: Mapping[str, str]) -> object:
        """Spans by a part of their name."""
        text = fields["text"]
        if len(text) > _MAX_TEXT:
            raise BadQuestionError(f"text is longer than {_MAX_TEXT} characters.")
        return matching_spans(self._viewed_trace.drawing, text)

    def statistics(self, fields: Mapping[str, str]) -> object:
        """Sums over a window."""
        window = _window(fields)
        inside = self._windows.exact(window.begin, window.until)
        return range_statistics(self._viewed_trace, inside, window.begin, window.until)


_ANSWERS: Mapping[str, Callable[[TraceAnswers, Mapping[str, str]], object]] = {
    "about": TraceAnswers.about,
    "boxes": TraceAnswers.boxes,
    "flows": TraceAnswers.flows,
    "gaps": TraceAnswers.gaps,
    "counters": TraceAnswers.counters,
    "search": TraceAnswers.search,
    "statistics": TraceAnswers.statistics,
}

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "about": (),
    "boxes": ("from", "to", "resolution"),
    "flows": ("from", "to"),
    "gaps": ("from", "to"),
    "counters": ("from", "to"),
    "search": ("text",),
    "statistics": ("from", "to"),
}
"""The paths, each with the fields that its query must have: times in ns from the start of the trace."""


def _fields(query: str, names: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise BadQuestionError("the query cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs) or set(fields) != set(names):
        needs = ", ".join(names) or "nothing"
        raise BadQuestionError(f"the query takes {needs}, each once.")
    return fields


def _window(fields: Mapping[str, str]) -> _Window:
    window = _Window(_number(fields, "from"), _number(fields, "to"))
    if window.begin >= window.until:
        raise BadQuestionError("from is not before to.")
    return window


def _number(fields: Mapping[str, str], name: str) -> int:
    if not _NUMBER.fullmatch(fields[name]):
        raise BadQuestionError(f"{name} is no whole number of nanoseconds.")
    return int(fields[name])
