"""Findings in Python: a sequence that knows how to show itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import polars as pl

from xsp_analyze.render import html
from xsp_analyze.render.findings import as_text, gain_of
from xsp_analyze.text.table import of_rows

if TYPE_CHECKING:
    from xsp_analyze.findings.advice import Advice

__all__ = ["Findings"]

_SCHEMA = {
    "id": pl.String,
    "title": pl.String,
    "on_trust": pl.Boolean,
    "sentence": pl.String,
    "gain_ns": pl.Float64,
    "gain_share": pl.Float64,
    "rows": pl.String,
    "do": pl.String,
}


@dataclass(frozen=True)
class Findings(Sequence["Advice"]):
    """What is worth doing next: what promises most first, doubts about the numbers last."""

    advice: Sequence[Advice]

    @overload
    def __getitem__(self, index: int) -> Advice: ...
    @overload
    def __getitem__(self, index: slice) -> Findings: ...
    def __getitem__(self, index: int | slice) -> Advice | Findings:
        return Findings(self.advice[index]) if isinstance(index, slice) else self.advice[index]

    def __len__(self) -> int:
        return len(self.advice)

    def to_polars(self) -> pl.DataFrame:
        """One row a finding; `gain_ns` is the most it can take off a step, null: unknown; `rows` an analysis's id."""
        rows = [
            (
                one.rule.id,
                one.rule.title,
                one.rule.on_trust,
                one.observation.sentence,
                None if one.gain_ns is None else float(one.gain_ns),
                one.gain_share,
                one.observation.rows or None,
                one.do,
            )
            for one in self.advice
        ]
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row")

    def __str__(self) -> str:
        return as_text(self.advice)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.advice:
            return html.paragraph(as_text(()))
        rows = [
            (
                one.rule.title,
                "doubts the numbers" if one.rule.on_trust else gain_of(one),
                one.observation.sentence,
                one.do,
            )
            for one in self.advice
        ]
        columns = [(heading, "", False, 0) for heading in ("finding", "gain", "what was found", "what to do")]
        return html.table(of_rows("", columns, rows))
