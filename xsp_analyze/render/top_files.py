"""What `xsp top` ranks, for programs and documents: JSON, CSV, Markdown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.render.csv_cells import write_csv
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.markdown import escape_markdown, table_lines
from xsp_analyze.text.shown import clean
from xsp_analyze.text.table import of_rows
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.render.top import Entry, Ranking

__all__ = ["as_csv", "as_json", "as_markdown"]

_CSV = {"ranking": pl.String, "rank": pl.Int64, "name": pl.String, "time_ns": pl.Float64, "share": pl.Float64}


def as_json(rankings: Sequence[Ranking], max_rows: int, about: Mapping[str, object]) -> str:
    """One document, as docs/top.schema.json has it: `about`, then the rankings, each with at most so many rows."""
    document = {**about, "rankings": [_ranking(each, max_rows) for each in rankings]}
    return json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _ranking(ranking: Ranking, max_rows: int) -> dict[str, Any]:
    rest = ranking.rows[max_rows:]
    return {
        "ranking": ranking.identity,
        "title": ranking.title,
        "whole_ns": ranking.whole_ns,
        "rows": [
            {"rank": rank, "name": row.name, **row.facts, "time_ns": row.time_ns, "share": _share(row, ranking)}
            for rank, row in enumerate(ranking.rows[:max_rows], 1)
        ],
        "more_count": len(rest),
        "more_ns": sum(row.time_ns for row in rest),
        "outside_ns": ranking.outside_ns,
    }


def as_csv(rankings: Sequence[Ranking], max_rows: int, *, raw: bool = False) -> str:
    """A row a layer, kernel or operator, the rankings under one another, at full precision.

    Names that a spreadsheet would run get an apostrophe before them, unless `raw`.
    """
    rows = [
        (ranking.identity, rank, row.name, row.time_ns, _share(row, ranking))
        for ranking in rankings
        for rank, row in enumerate(ranking.rows[:max_rows], 1)
    ]
    return write_csv(pl.DataFrame(rows, _CSV, orient="row").get_columns(), raw=raw)


def as_markdown(rankings: Sequence[Ranking], max_rows: int, sentences: Sequence[str]) -> str:
    """The sentences, and a table a ranking."""
    blocks = [escape_markdown(sentence) for sentence in sentences]
    for ranking in rankings:
        columns = [("name", "", False, 0), ("time", "", True, 1), ("share", "", True, 2)]
        rows = [_texts(clean(row.name), row.time_ns, ranking) for row in ranking.rows[:max_rows]]
        if rest := ranking.rows[max_rows:]:
            rows.append(_texts(f"and {len(rest):,} more", sum(row.time_ns for row in rest), ranking))
        if ranking.outside and ranking.outside_ns:
            rows.append(_texts(ranking.outside, ranking.outside_ns, ranking))
        blocks.append(f"## {escape_markdown(ranking.title)}\n\n" + "\n".join(table_lines(of_rows("", columns, rows))))
    return "\n\n".join(blocks) + "\n"


def _texts(name: str, time_ns: float, ranking: Ranking) -> tuple[str, str, str]:
    return name, duration(time_ns), share(time_ns / ranking.whole_ns if ranking.whole_ns else None)


def _share(row: Entry, ranking: Ranking) -> float | None:
    return row.time_ns / ranking.whole_ns if ranking.whole_ns else None
