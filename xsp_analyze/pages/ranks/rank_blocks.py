"""What pages draw and say of ranks: heat maps of rank by step, step times, rates of collectives, outliers."""

from __future__ import annotations

from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.pages import blocks
from xsp_analyze.text.units import count, duration, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.pages.blocks import Block

__all__ = [
    "MEASURES",
    "WORTH",
    "bandwidth",
    "beside",
    "exposed_sentence",
    "folded_away",
    "heat_map",
    "last_to_come",
    "mean_steps",
    "median",
    "rank_name",
    "slowest",
]

# What pages draw of ranks: a heat map of rank by step, the mean step of each, rates of collectives by size.

MEASURES: Mapping[str, tuple[str, str]] = {
    "step_ns": ("Step", "step"),
    "compute_ns": ("Compute", "compute"),
    "exposed_communication_ns": ("Exposed communication", "communication"),
    "wait_ns": ("Waiting", "waiting"),
}
"""What a heat map shows, by column: its name, and the colour that `ranks.css` gives it."""
_MAX_CELLS = 6_000
_MAX_RANKS = 128
_MAX_COLUMNS = 300
_MAX_GROUPS = 6


def rank_name(rank: int) -> str:
    """A rank as pages call it."""
    return f"rank {rank}"


def folded_away(summary: str, inside: Sequence[Block]) -> Block:
    """Blocks that are folded away under a line that says what they are."""
    return {"type": "folded_away", "summary": summary, "blocks": list(inside)}


def beside(*drawn: Block | None) -> Block:
    """Blocks next to each other, where there is room; those that are there."""
    return {"type": "beside", "blocks": [each for each in drawn if each]}


