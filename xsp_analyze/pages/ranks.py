"""The page of a job of ranks, and the blocks on ranks that a report has too."""

from __future__ import annotations

from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Result
from xsp_analyze.faults import attempt, noting_faults
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.pipelines import longest_bubble, usual_step_of
from xsp_analyze.frames.rank_waits import (
    CALL,
    FEW_CALLS,
    groups_by_bytes,
    late_ranks,
    longest_of_columns,
    means_by_rank,
    median_rank,
    ranks_off_the_median,
)
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import page_by_script, program_and_version
from xsp_analyze.ranks.job import experts_by_rank, tables
from xsp_analyze.text.late_ranks import bubble_words, reason_of
from xsp_analyze.text.units import count, count_of, duration, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xsp_analyze.frames.pipelines import Unit
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.ranks.job import Job

__all__ = [
    "MAX_STAGES",
    "MEASURES",
    "WORTH",
    "bandwidth",
    "beside",
    "exposed_sentence",
    "findings",
    "folded_away",
    "heat_map",
    "last_to_come",
    "late_sentences",
    "mean_steps",
    "rank_grid",
    "rank_name",
    "render",
    "slowest",
    "stages",
]

# What pages draw of ranks: a heat map of rank by step, the mean step of each, rates of collectives by size.
MEASURES: Mapping[str, tuple[str, str]] = {
    "step_ns": ("Step", "step"),
    "compute_ns": ("Compute", "compute"),
    "exposed_communication_ns": ("Exposed communication", "communication"),
    "wait_ns": ("Waiting", "waiting"),
    "sent_bytes": ("Sent", "communication"),
    "received_bytes": ("Received", "communication"),
}
"""What a heat map shows, by column: its name, and the colour that `ranks.css` gives it."""
_MAX_CELLS = 6_000
_MAX_RANKS = 128
_MAX_COLUMNS = 300
_WIDTHS = (8, 16, 32, 64, 128)  # ranks a row, as many as nodes and racks hold
_MAX_ROWS_OF_GRID = 40
_MAX_GROUPS = 6
MAX_STAGES = 64
"""Of a pipeline, that are drawn."""


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
    measures = [key for key in MEASURES if key in cells.columns]
    ranks, left_out = _kept_ranks(cells)
    if len(ranks) < 2:  # noqa: PLR2004 (a pair)
        return None
    steps = cells["step"].unique().sort(nulls_last=True).to_list()
    per_column = max(ceil(len(steps) * len(ranks) / _MAX_CELLS), 1)
    columns = [steps[at : at + per_column] for at in range(0, len(steps), per_column)]
    numbers = pl.DataFrame({"step": steps, "column": [at // per_column for at in range(len(steps))]})
    longest = longest_of_columns(cells.filter(pl.col("rank").is_in(ranks)), numbers, measures)
    grid = pl.DataFrame({"rank": ranks}).join(numbers.select("column").unique(), how="cross")
    values = grid.join(longest, on=["rank", "column"], how="left").sort("rank", "column")
    notes = [left_out, f"A column is {per_column} steps, and shows the longest of them." if per_column > 1 else ""]
    return {
        "type": "heat_map",
        "title": "Ranks by steps" if len(steps) > 1 else "Rank by rank",
        "ranks": [rank_name(rank) for rank in ranks],
        "steps": [_steps_name(column) for column in columns],
        "measures": [_measure(key, values[key]) for key in measures if values[key].is_not_null().any()],
        "note": " ".join(filter(None, notes)),
    }


def _measure(key: str, values: pl.Series) -> dict[str, Any]:
    name, colour = MEASURES[key]
    unit = "byte" if key.endswith("bytes") else "ns"
    return {"name": name, "colour": colour, "unit": unit, "values": [None if v is None else round(v) for v in values]}


def rank_grid(cells: pl.DataFrame) -> Block | None:
    """Of more ranks than a heat map over steps can show: a cell each, their mean step, in rows of some."""
    mean = means_by_rank(cells, (key for key in MEASURES if key in cells.columns))
    if mean.height <= _MAX_RANKS:
        return None
    per_row = next((wide for wide in _WIDTHS if mean.height / wide <= _MAX_ROWS_OF_GRID), _WIDTHS[-1])
    first, last = int(mean["rank"][0]) // per_row, int(mean["rank"][-1]) // per_row
    every = pl.DataFrame({"rank": range(first * per_row, (last + 1) * per_row)}, schema={"rank": pl.Int64})
    values = every.join(mean, on="rank", how="left", maintain_order="left")
    columns = [c for c in values.columns[1:] if values[c].is_not_null().any()]
    return {
        "type": "heat_map",
        "title": "The mean step of every rank",
        "ranks": [str(row * per_row) for row in range(first, last + 1)],
        "steps": [f"+{column}" for column in range(per_row)],
        "names": [rank_name(rank) for rank in values["rank"]],
        "measures": [_measure(key, values[key]) for key in columns],
        "note": f"A row is {per_row} ranks, beginning with the one beside it.",
    }


def stages(units: Sequence[Sequence[Unit]], note: str, step: int | None) -> Block:
    """What each rank of a pipeline does over one step."""
    begin, end = min(u.start_ns for own in units for u in own), max(u.end_ns for own in units for u in own)
    rows = [
        {
            "name": f"{number}: {rank_name(own[0].rank)}",
            "units": [[u.start_ns - begin, u.end_ns - u.start_ns, u.kind, u.batch, _unit_text(u, begin)] for u in own],
        }
        for number, own in enumerate(units)
    ]
    title = "Stages of the pipeline" if step is None else f"Stages of the pipeline in step {step}"
    return {"type": "stages", "title": title, "window_ns": end - begin, "rows": rows, "note": note}


def _unit_text(unit: Unit, begin_ns: int) -> str:
    stage = "" if unit.stage is None else f" of stage {unit.stage}"
    return (
        f"{rank_name(unit.rank)}, {unit.kind}{stage}, micro-batch {unit.batch}: from"
        f" {duration(unit.start_ns - begin_ns)} on for {duration(unit.end_ns - unit.start_ns)},"
        f" computes {duration(unit.busy_ns)}"
    )


def _kept_ranks(cells: pl.DataFrame) -> tuple[list[int], str]:
    ranks = ranks_off_the_median(cells)
    if len(ranks) <= _MAX_RANKS:
        return sorted(ranks), ""
    return (
        sorted(ranks[:_MAX_RANKS]),
        f"Shown: the {_MAX_RANKS} of {count(len(ranks))} ranks whose longest step is furthest from the median.",
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
    groups = groups_by_bytes(rated)
    if rated.height < 2:  # noqa: PLR2004 (a pair)
        return None
    series = [_line(rated, *key) for key in groups[:_MAX_GROUPS]]
    rates = [log10(point["rate"]) for line in series for point in line["points"]]
    sizes = [log2(point["bytes"]) for line in series for point in line["points"]]
    more = len(groups) - _MAX_GROUPS
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
_MAX_LATE = 3
_FEW_RANKS = 8
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


def last_to_come(ranks: pl.DataFrame, calls: float, late: Sequence[int]) -> str | None:
    """The rank that came last most often, where that is twice as often as were its turn; of so many calls.

    Of many calls only where chance does not explain it; of two ranks none does twice as often, so `late` must say it.
    """
    row = ranks.sort("last_count", descending=True, nulls_last=True).row(0, named=True)
    is_late = row["rank"] in late or (calls < FEW_CALLS and (row["last_count"] or 0) > 2 * calls / ranks.height)
    if not row["last_count"] or not calls or not is_late:
        return None
    calls = row.get("matched_count", calls)  # its own, where ranks are of several groups
    is_counted = row["last_count"] == int(row["last_count"]) and calls == int(calls)
    part = (
        f"{count(row['last_count'])} of {count(calls)}" if is_counted else f"{share(row['last_count'] / calls)} of all"
    )
    return f"Rank {row['rank']} came last to {part} collectives: the others wait for it."


def late_sentences(late: pl.DataFrame, reason: Callable[[int], str]) -> Iterator[str]:
    """For whom most of the waiting of a group is, and why; the first few ranks."""
    several = late["process_group"].n_unique() > 1
    ranks = late["rank"].unique(maintain_order=True)
    for rank in ranks.head(_MAX_LATE):
        rows = late.filter(pl.col("rank") == rank)
        first = rows.row(0, named=True)
        group = f" of {_short_group(first['process_group'])}" if several and first["process_group"] else ""
        more = f", and most in {count_of(rows.height - 1, 'more group', 'more groups')}," if rows.height > 1 else ""
        sentence = f"Of all waiting in collectives{group} {share(first['waited_share'])}{more} is for rank {rank}."
        yield " ".join(filter(None, [sentence, reason(rank)]))
    if len(ranks) > _MAX_LATE:
        yield f"So it is for {count_of(len(ranks) - _MAX_LATE, 'more rank', 'more ranks')}."


def _short_group(text: str) -> str:
    """The name and the ranks of a group, of many the first and the last."""
    parts = text.split(", ")
    return text if len(parts) <= _FEW_RANKS else f"{', '.join(parts[:2])}, ..., {parts[-1]}"


def exposed_sentence(ranks: pl.DataFrame) -> str | None:
    """What of the median rank's step communication takes that nothing hides."""
    part = median_rank(ranks).exposed_share
    return None if part is None else f"Communication that nothing hides is {share(part)} of the median rank's step."


# The page of a job: its ranks, steps, collectives and kernels, compared.

_MAX_ROWS = 300
_OPEN_ROWS = 12
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. This page holds all it needs and loads"
    " nothing."
)
_REPORT = "`xsp report ranks/NAME/trace.xsp` makes a report of one rank."
_MEANS = {
    "R01": "One row a rank; times are means a step. A rank that others wait for has a short wait and is often last.",
    "R02": "One row a step. The imbalance is what would be gained if all ranks were as long as their mean.",
    "R03": "A collective ends everywhere at about the same time, so whoever came last ran it shortest: what the others"
    " took longer, they waited. Calls are held against those of the same process group; where none is recorded it is"
    " taken that all ranks take part in each call that all of them ran.",
    "R04": "A10 over all ranks: exact sums over the whole traces, and how unevenly ranks share them.",
    "R06": "Groups of a kind divide the ranks alike: tensor parallel ones stand side by side, data parallel ones far"
    " apart. A place that computes more than others is a stage or a shard with more to do.",
    "R05": "One row a block of experts. It is done when the rank with most tokens has done its products; the others"
    " wait where results are combined. Without a recorded process group, all ranks of a block are one.",
    "R07": "One row a rank of a pipeline: how long it computes nothing while the pipeline runs, and why. The schedule's"
    " own bubble shrinks with more micro-batches or stages by turns; imbalance says to move layers, transfer to send"
    " earlier.",
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
        "footer": " ".join([program_and_version(), _FOOTER, *([_REPORT] if job.has_bundles else [])]),
    }
    return page_by_script(data, ("ranks.js",), ("ranks.css",))


def _section_of(job: Job, each: Result) -> Section:
    identity, title = each.analysis.id, each.analysis.title.capitalize()
    drawn = [_table(each)]
    if identity == "R01":
        figure = attempt("The figure of ranks", lambda: [_figure(job)], lambda fault: [blocks.text(f"{fault}.")])
        drawn = [*figure, *drawn]
    if identity == "R07":
        drawn = [*_stages_of_job(job, each.table), *drawn]
    return blocks.section(identity, title, title, _MEANS[identity], drawn)


def _stages_of_job(job: Job, rows: pl.DataFrame) -> Iterator[Block]:
    """The pipeline with the longest bubble, in words and over a step of usual length."""
    own = longest_bubble(rows)
    yield blocks.text(bubble_words(own))
    step, units = usual_step_of(job.units, own["pipeline"][0])
    order = dict(own.select("rank", "stage").iter_rows())
    others = rows["pipeline"].n_unique() - 1
    note = f"{count_of(others, 'other pipeline is', 'other pipelines are')} in the table." if others else ""
    yield stages(sorted(units, key=lambda each: order[each[0].rank])[:MAX_STAGES], note, step)


def _figure(job: Job) -> Block:
    cells = job.by_rank_and_step()
    return beside(rank_grid(cells), heat_map(cells), mean_steps(job.by_rank()))


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
    left_out = f"The first {_MAX_ROWS} of {count(frame.height)} rows; xsp ranks, or ranks.json of a batch, has all."
    return Result(result.analysis, frame.head(_MAX_ROWS), result.columns, result.ledger_of), left_out


def findings(job: Job) -> list[str]:
    """What the job is and what stands out, in sentences."""
    ranks, steps = job.by_rank(), job.by_step()
    worlds = {f.get("world_size") for f in job.facts.values()} - {None}
    of = f" of {count(worlds.pop())}" if len(worlds) == 1 else ""
    sentences = [
        f"{count(len(job.folders))}{of} ranks; the median rank takes {duration(median_rank(ranks).step_ns)} a step."
    ]
    world = max((f.get("world_size") or 0 for f in job.facts.values()), default=0)
    if world > len(job.folders):
        sentences.append("Whom they wait for may be none of these, so none is named.")
        sentences += filter(None, [exposed_sentence(ranks)])
        return [" ".join(sentences)]
    calls = job.waits.filter("matched").select(CALL).unique().height
    late = late_ranks(job.waits)
    named = last_to_come(ranks, calls, late["rank"].to_list())
    sentences += filter(None, [slowest(ranks), named, exposed_sentence(ranks)])
    if (pipelines := job.pipelines()).height:
        sentences.append(bubble_words(longest_bubble(pipelines)))
    sentences += late_sentences(late, lambda rank: reason_of(rank, ranks, job.kernels_of_ranks()))
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
    others = ranks.filter(pl.col("rank") != heaviest["rank"])
    step, wait = median_rank(job.by_rank()).step_ns, median_rank(others).wait_ns
    if not step or wait is None or wait < WORTH * step or over < WORTH or heaviest["wait_ns"] > wait:
        return
    yield (
        f"Rank {heaviest['rank']} has the heaviest experts: their products take {share(over)} longer than the mean of"
        f" {count(ranks.height)} ranks, and where results are combined the median other rank waits"
        f" {duration(wait)} a step,"
        f" {share(wait / step)} of it. Place experts by their load, or replicate those that most tokens go to."
    )
