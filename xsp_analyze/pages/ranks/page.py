"""The page of a job: its ranks, steps, collectives and kernels, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.core import Result
from xsp_analyze.pages.cohort.markup import escaped, page, section, sentence, table
from xsp_analyze.pages.ranks.charts import strip
from xsp_analyze.ranks.tables import tables
from xsp_analyze.render.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from xsp_analyze.ranks.job import Job

__all__ = ["findings", "render"]

_MOST_ROWS = 300
_MANY = 64
_WORTH = 0.02
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. This page holds all it needs and loads"
    " nothing. `xsp report ranks/NAME/trace.xsp` makes a report of one rank."
)
_MEANS = {
    "R01": "One row a rank; times are means a step. A rank that others wait for has a short wait and is often last.",
    "R02": "One row a step. The imbalance is what would be gained if all ranks were as long as their mean.",
    "R03": "A collective ends everywhere at about the same time, so whoever came last ran it shortest: what the others"
    " took longer, they waited. It is taken that all ranks take part in each call that all of them ran.",
    "R04": "A10 over all ranks: exact sums over the whole traces, and how unevenly ranks share them.",
}


def render(job: Job, failed: Sequence[str] = ()) -> str:
    """The page as HTML; `failed` are the sentences on ranks that could not be read."""
    parts = []
    if failed:
        rows = "".join(f"<li>{escaped(f)}</li>" for f in failed[:_MOST_ROWS])
        means = "Everything below is without these ranks."
        content = section("failed", f"Failed: {len(failed):,}", means, f'<ul class="failed">{rows}</ul>')
        parts.append(("failed", "Failed", content))
    for each in tables(job):
        shown, left = _shown(each)
        figure = strip(job.by_rank()) if each.analysis.id == "R01" else ""
        content = figure + table(shown, search=each.table.height > _MANY) + left
        title = each.analysis.title.capitalize()
        parts.append((each.analysis.id, title, section(each.analysis.id, title, _MEANS[each.analysis.id], content)))
    return page(f"Job {job.name}", findings(job), parts, _FOOTER)


def _shown(result: Result) -> tuple[Result, str]:
    """The rows that the page holds: of many ranks those with the longest steps, of kernels those with most time."""
    if result.table.height <= _MOST_ROWS:
        return result, ""
    frame: pl.DataFrame = result.table
    if result.analysis.id == "R01":
        frame = frame.sort("step_ns", descending=True, maintain_order=True)
    words = f"The first {_MOST_ROWS} of {frame.height:,} rows; ranks.json holds all."
    cut = Result(result.analysis, frame.head(_MOST_ROWS), result.columns, result.ledger_of)
    return cut, sentence(words)


def findings(job: Job) -> list[str]:
    """What the job is and what stands out, in sentences."""
    ranks, steps = job.by_rank(), job.by_step()
    worlds = {f.get("world_size") for f in job.facts.values()} - {None}
    of = f" of {worlds.pop():,}" if len(worlds) == 1 else ""
    said = [f"{len(job.folders):,}{of} ranks; the median rank takes {duration(_median(ranks, 'step_ns'))} a step."]
    slowest = ranks.sort("step_ns", descending=True, nulls_last=True).row(0, named=True)
    if (slowest["over_median_share"] or 0) >= _WORTH:
        said.append(f"Rank {slowest['rank']} is slowest, {share(slowest['over_median_share'])} over the median.")
    last = ranks.sort("last_count", descending=True, nulls_last=True).row(0, named=True)
    total = ranks["last_count"].sum()
    if total and last["last_count"] > 2 * total / len(job.folders):
        said.append(
            f"Rank {last['rank']} came last to {last['last_count']:,} of {total:,} collectives: the others wait for it."
        )
    exposed = _median(ranks, "exposed_share")
    if exposed is not None:
        said.append(f"Communication that nothing hides is {share(exposed)} of the median rank's step.")
    worst = steps["imbalance_share"].max()
    if isinstance(worst, float) and worst >= _WORTH:
        said.append(f"The most uneven step takes {share(worst)} longer than its ranks' mean.")
    return [" ".join(said)]


def _median(frame: pl.DataFrame, column: str) -> float | None:
    found = frame[column].median()
    return found if isinstance(found, float | int) else None
