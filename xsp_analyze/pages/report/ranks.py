"""The part of a report on ranks that were read together: who is slow, who waits for whom, how fast they talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import result
from xsp_analyze.frames.collectives import PAIRWISE
from xsp_analyze.frames.pipelines import longest_bubble, usual_step
from xsp_analyze.frames.rank_waits import late_ranks_of, matched_count, median_rank
from xsp_analyze.pages import blocks
from xsp_analyze.pages.ranks import (
    MAX_STAGES,
    bandwidth,
    beside,
    exposed_sentence,
    folded_away,
    heat_map,
    last_to_come,
    late_sentences,
    mean_steps,
    rank_grid,
    rank_name,
    slowest,
    stages,
)
from xsp_analyze.pages.report.figures import cut_rows
from xsp_analyze.text.doubts import missing_ranks
from xsp_analyze.text.late_ranks import bubble_words, rank_reason
from xsp_analyze.text.units import count, count_of, duration, share, size
from xsp_model import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = ["ranks"]

_TITLE = ("ranks", "Ranks", "Ranks side by side")
_MEANS = (
    "A collective ends everywhere at about the same time, so whoever came last ran it shortest: what the others took"
    " longer, they waited. Calls are matched within their process group; where none is recorded, all ranks that run an"
    " operation are taken for one."
)
_UNEQUAL = 0.05
_OPEN_ROWS = 16  # that a screen holds; more are folded away


def ranks(answers: Answers) -> Section | None:
    """What each rank did with its step, over steps and on average; None where there is one rank, or a leveled set."""
    table = answers.of("B29")
    if isinstance(table, str) or table.table.height < 2:  # noqa: PLR2004 (a pair)
        return None
    return blocks.section(
        *_TITLE,
        f"{_MEANS} Times are {answers.basis}.",
        [
            blocks.text(" ".join(_sentences(answers, table.table))),
            beside(rank_grid(cells := _each_step(answers)), heat_map(cells), mean_steps(table.table)),
            *_pipeline(answers),
            _table(table, "every rank in numbers"),
            *_stragglers(answers),
            *_rates(answers),
            *_clocks(answers, table.table),
        ],
    )


def _each_step(answers: Answers) -> pl.DataFrame:
    frames = answers.per_step
    if not answers.step_count:
        return result(frames, "B29").table.with_columns(pl.lit(None, pl.Int64).alias("step"))
    return result(frames.of_each_step, "B29").table


def _sentences(answers: Answers, rows: pl.DataFrame) -> Iterator[str]:
    runs = answers.trace.frame("runs")
    kind = "of which each is a run" if rows.height <= runs.height else "which are devices of one run"
    middle = duration(median_rank(rows).step_ns)
    yield f"{count(rows.height)} ranks, {kind}; the median one takes {middle} {answers.basis}."
    calls = _matched_calls(answers)
    frames = answers.per_step
    if missing := frames.of_trace.once(missing_ranks):
        yield from filter(None, [*missing, exposed_sentence(rows)])
        return
    late = frames.once(late_ranks_of)
    named = last_to_come(rows, calls, late["rank"].to_list())
    yield from filter(None, [slowest(rows), named, exposed_sentence(rows)])
    yield from late_sentences(late, lambda rank: rank_reason(frames, rank))
    yield from _waiting(answers)
    yield from _unequal_parts(answers)


def _matched_calls(answers: Answers) -> float:
    """How many collectives are matched, each counted once."""
    result = answers.of("B30")
    if isinstance(result, str):
        return 0
    return matched_count(result.table)


def _unequal_parts(answers: Answers) -> Iterator[str]:
    """The rank that sends most where ranks send unequal parts."""
    result = answers.of("B30")
    rows = None if isinstance(result, str) else result.table.drop_nulls("sent_over_mean_share")
    if rows is None or rows.is_empty():
        return
    row = rows.sort("sent_over_mean_share", descending=True, maintain_order=True).row(0, named=True)
    if row["sent_over_mean_share"] >= _UNEQUAL:
        yield (
            f"Parts of {row['operation']} are unequal: rank {row['rank']} sends others {size(row['sent_bytes'])}"
            f" {answers.basis}, {share(row['sent_over_mean_share'])} above the mean of its group."
        )


def _waiting(answers: Answers) -> Iterator[str]:
    """The operation that ranks wait longest in."""
    result = answers.of("B08")
    rows: list[dict[str, Any]] = [] if isinstance(result, str) else result.table.drop_nulls("wait_ns").to_dicts()
    if not rows:
        return
    row = max(rows, key=lambda each: each["wait_ns"])
    if row["wait_ns"] and row["duration_ns"]:
        yield (
            f"Of {duration(row['duration_ns'])} that a rank spends in {row['operation']}, {duration(row['wait_ns'])}"
            f" ({share(row['wait_ns'] / row['duration_ns'])}) is waiting for"
            f" {'the other of the two' if row['operation'] in PAIRWISE else 'the last rank to come'}."
        )


def _table(result: Result, what: str, **drawn: Any) -> Block:  # noqa: ANN401 (what `blocks.table` takes)
    """The table; folded away where it is longer than a screen."""
    kept, left_out = cut_rows(result)
    table = blocks.table(kept, name=result.analysis.id, left_out=left_out, **drawn)
    return (
        folded_away(f"{count(result.table.height)} rows: {what}", [table])
        if result.table.height > _OPEN_ROWS
        else table
    )


def _stragglers(answers: Answers) -> Iterator[Block]:
    result = answers.of("B30")
    if isinstance(result, str) or not matched_count(result.table):
        return
    drawn = blocks.table(cut_rows(result)[0], name="B30", bar="waited_for_ns", left_out=cut_rows(result)[1])
    yield folded_away("Who came last, by collective and process group", [drawn])


def _rates(answers: Answers) -> Iterator[Block]:
    result = answers.of("B31")
    if isinstance(result, str) or result.table.is_empty():
        return
    drawn = bandwidth(result.table)
    if drawn:
        yield drawn
    yield folded_away(
        "Bus bandwidth in numbers, by collective, process group and size",
        [blocks.table(cut_rows(result)[0], name="B31", left_out=cut_rows(result)[1])],
    )


def _pipeline(answers: Answers) -> Iterator[Block]:
    """The stages over a step of usual length, and B46."""
    result = answers.of("B46")
    if isinstance(result, str) or result.table.is_empty():
        return
    rows = result.table
    own = longest_bubble(rows)
    yield blocks.text(bubble_words(own))
    step, units = usual_step(answers.per_step, own["pipeline"][0])
    order = dict(own.select("rank", "stage").iter_rows())
    units = sorted(units, key=lambda each: order.get(each[0].rank, len(order)))[:MAX_STAGES]
    others = rows["pipeline"].n_unique() - 1
    yield stages(
        units, f"{count_of(others, 'other pipeline is', 'other pipelines are')} in B46." if others else "", step
    )
    yield _table(result, "every stage in numbers")


def _clocks(answers: Answers, rows: pl.DataFrame) -> Iterator[Block]:
    """How far clocks are apart, and whether that was corrected."""
    entries_of_clocks = answers.trace.frame("ledger").filter(
        pl.col("kind").cast(pl.String).is_in([str(LedgerKind.CLOCKS_ALIGNED), str(LedgerKind.CLOCKS_NOT_ALIGNED)])
    )
    compared = rows.drop_nulls("clock_offset_ns")
    if compared.height:
        row = compared.sort(pl.col("clock_offset_ns").abs(), descending=True, maintain_order=True).row(0, named=True)
        reference = rank_name(rows["rank"].to_list()[0])
        yield blocks.text(_clock_sentence(row, reference, aligned=bool(entries_of_clocks.height)))
    runs = answers.trace.frame("runs").select("run_id", pl.coalesce("rank", "run_id").alias("rank"))
    entries = entries_of_clocks.join(runs, on="run_id", how="left", maintain_order="left").sort("rank", nulls_last=True)
    if entries.height:
        items = [
            ("" if r is None else rank_name(r), None, f"{text}")
            for r, text in entries.select("rank", "detail").iter_rows()
        ]
        yield blocks.entries(
            items, max_entries=_OPEN_ROWS * 8, more="see B01.", summary="What --align-clocks did, rank by rank"
        )


def _clock_sentence(row: dict[str, Any], reference: str, *, aligned: bool) -> str:
    """Of the rank whose clock is furthest off."""
    off, way = row["clock_offset_ns"], "ahead of" if row["clock_offset_ns"] >= 0 else "behind"
    judged = (
        f"by the median over {count_of(row['clock_count'], 'collective', 'collectives')}; half of the differences lie"
        f" within {duration(row['clock_spread_ns'])}"
    )
    if aligned and not off:
        return f"Clocks were aligned: none differs from that of {reference}, judged {judged}."
    if not off:
        return f"Clocks of ranks agree with that of {reference}, judged {judged}."
    drift = row["clock_drift_ns_per_s"]
    gains = f", and {'gains' if drift > 0 else 'loses'} {duration(abs(drift))} a second" if drift else ""
    apart = f"{rank_name(row['rank'])} is {duration(abs(off))} {way} {reference}{gains}, judged {judged}."
    if aligned:
        return f"Clocks were aligned as far as collectives allow. What is left: at most {apart}"
    return f"Clocks of ranks differ: furthest off, {apart} Not corrected: --align-clocks does that as traces are read."
