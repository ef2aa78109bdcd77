"""The page of a job: its ranks, steps, collectives and kernels, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Result
from xsp_analyze.pages import blocks
from xsp_analyze.pages.shell import drawn, made_by
from xsp_analyze.ranks.experts import experts_by_rank
from xsp_analyze.ranks.tables import tables
from xsp_analyze.render.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.ranks.job import Job

__all__ = ["findings", "render"]

_MAX_ROWS = 300
_WORTH = 0.02
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. This page holds all it needs and loads"
    " nothing. `xsp report ranks/NAME/trace.xsp` makes a report of one rank."
)
_MEANS = {
    "R01": "One row a rank; times are means a step. A rank that others wait for has a short wait and is often last.",
    "R02": "One row a step. The imbalance is what would be gained if all ranks were as long as their mean.",
    "R03": "A collective ends everywhere at about the same time, so whoever came last ran it shortest: what the others"
    " took longer, they waited. Calls are held against those of the same process group; where none is recorded it is"
    " taken that all ranks take part in each call that all of them ran.",
    "R04": "A10 over all ranks: exact sums over the whole traces, and how unevenly ranks share them.",
    "R05": "One row a block of experts. It is done when the rank with most tokens has done its products; the others"
    " wait where results are combined. Without a recorded process group, all ranks of a block are one.",
}


def render(job: Job, failed: Sequence[str] = ()) -> str:
    """The page as HTML; `failed` are the sentences on ranks that could not be read."""
    sections = [_failed(failed)] if failed else []
    for each in tables(job):
        identity, title = each.analysis.id, each.analysis.title.capitalize()
        kept, left_out = _kept(each)
        figure = [_steps(job.by_rank())] if identity == "R01" else []
        rows = blocks.table(kept, name=identity, left_out=left_out)
        sections.append(blocks.section(identity, title, title, _MEANS[identity], [*filter(None, figure), rows]))
    data = {
        "kind": "XSP job: its ranks side by side",
        "title": f"Job {job.name}",
        "short": findings(job),
        "sections": sections,
        "footer": f"{made_by()} {_FOOTER}",
    }
    return drawn(data)


def _failed(reasons: Sequence[str]) -> Section:
    entries = blocks.entries(
        [(reason, None, "") for reason in reasons], max_entries=_MAX_ROWS, more="see summary.json."
    )
    means = "Everything below is without these ranks."
    return blocks.section("failed", "Failed", f"Failed: {len(reasons):,}", means, [entries])


def _steps(ranks: pl.DataFrame) -> Block | None:
    """The mean step of every rank: what it computed, what communication it could not hide, and the rest.

    Work that outlasts the step leaves nothing of the rest.
    """
    rows = [row for row in ranks.iter_rows(named=True) if row["step_ns"]]
    if not rows:
        return None
    compute, exposed = ([row[c] or 0.0 for row in rows] for c in ("compute_ns", "exposed_communication_ns"))
    rest = [max(row["step_ns"] - a - b, 0.0) for row, a, b in zip(rows, compute, exposed, strict=True)]
    series = [
        {"name": "compute", "tone": "compute", "values": compute},
        {"name": "exposed communication", "tone": "communication", "values": exposed},
        {"name": "the rest of the step", "tone": "rest", "values": rest},
    ]
    return blocks.bars("columns", [f"rank {row['rank']}" for row in rows], series, title="Mean step of each rank")


def _kept(result: Result) -> tuple[Result, str | None]:
    """The rows that the page holds: of many ranks those with the longest steps, of kernels those with most time."""
    if result.table.height <= _MAX_ROWS:
        return result, None
    frame: pl.DataFrame = result.table
    if result.analysis.id == "R01":
        frame = frame.sort("step_ns", descending=True, maintain_order=True)
    left_out = f"The first {_MAX_ROWS} of {frame.height:,} rows; ranks.json holds all."
    return Result(result.analysis, frame.head(_MAX_ROWS), result.columns, result.ledger_of), left_out


def findings(job: Job) -> list[str]:
    """What the job is and what stands out, in sentences."""
    ranks, steps = job.by_rank(), job.by_step()
    worlds = {f.get("world_size") for f in job.facts.values()} - {None}
    of = f" of {worlds.pop():,}" if len(worlds) == 1 else ""
    sentences = [f"{len(job.folders):,}{of} ranks; the median rank takes {duration(_median(ranks, 'step_ns'))} a step."]
    slowest = ranks.sort("step_ns", descending=True, nulls_last=True).row(0, named=True)
    if (slowest["over_median_share"] or 0) >= _WORTH:
        sentences.append(f"Rank {slowest['rank']} is slowest, {share(slowest['over_median_share'])} over the median.")
    last = ranks.sort("last_count", descending=True, nulls_last=True).row(0, named=True)
    total = ranks["last_count"].sum()
    if total and last["last_count"] > 2 * total / len(job.folders):
        sentences.append(
            f"Rank {last['rank']} came last to {last['last_count']:,} of {total:,} collectives: the others wait for it."
        )
    exposed = _median(ranks, "exposed_share")
    if exposed is not None:
        sentences.append(f"Communication that nothing hides is {share(exposed)} of the median rank's step.")
    worst = steps["imbalance_share"].max()
    if isinstance(worst, float) and worst >= _WORTH:
        sentences.append(f"The most uneven step takes {share(worst)} longer than its ranks' mean.")
    return [" ".join([*sentences, *_uneven_experts(job)])]


def _uneven_experts(job: Job) -> Iterator[str]:
    """Where the others wait for the rank whose experts have most to do, which itself waits less."""
    ranks = experts_by_rank(job)
    if ranks.height < 2 or ranks["wait_ns"].null_count():  # noqa: PLR2004 (one rank waits for nobody)
        return
    heaviest = ranks.sort("products_ns", descending=True).row(0, named=True)
    over = heaviest["products_ns"] / float(ranks["products_ns"].sum()) * ranks.height - 1
    others = ranks.filter(pl.col("rank") != heaviest["rank"])["wait_ns"]
    step, wait = _median(job.by_rank(), "step_ns"), _median(others.to_frame(), "wait_ns")
    if not step or wait is None or wait < _WORTH * step or over < _WORTH or heaviest["wait_ns"] > wait:
        return
    yield (
        f"Rank {heaviest['rank']} has the heaviest experts: their products take {share(over)} longer than the mean of"
        f" {ranks.height:,} ranks, and where results are combined the median other rank waits {duration(wait)} a step,"
        f" {share(wait / step)} of it. Place experts by their load, or replicate those that most tokens go to."
    )


def _median(frame: pl.DataFrame, column: str) -> float | None:
    median = frame[column].median()
    return median if isinstance(median, float | int) else None
