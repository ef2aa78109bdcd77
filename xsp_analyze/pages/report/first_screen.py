"""The first screen of a report: one line, the bar of a step, the key numbers, what to do, and what to doubt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from xsp_analyze.pages.report.doubts import GENERAL, doubts
from xsp_analyze.pages.report.next_steps import gains_of
from xsp_analyze.pages.report.step_bar import step_bar
from xsp_analyze.pages.report.summary import in_one_line
from xsp_analyze.pages.report.tiles import tiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from xsp_analyze.service.answers import Answers

__all__ = ["first_screen"]

_FIRST = 3


def first_screen(answers: Answers, targets: Collection[str]) -> dict[str, Any]:
    """What its script draws; `targets` are the ids of sections and analyses on the page, which links may lead to."""
    bar = answers.attempt("The bar of a step", partial(step_bar, answers), lambda _: None)
    numbers = answers.attempt("The key numbers", partial(tiles, answers), lambda _: [])
    gains = gains_of(answers)
    shown = {tile["id"] for tile in numbers} | ({"bar"} if bar else set())
    about = answers.attempt("Doubts", lambda: doubts(answers, answers.advice, shown), lambda _: {})
    return {
        "line": answers.attempt("The first line", partial(in_one_line, answers), lambda fault: [str(fault)]),
        "bar": bar and {**bar, "parts": _without_dead_links(bar["parts"], targets), "doubts": about.get("bar", [])},
        "tiles": [{**tile, "doubts": about.get(tile["id"], [])} for tile in _without_dead_links(numbers, targets)],
        "findings": gains[:_FIRST],
        "finding_count": len(gains),
        "doubts": about.get(GENERAL, []),
    }


def _without_dead_links(items: Iterable[dict[str, Any]], targets: Collection[str]) -> list[dict[str, Any]]:
    """Without links to what the page does not have."""
    return [{**item, "link": item["link"] if item["link"].partition("?")[0] in targets else None} for item in items]
