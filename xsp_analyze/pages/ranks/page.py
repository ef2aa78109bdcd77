"""The page of a job: its ranks, steps, collectives and kernels, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Result
from xsp_analyze.faults import attempt, noting_faults
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.rank_time import CALL
from xsp_analyze.pages import blocks
from xsp_analyze.pages.ranks.rank_blocks import (
    WORTH,
    beside,
    exposed_sentence,
    folded_away,
    heat_map,
    last_to_come,
    mean_steps,
    median,
    slowest,
)
from xsp_analyze.pages.shell import page_by_script, program_and_version
from xsp_analyze.ranks.tables import experts_by_rank, tables
from xsp_analyze.text.units import count, count_of, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.ranks.job import Job

__all__ = ["findings", "render"]

_MAX_ROWS = 300
_OPEN_ROWS = 12
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


def render(job: Job, failed: Sequence[str] = (), in_part: Sequence[str] = ()) -> str:
    """The page as HTML; `failed` are the sentences on ranks that could not be read, `in_part` on what ranks lack."""
    with noting_faults() as faults:
        sections = [_section_of(job, each) for each in tables(job)]
        short = attempt("What stands out", lambda: findings(job), lambda fault: [f"{fault}."])
    unanswered = blocks.faults_section([*in_part, *map(str, faults)])
    data = {
        "kind": "XSP job: its ranks side by side",
        "title": f"Job {job.name}",
        "short": short,
        "sections": [*([_failed_ranks_section(failed)] if failed else []), *unanswered, *sections],
        "footer": f"{program_and_version()} {_FOOTER}",
    }
    return page_by_script(data, ("ranks.js",), ("ranks.css",))


def _section_of(job: Job, each: Result) -> Section:
    identity, title = each.analysis.id, each.analysis.title.capitalize()
    drawn = [_table(each)]
    if identity == "R01":
        figure = attempt("The figure of ranks", lambda: [_figure(job)], lambda fault: [blocks.text(f"{fault}.")])
        drawn = [*figure, *drawn]
    return blocks.section(identity, title, title, _MEANS[identity], drawn)


def _figure(job: Job) -> Block:
    return beside(heat_map(job.by_rank_and_step()), mean_steps(job.by_rank()))


def _table(result: Result) -> Block:
    """The rows that the page holds; folded away where they are more than a screen, and where a figure shows them."""
    kept, left_out = _rows_to_show(result)
    rows = blocks.table(kept, name=result.analysis.id, left_out=left_out)
    drawn_above = result.analysis.id == "R02"
    if result.table.height <= _OPEN_ROWS and not drawn_above:
        return rows
    return folded_away(f"{count_of(result.table.height, 'row', 'rows')} of {result.analysis.title}", [rows])


def _failed_ranks_section(reasons: Sequence[str]) -> Section:
    entries = blocks.entries(
        [(reason, None, "") for reason in reasons], max_entries=_MAX_ROWS, more="see summary.json."
    )
    means = "Everything below is without these ranks."
    return blocks.section("failed", "Failed", f"Failed: {count(len(reasons))}", means, [entries])


def _rows_to_show(result: Result) -> tuple[Result, str | None]:
    """The rows that the page holds: of many ranks those with the longest steps, of kernels those with most time."""
    if result.table.height <= _MAX_ROWS:
        return result, None
    frame: pl.DataFrame = result.table
    if result.analysis.id == "R01":
        frame = frame.sort("step_ns", descending=True, maintain_order=True)
    left_out = f"The first {_MAX_ROWS} of {count(frame.height)} rows; ranks.json holds all."
    return Result(result.analysis, frame.head(_MAX_ROWS), result.columns, result.ledger_of), left_out


def findings(job: Job) -> list[str]:
    """What the job is and what stands out, in sentences."""
    ranks, steps = job.by_rank(), job.by_step()
    worlds = {f.get("world_size") for f in job.facts.values()} - {None}
    of = f" of {count(worlds.pop())}" if len(worlds) == 1 else ""
    sentences = [
        f"{count(len(job.folders))}{of} ranks; the median rank takes {duration(median(ranks['step_ns']))} a step."
    ]
    calls = job.waits.filter("matched").select(CALL).unique().height
    sentences += filter(None, [slowest(ranks), last_to_come(ranks, calls), exposed_sentence(ranks)])
    worst = steps["imbalance_share"].max()
    if isinstance(worst, float) and worst >= WORTH:
        sentences.append(f"The most uneven step takes {share(worst)} longer than its ranks' mean.")
    return [" ".join([*sentences, *_uneven_experts(job)])]


def _uneven_experts(job: Job) -> Iterator[str]:
    """Where the others wait for the rank whose experts have most to do, which itself waits less."""
    ranks = experts_by_rank(job)
    if ranks.height < 2 or ranks["wait_ns"].null_count():  # noqa: PLR2004 (one rank waits for nobody)
        return
    heaviest = ranks.sort("products_ns", descending=True).row(0, named=True)
    over = heaviest["products_ns"] / total_of(ranks["products_ns"]) * ranks.height - 1
    others = ranks.filter(pl.col("rank") != heaviest["rank"])["wait_ns"]
    step, wait = median(job.by_rank()["step_ns"]), median(others)
    if not step or wait is None or wait < WORTH * step or over < WORTH or heaviest["wait_ns"] > wait:
        return
    yield (
        f"Rank {heaviest['rank']} has the heaviest experts: their products take {share(over)} longer than the mean of"
        f" {count(ranks.height)} ranks, and where results are combined the median other rank waits"
        f" {duration(wait)} a step,"
        f" {share(wait / step)} of it. Place experts by their load, or replicate those that most tokens go to."
    )