def heat_map(cells: pl.DataFrame) -> Block | None:
    """Ranks by steps, of `cells`: one row a rank and step, with MEASURES, of which what is nowhere known is left out.

    Of many ranks those are kept whose longest step is furthest from the median's, of many steps several are one column.
    None where there is nothing to compare.
    """
    ranks, left_out = _kept_ranks(cells)
    if len(ranks) < 2:  # noqa: PLR2004 (a pair)
        return None
    steps = cells["step"].unique().sort(nulls_last=True).to_list()
    per_column = max(ceil(len(steps) * len(ranks) / _MAX_CELLS), 1)
    columns = [steps[at : at + per_column] for at in range(0, len(steps), per_column)]
    numbers = pl.DataFrame({"step": steps, "column": [at // per_column for at in range(len(steps))]})
    longest = (
        cells.filter(pl.col("rank").is_in(ranks))
        .join(numbers.cast({"step": cells.schema["step"]}), on="step", nulls_equal=True)
        .group_by("rank", "column")
        .agg(pl.col(list(MEASURES)).max())
    )
    grid = pl.DataFrame({"rank": ranks}).join(numbers.select("column").unique(), how="cross")
    values = grid.join(longest, on=["rank", "column"], how="left").sort("rank", "column")
    notes = [left_out, f"A column is {per_column} steps, and shows the longest of them." if per_column > 1 else ""]
    return {
        "type": "heat_map",
        "title": "Ranks by steps" if len(steps) > 1 else "Rank by rank",
        "ranks": [rank_name(rank) for rank in ranks],
        "steps": [_steps_name(column) for column in columns],
        "measures": [
            {"name": name, "colour": colour, "values": [None if v is None else round(v) for v in values[key]]}
            for key, (name, colour) in MEASURES.items()
            if values[key].is_not_null().any()
        ],
        "note": " ".join(filter(None, notes)),
    }


def _kept_ranks(cells: pl.DataFrame) -> tuple[list[int], str]:
    longest = cells.group_by("rank").agg(pl.col("step_ns").max()).drop_nulls().sort("rank")
    if longest.height <= _MAX_RANKS:
        return longest["rank"].to_list(), ""
    apart = (pl.col("step_ns") - pl.col("step_ns").median()).abs()
    kept = longest.sort(apart, "rank", descending=[True, False]).head(_MAX_RANKS)["rank"].sort().to_list()
    return (
        kept,
        f"Shown: the {_MAX_RANKS} of {count(longest.height)} ranks whose longest step is furthest from the median.",
    )


def _steps_name(steps: Sequence[int | None]) -> str:
    first, last = steps[0], steps[-1]
    if first is None:
        return "the whole trace"
    return f"step {first}" if last == first else f"steps {first} to {last}"


def mean_steps(ranks: pl.DataFrame) -> Block | None:
    """The mean step of every rank: what it computed, what of communication nothing hid, and the rest.

    Work that outlasts the step leaves nothing of the rest.
    """
    rows = [row for row in ranks.head(_MAX_COLUMNS).iter_rows(named=True) if row["step_ns"]]
    if len(rows) < 2 or not any(row["compute_ns"] is not None for row in rows):  # noqa: PLR2004 (a pair)
        return None
    compute, exposed = ([row[c] or 0.0 for row in rows] for c in ("compute_ns", "exposed_communication_ns"))
    rest = [max(row["step_ns"] - a - b, 0.0) for row, a, b in zip(rows, compute, exposed, strict=True)]
    series = [
        {"name": "compute", "tone": "compute", "values": compute},
        {"name": "exposed communication", "tone": "communication", "values": exposed},
        {"name": "the rest of the step", "tone": "rest", "values": rest},
    ]
    return blocks.bars("columns", [rank_name(row["rank"]) for row in rows], series, title="Step of each rank")


def bandwidth(rows: pl.DataFrame) -> Block | None:
    """B31's bus bandwidth over the size of messages, a line an operation and group; those with most bytes.

    None where no two sizes are known, which are no curve.
    """
    rated = rows.drop_nulls("bus_byte_per_s")
    moved = (pl.col("message_bytes") * pl.col("count")).sum()
    keys = ["operation", "process_group"]
    groups = rated.group_by(keys, maintain_order=True).agg(moved.alias("moved")).sort("moved", descending=True)
    if rated.height < 2:  # noqa: PLR2004 (a pair)
        return None
    series = [_line(rated, *key) for key in groups.head(_MAX_GROUPS).select(keys).iter_rows()]
    rates = [log10(point["rate"]) for line in series for point in line["points"]]
    sizes = [log2(point["bytes"]) for line in series for point in line["points"]]
    more = groups.height - _MAX_GROUPS
    return {
        "type": "bandwidth",
        "title": "Bus bandwidth by message size",
        "series": series,
        "sizes": [{"at": 2.0**power, "text": size(2**power)} for power in _powers(min(sizes), max(sizes), 2)],
        "rates": [{"at": 10.0**p, "text": quantity(10.0**p, "byte/s")} for p in _powers(min(rates), max(rates), 1)],
        "note": f"{more} more in the table." if more > 0 else "",
    }


def _line(rows: pl.DataFrame, operation: str, group: str | None) -> dict[str, Any]:
    own = rows.filter(pl.col("operation") == operation, pl.col("process_group").eq_missing(pl.lit(group, pl.String)))
    name = f"{operation} {group}" if group else operation
    return {"name": name, "points": list(_points(own, name))}


def _points(rows: pl.DataFrame, name: str) -> Iterator[dict[str, Any]]:
    for row in rows.sort("message_bytes").iter_rows(named=True):
        matched = row["matched_count"] == row["count"]
        calls = "1 call" if row["count"] == 1 else f"{count(row['count'])} calls"
        waiting = "" if matched else ", waiting included"
        text = f"{name}, {size(row['message_bytes'])}: {quantity(row['bus_byte_per_s'], 'byte/s')}, {calls} of"
        yield {
            "bytes": row["message_bytes"],
            "rate": row["bus_byte_per_s"],
            "matched": matched,
            "text": f"{text} {duration(row['transfer_ns'])} each on average{waiting}",
        }


def _powers(low: float, high: float, apart: int) -> range:
    """Whole powers around a range, at most a dozen."""
    first, last = floor(low), max(ceil(high), floor(low) + 1)
    return range(first, last + 1, max(apart if last - first > apart * 2 else 1, ceil((last - first) / 12)))


# What stands out of ranks side by side, in sentences: of a trace that holds them all, and of a job.

WORTH = 0.02
"""The share of a step from which on something is worth a sentence."""


def slowest(ranks: pl.DataFrame) -> str | None:
    """The rank with the longest step, where it is one."""
    row = ranks.sort("step_ns", descending=True, nulls_last=True).row(0, named=True)
    if (row["over_median_share"] or 0) < WORTH:
        return None
    wait = row["wait_ns"] or 0
    waits = f", though it waits for others for {duration(wait)} of its step" if wait >= WORTH * row["step_ns"] else ""
    return f"Rank {row['rank']} is slowest, {share(row['over_median_share'])} over the median{waits}."


def last_to_come(ranks: pl.DataFrame, calls: float) -> str | None:
    """The rank that came last most often, where that is twice as often as were its turn; of so many calls."""
    row = ranks.sort("last_count", descending=True, nulls_last=True).row(0, named=True)
    if not row["last_count"] or not calls or row["last_count"] <= 2 * calls / ranks.height:
        return None
    is_counted = row["last_count"] == int(row["last_count"]) and calls == int(calls)
    part = (
        f"{count(row['last_count'])} of {count(calls)}" if is_counted else f"{share(row['last_count'] / calls)} of all"
    )
    return f"Rank {row['rank']} came last to {part} collectives: the others wait for it."


def exposed_sentence(ranks: pl.DataFrame) -> str | None:
    """What of the median rank's step communication takes that nothing hides."""
    part = median((ranks["exposed_communication_ns"] / ranks["step_ns"]).alias("share"))
    return None if part is None else f"Communication that nothing hides is {share(part)} of the median rank's step."


def median(values: pl.Series) -> float | None:
    """The median; None where nothing is known."""
    middle = values.median()
    return middle if isinstance(middle, float | int) else None
