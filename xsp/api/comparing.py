"""Two traces beside each other, in Python."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from xsp.reading import takes
from xsp_analyze.compare import comparison
from xsp_analyze.compare.rows import LEVELS, Row
from xsp_analyze.pages.compare.files import document, terminal
from xsp_analyze.pages.compare.page import page
from xsp_analyze.pages.compare.sections import sections
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.render import html
from xsp_analyze.trace.step_view import StepView
from xsp_model.errors import XspError, require
from xsp_model.output_files import write_file

if TYPE_CHECKING:
    import os

    import pandas as pd

    from xsp_analyze.compare.comparison import Comparison
    from xsp_model import Trace

__all__ = ["ComparedTraces", "compare_traces"]

_MAX_ROWS = 10
_ON_THE_COMMAND_LINE, _HERE = "--rows 0 shows all.", "to_polars() holds all."
_TEXTS = dict.fromkeys(
    ("level", "name", "change", "after_name", "layer_type", "path", "kernel", "conclusion"), pl.String
)
_NAMES = dict.fromkeys(("moved_to", "moved_from"), pl.List(pl.String))
_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    **_TEXTS,
    **_NAMES,
    "significant": pl.Boolean,
    "layer_index": pl.Int64,
}  # what is not listed is Float64


@dataclass(frozen=True)
class ComparedTraces:
    """What differs between two traces; `comparison` holds everything, as docs/compare.md describes it."""

    comparison: Comparison

    @property
    def comparable(self) -> bool:
        """Whether both sides did the same work, as far as the files say."""
        return self.comparison.comparable

    @property
    def reasons(self) -> list[str]:
        """Why they are not comparable, where they are not."""
        return list(self.comparison.reasons)

    @property
    def ratio(self) -> float | None:
        """Model latency after over before; null where either is unknown."""
        return self.comparison.latency.ratio

    @takes(level=str | None)
    def to_polars(self, level: str | None = None) -> pl.DataFrame:
        """One row a layer type, operator, kernel class, layer and kernel (or of that level alone); times in ns."""
        if level not in {None, *LEVELS}:
            raise XspError(f"a comparison has no level {level!r}", advice=f"Choose of {', '.join(LEVELS)}")
        rows = [astuple(row) for row in self.comparison.rows if level in {None, row.level}]
        schema = {one.name: _TYPES.get(one.name, pl.Float64) for one in fields(Row)}
        return pl.DataFrame(rows, schema=schema, orient="row", strict=False)

    def to_pandas(self, level: str | None = None) -> pd.DataFrame:
        """`to_polars` for people who live in pandas; XspError where it is not installed."""
        require("pandas", purpose="to_pandas()", extra="pandas")
        return self.to_polars(level).to_pandas()

    def to_dict(self) -> dict[str, object]:
        """What `xsp compare -f json` writes."""
        return document(self.comparison)

    @takes(path=Path)
    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the comparison as one HTML page, and says where."""
        write_file(Path(path), page(self.comparison).encode())
        return Path(path)

    def __str__(self) -> str:
        return terminal(self.comparison, rows=_MAX_ROWS).replace(_ON_THE_COMMAND_LINE, _HERE)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [html.paragraph(line) for line in sentences(self.comparison)]
        for one in sections(self.comparison, _MAX_ROWS):
            parts.append(html.heading(one.title))
            parts.append(html.table(one))
            notes = (line.replace(_ON_THE_COMMAND_LINE, _HERE) for line in one.notes)
            parts += [html.paragraph(line, dim=True) for line in notes]
        return "".join(parts)


def compare_traces(
    before: Trace,
    after: Trace,
    *,
    names: tuple[str, str],
    steps: str | None,
    per_input: bool,
    serving_phase: str | None = None,
) -> ComparedTraces:
    """See `OpenTrace.compare`."""
    views = [[StepView.of(one, steps, serving_phase)] for one in (before, after)]
    if names[0] == names[1]:
        names = ("before", "after")
    return ComparedTraces(comparison.compare(*views, names=names, per_input=per_input))
