"""Many comparisons together: one line a model for people, all of each for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.pages.compare import json_text
from xsp_analyze.pages.compare.sections import Section, change, interval, verdict
from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome

__all__ = ["Compared", "Several", "render_json", "section"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A model of both batches, compared, with what became of the rules."""

    name: str
    comparison: Comparison
    outcomes: Sequence[Outcome] = ()


@dataclass(frozen=True, slots=True)
class Several:
    """Models of two batches; those that only one of them has are named, not compared."""

    compared: Sequence[Compared]
    only_before: Sequence[str] = ()
    only_after: Sequence[str] = ()


def section(found: Several) -> Section:
    """A row a model, the largest change first; those that are not comparable last, with the reason."""
    ordered = sorted(found.compared, key=lambda c: (not c.comparison.comparable, -_size(c), c.name))
    below = [
        f"Only {side}: {', '.join(names)}."
        for side, names in (("before", found.only_before), ("after", found.only_after))
        if names
    ]
    headings = ["model", "before", "after", "change", "95 % interval", "", "rows changed", "most of it in"]
    is_number = [False, True, True, True, True, False, True, False]
    return Section(f"Models ({len(ordered):,})", headings, is_number, [_row(c) for c in ordered], below)


def _size(one: Compared) -> float:
    return abs((one.comparison.latency.ratio or 1.0) - 1.0)


def _row(one: Compared) -> list[str]:
    c, row = one.comparison, one.comparison.latency
    found = sum(bool(r.significant) for r in c.rows)
    rows = f"{found:,} of {c.tested:,}" if c.tested else ""
    cause = c.waterfall.parts[0].name if c.waterfall and c.comparable else "; ".join(c.reasons)
    return [clean(one.name), duration(row.before_ns), duration(row.after_ns), change(row), interval(row), verdict(row),
            rows, clean(cause)]  # fmt: skip


def render_json(found: Several) -> str:
    """`{"pairs": [a comparison's document with its `name`], "only_before": [...], "only_after": [...]}`."""
    documents = ",\n".join(_named(c) for c in found.compared)
    rest = {"only_before": list(found.only_before), "only_after": list(found.only_after)}
    return f'{{"pairs": [\n{documents}],\n {json.dumps(rest, ensure_ascii=False)[1:]}\n'


def _named(one: Compared) -> str:
    return (
        f'{{"name": {json.dumps(one.name, ensure_ascii=False)},\n {json_text.render(one.comparison, one.outcomes)[1:]}'
    )
