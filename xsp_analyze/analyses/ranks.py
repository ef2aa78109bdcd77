"""Several ranks: collectives (B08), ranks side by side (B29), stragglers (B30), bandwidth (B31), pipelines (B46)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, ratio
from xsp_analyze.frames.collectives import PAIRWISE, bus_factor, with_sizes
from xsp_analyze.frames.pipelines import pipeline_bubbles
from xsp_analyze.frames.rank_waits import CALL, CLOCKS, GROUP, mean_waiting, rank_clocks, rank_times, waits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["bus_bandwidth", "collectives", "pipeline", "ranks", "stragglers"]

# B08: communication by operation and process group: how long, how exposed, who waits for whom, how fast.

_SUMS = (
    "count", "duration_ns", "exposed_ns", "matched_count", "matched_ns", "transfer_ns", "skew_ns", "bytes",
    "sized_count", "message_bytes", "message_ns", "bus_bytes",
)  # fmt: skip
_NS_PER_S = 1e9


@analysis(
    "B08",
    "collectives",
    needs=("communication",),
    read=(
        "Waiting is time in which a rank's communication kernel spins for ranks that come later: much of it means "
        "uneven work or a slow host on the straggler, not a slow network."
    ),
    columns=(
        STEP,
        Column(
            "operation", pl.String(), "all_reduce, all_to_all, ... as the framework or the kernel says.", role=Role.KEY
        ),
        Column(
            "process_group",
            pl.String(),
            "Name and ranks of the group as recorded; null: not recorded, so that all ranks are taken for one.",
            role=Role.KEY,
        ),
        Column(
            "rank_count", pl.Int64(), "Ranks (runs, or devices of a run) in the trace that took part.", role=Role.LABEL
        ),
        Column(
            "group_size",
            pl.Int64(),
            "Ranks of the group as recorded; null: not recorded. Where it is more than took part, a rank that is not in"
            " the trace may have come last.",
            role=Role.LABEL,
        ),
        Column("count", pl.Float64(), "Kernels of a rank; in a mean step, per step on average."),
        Column("duration_ns", pl.Float64(), "Their time on a rank, mean over ranks.", "ns"),
        Column("exposed_ns", pl.Float64(), "Of that, while nothing computed on the device.", "ns"),
        Column("matched_count", pl.Float64(), "Of the count, those found in every rank of the group in the trace."),
        Column(
            "transfer_ns", pl.Float64(), "Time of the rank that took part for the shortest, summed over those.", "ns"
        ),
        Column("wait_ns", pl.Float64(), "The rest of their time, mean over ranks: waiting for the last one.", "ns"),
        Column("skew_ns", pl.Float64(), "Between the first and the last rank to come, summed over those.", "ns"),
        Column(
            "straggler", pl.Int64(), "The rank that came last most often; null: ranks are not matched.", role=Role.LABEL
        ),
        Column("straggler_share", pl.Float64(), "How often it did, of those matched."),
        Column("bytes", pl.Float64(), "What a rank hands over, mean over ranks; null: the trace says of none.", "byte"),
        Column("sized_count", pl.Float64(), "Of the count, those whose bytes are known."),
        Column(
            "byte_per_s",
            pl.Float64(),
            "Size of the messages (of a gather or scatter that of all parts) over their transfer time; where nothing is"
            " matched, over their time, waiting included; of a send or receive null then.",
            "byte/s",
        ),
        Column(
            "bus_byte_per_s",
            pl.Float64(),
            "What a rank's link carried: what it sent to other ranks where the parts are recorded, else by the group's"
            " size; where that is not recorded, by the job's.",
            "byte/s",
        ),
    ),
    figure=FigureSpec("stacked_bars", x="operation", y=("transfer_ns", "wait_ns"), title="Communication by operation"),
)
def collectives(frames: StepView) -> pl.LazyFrame:
    """One row an operation and process group, longest first, then by name.

    The n-th such operation of a step and group on one rank is the n-th on another. All ranks leave a collective
    together, so that the shortest kernel is that of the rank that came last, and needs no common clock.
    """
    matched = _contributions(_sized_waits(frames))
    per_step = matched.group_by("run_id", "step", *GROUP, maintain_order=True).agg(pl.col(_SUMS).sum())
    keys = [*frames.by, *GROUP]
    ranks = matched.group_by(keys, maintain_order=True).agg(
        pl.struct("run_id", "rank").n_unique().cast(pl.Int64).alias("rank_count"), pl.col("group_size", "ranks").max()
    )
    mean = (quotient(pl.col(c), pl.col("rank_count")) for c in _SUMS)
    return (
        frames.combine(per_step, GROUP, _SUMS)
        .lazy()
        .join(ranks.lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(mean)
        .join(_stragglers(frames, matched).lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(*_known_waits(), *_rates())
        .sort(*frames.by, -pl.col("duration_ns"), *GROUP)
    )


def _contributions(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with what each adds to the sums; those that every rank has are matched, if there are several."""
    longest = pl.col("duration_ns").max().over(CALL)
    is_sized = pl.col("input_bytes").is_not_null()
    size = pl.when(_is_rated()).then("message_bytes")
    factor = bus_factor(pl.col("operation"), pl.col("ranks"))
    return rows.with_columns(
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("matched").cast(pl.Int64).alias("matched_count"),
        pl.when("matched").then("duration_ns").otherwise(0).alias("matched_ns"),
        pl.col("transfer_ns").fill_null(0),
        (longest - pl.col("transfer_ns")).fill_null(0).alias("skew_ns"),
        (pl.col("last_share") > 0).alias("last"),
        pl.col("input_bytes").alias("bytes"),
        is_sized.cast(pl.Int64).alias("sized_count"),
        size,
        pl.when(size.is_not_null()).then(pl.coalesce("transfer_ns", "duration_ns")).otherwise(0).alias("message_ns"),
        pl.when(size.is_not_null()).then(pl.coalesce("sent_bytes", size * factor)).alias("bus_bytes"),
    )


def _sized_waits(frames: StepView) -> pl.DataFrame:
    return with_sizes(frames.trace, frames.of_chosen_steps(frames.once(waits_of)))


def _is_rated() -> pl.Expr:
    """Whether a time is of a transfer: of a send or receive alone it may be all waiting, or the message was there."""
    of_pair = pl.col("operation").is_in([*PAIRWISE, "send_recv"])
    return ~of_pair | (pl.col("matched") & (pl.col("transfer_ns") > 0))


def _stragglers(frames: StepView, matched: pl.DataFrame) -> pl.DataFrame:
    """Per operation and group the rank that came last most often (the lowest of several), and how often."""
    keys = [*frames.by, *GROUP]
    return (
        matched.filter("matched")
        .group_by(*keys, pl.col("rank").alias("straggler"), maintain_order=True)
        .agg(pl.col("last").mean().alias("straggler_share"))
        .sort(*keys, -pl.col("straggler_share"), "straggler")
        .unique(keys, keep="first", maintain_order=True)
    )


def _known_waits() -> list[pl.Expr]:
    """Null where nothing is matched or no size is known; a wait is what lies beyond the shortest rank's time."""
    matched, sized = pl.col("matched_count") > 0, pl.col("sized_count") > 0
    return [
        pl.when(matched).then(pl.col("matched_ns") - pl.col("transfer_ns")).alias("wait_ns"),
        *(pl.when(matched).then(pl.col(c)).alias(c) for c in ("transfer_ns", "skew_ns")),
        pl.when(sized).then("bytes").alias("bytes"),
    ]


def _rates() -> list[pl.Expr]:
    rates = (("byte_per_s", "message_bytes"), ("bus_byte_per_s", "bus_bytes"))
    is_timed = pl.col("message_ns") > 0
    where_timed = pl.when(
        is_timed, bus_factor(pl.col("operation"), pl.col("ranks")).is_not_null() | (pl.col("bus_bytes") > 0)
    )
    return [
        (where_timed if bytes_ == "bus_bytes" else pl.when(is_timed))
        .then(quotient(pl.col(bytes_) * _NS_PER_S, pl.col("message_ns")))
        .alias(name)
        for name, bytes_ in rates
    ]


_SENT_COLUMNS = (
    Column(
        "sent_bytes", AMOUNT, "What it sent to other ranks, where parts are recorded (all_to_all); else null.", "byte"
    ),
    Column("received_bytes", AMOUNT, "What it received from other ranks, likewise.", "byte"),
)

# B29: the ranks side by side: what each did with its step, what it waited for others, how far its clock is off.

_CLOCK_DOCS = (
    "How far its clock is ahead of the lowest rank's: median over the collectives that both ran; null: one clock.",
    "Between the first and the third quartile of these differences.",
    "Collectives that they are over.",
    "How much further it gets ahead a second, where that explains most of the spread; else null.",
)


@analysis(
    "B29",
    "ranks",
    needs=("ranks",),
    read=(
        "A rank that others wait for waits little itself and comes last often; ranks that wait have no more to do than"
        " the mean, whatever their communication takes."
    ),
    section="ranks",
    columns=(
        STEP,
        Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
        Column("step_ns", TIME_NS, "Its step; without steps the time that its trace covers.", "ns"),
        Column("over_median_share", pl.Float64(), "How much longer that is than the median over ranks."),
        Column("compute_ns", TIME_NS, "Of that, while kernels other than communication ran.", "ns"),
        Column("exposed_communication_ns", TIME_NS, "While communication ran and nothing computed.", "ns"),
        Column("exposed_memory_ns", TIME_NS, "While copies or memsets ran and no kernel.", "ns"),
        Column("idle_ns", TIME_NS, "While its device did nothing.", "ns"),
        Column("communication_ns", TIME_NS, "While communication ran, hidden or not.", "ns"),
        Column(
            "wait_ns",
            TIME_NS,
            "Time of its collectives beyond the shortest rank's: waiting for the last to come; null: none is matched.",
            "ns",
        ),
        Column("last_count", AMOUNT, "Collectives that it alone came last to, so that the others waited for it."),
        *_SENT_COLUMNS,
        *(
            Column(name, kind, doc, unit)
            for (name, kind), doc, unit in zip(CLOCKS.items(), _CLOCK_DOCS, ("ns", "ns", "", "ns/s"), strict=True)
        ),
    ),
    figure=FigureSpec(
        "stacked_bars",
        x="rank",
        y=("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"),
        title="Step of each rank",
    ),
)
def ranks(frames: StepView) -> pl.LazyFrame:
    """One row a rank, in order.

    step = compute + exposed communication + exposed memory + idle; waiting is a part of communication.
    """
    median = pl.col("step_ns").median()
    over = (ratio(pl.col("step_ns"), median.over(frames.by) if frames.by else median) - 1).alias("over_median_share")
    clocks = rank_clocks(frames)
    return rank_times(frames).with_columns(over).join(clocks, on="rank", how="left", maintain_order="left").lazy()


# B30: collectives by rank: who came last to them, and what the others waited for it.


@analysis(
    "B30",
    "stragglers",
    needs=("ranks", "communication"),
    section="ranks",
    columns=(
        STEP,
        Column("operation", pl.String(), "all_reduce, all_to_all, ..., as in B08.", role=Role.KEY),
        Column(
            "process_group",
            pl.String(),
            "Name and ranks of the group as recorded; null: not recorded, so that all ranks are taken for one.",
            role=Role.KEY,
        ),
        Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("matched_count", AMOUNT, "Of these, those found in every rank of the group in the trace."),
        Column("last_count", AMOUNT, "Of those, the ones that it alone came last to; null: none is matched."),
        Column("last_share", pl.Float64(), "How often that was, of those matched."),
        Column(
            "waited_for_ns",
            pl.Float64(),
            "What the other ranks together waited in calls that it came last to; of several as late an equal part.",
            "ns",
        ),
        Column("wait_ns", TIME_NS, "What it waited itself, in calls to which others came last.", "ns"),
        Column("duration_ns", TIME_NS, "Its time in them, waiting included.", "ns"),
        *_SENT_COLUMNS,
        Column(
            "sent_byte_per_s", pl.Float64(), "That it sent over the time of calls less waiting: what its link carried.",
            "byte/s",
        ),
        Column(
            "sent_over_mean_share", pl.Float64(), "How much more that is than the mean over ranks of the group sends."
        ),
    ),
)  # fmt: skip
def stragglers(frames: StepView) -> pl.LazyFrame:
    """One row an operation, process group and rank, first those that the others waited longest for.

    Over the ranks of an operation and group, what is waited for them is what they wait. Matched as in B08; of a mean
    step all are means over its steps, of which none is trimmed.
    """
    share = pl.when(pl.col("matched_count") > 0).then(quotient(pl.col("last_count"), pl.col("matched_count")))
    return (
        mean_waiting(frames, GROUP)
        .lazy()
        .with_columns(share.alias("last_share"), pl.col("waited_for_ns").cast(pl.Float64), *_sending(frames.by))
        .sort(*frames.by, -pl.col("waited_for_ns"), *GROUP, "rank", nulls_last=True)
    )


def _sending(by: Sequence[str]) -> list[pl.Expr]:
    """Of ranks that are known to send unequal parts how fast they did, and how unequal it is."""
    sent, busy = pl.col("sent_bytes"), pl.col("duration_ns") - pl.col("wait_ns").fill_null(0)
    return [
        pl.when(busy > 0).then(quotient(sent * _NS_PER_S, busy)).alias("sent_byte_per_s"),
        (ratio(sent, sent.mean().over(*by, *GROUP)) - 1).alias("sent_over_mean_share"),
    ]


# B31: how fast collectives were, by the size of their messages.


@analysis(
    "B31",
    "bus bandwidth by message size",
    needs=("communication",),
    read=(
        "Small messages take as long as their latency, whatever their size: where the rate still grows with size,"
        " larger messages would be faster. Calls of which not all ranks are matched hold waiting too."
    ),
    columns=(
        STEP,
        Column("operation", pl.String(), "all_reduce, all_to_all, ..., as in B08.", role=Role.KEY),
        Column("process_group", pl.String(), "Name and ranks of the group; null: not recorded.", role=Role.KEY),
        Column(
            "from_bytes", pl.Int64(), "Least size of these messages, a power of two; all are below twice it.", "byte",
            role=Role.KEY,
        ),
        Column("ranks", pl.Int64(), "Ranks of the group, or of the job; null: not recorded.", role=Role.LABEL),
        Column("count", pl.Int64(), "Calls in the steps chosen; one that is matched between ranks counts once."),
        Column("matched_count", pl.Int64(), "Of these, those that are, so that their time is without waiting."),
        Column("message_bytes", pl.Float64(), "Mean size of a message; of a gather or scatter all parts.", "byte"),
        Column("transfer_ns", pl.Float64(), "Mean time of a call: the shortest rank's, or its own.", "ns"),
        Column("byte_per_s", pl.Float64(), "All bytes of the messages over all that time.", "byte/s"),
        Column("bus_byte_per_s", pl.Float64(), "What a rank's link carried in it, by the group's size.", "byte/s"),
        Column("min_bus_byte_per_s", pl.Float64(), "The same of the slowest call.", "byte/s"),
        Column("max_bus_byte_per_s", pl.Float64(), "The same of the fastest call.", "byte/s"),
    ),
    figure=FigureSpec(
        "scatter", x="message_bytes", y=("bus_byte_per_s",), title="Bus bandwidth by message size", color="operation"
    ),
)  # fmt: skip
def bus_bandwidth(frames: StepView) -> pl.LazyFrame:
    """One row an operation, process group and power of two of the size of its messages, in this order.

    Calls of unknown size, and those that took no time, are left out.
    """
    size = pl.col("message_bytes")
    carried = pl.coalesce("sent_bytes", size * bus_factor(pl.col("operation"), pl.col("ranks")))
    bus = quotient(carried * _NS_PER_S, pl.col("transfer_ns"))
    power = pl.lit(2, pl.Int64).pow(size.log(2).floor().cast(pl.Int64)).cast(pl.Int64)
    keys = [*frames.by, *GROUP, "from_bytes"]
    time = pl.col("transfer_ns").sum()
    is_known = pl.col("carried").count() > 0
    return (
        _calls(frames)
        .lazy()
        .filter(size > 0, pl.col("transfer_ns") > 0)
        .with_columns(bus.alias("bus"), carried.alias("carried"), power.alias("from_bytes"))
        .group_by(keys)
        .agg(
            pl.col("ranks").max(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("matched").sum().cast(pl.Int64).alias("matched_count"),
            (size.sum() * _NS_PER_S / time).alias("byte_per_s"),
            pl.when(is_known).then(pl.col("carried").sum() * _NS_PER_S / time).alias("bus_byte_per_s"),
            pl.col("bus").min().alias("min_bus_byte_per_s"),
            pl.col("bus").max().alias("max_bus_byte_per_s"),
            size.mean().alias("message_bytes"),
            pl.col("transfer_ns").cast(pl.Float64).mean(),
        )
        .sort(keys)
    )


def _calls(frames: StepView) -> pl.DataFrame:
    """One row a call that is matched between ranks, and one a kernel that is not."""
    rows = _sized_waits(frames).filter(_is_rated())
    rows = rows.with_columns(pl.coalesce("transfer_ns", "duration_ns").alias("transfer_ns"))
    alone = pl.when(~pl.col("matched")).then(pl.int_range(pl.len()))
    return rows.group_by(*CALL, "operation", alone.alias("row"), maintain_order=True).agg(
        pl.col("matched", "transfer_ns").first(),
        pl.col("ranks").max(),
        pl.col("message_bytes", "sent_bytes").mean().cast(pl.Float64),
    )


# B46: the stages of a pipeline: how long each computes nothing while it runs, and why.

_PIPELINE = ("pipeline", "stage", "rank", "schedule", "micro_batches", "stages_of_rank")
_OF_BUBBLE = (
    ("window_ns", "From the first work of any stage to the last of any."),
    ("compute_ns", "Of that, while it computed."),
    ("bubble_ns", "The rest: it waited, or moved data."),
    ("warm_up_ns", "Of the bubble, before its first work."),
    ("drain_ns", "Of the bubble, after its last work."),
    ("schedule_ns", "Of the bubble, what the order of micro-batches leaves with equal stages and without transfers."),
    ("imbalance_ns", "What unequal stages add to that; below 0 at a stage that others wait for."),
    ("transfer_ns", "What moving data between stages adds."),
    ("other_ns", "What is left: gaps within its work, late launches, micro-batches that differ."),
)


@analysis(
    "B46",
    "pipeline",
    needs=("pipeline",),
    read=(
        "The schedule's own bubble shrinks with more micro-batches or stages by turns; imbalance says to move layers,"
        " transfer to send earlier."
    ),
    section="ranks",
    columns=(
        STEP,
        Column("pipeline", pl.String(), "Its ranks.", role=Role.KEY),
        Column("stage", pl.Int64(), "Place in the pipeline, from 0.", role=Role.LABEL),
        Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
        Column("schedule", pl.String(), "GPipe, 1F1B, interleaved (...), zero bubble, forward only.", role=Role.LABEL),
        Column("micro_batches", pl.Int64(), "Micro-batches of a step.", role=Role.LABEL),
        Column("stages_of_rank", pl.Int64(), "Stages that a rank has by turns; 1: one each.", role=Role.LABEL),
        *(Column(name, pl.Float64(), doc, "ns") for name, doc in _OF_BUBBLE),
        Column("bubble_share", pl.Float64(), "The bubble over the window."),
        Column("schedule_share", pl.Float64(), "The same of the ideal: equal stages, and data that moves in no time."),
    ),
    figure=FigureSpec("stacked_bars", x="rank", y=("compute_ns", "bubble_ns"), title="Stages of the pipeline"),
)
def pipeline(frames: StepView) -> pl.LazyFrame:
    """One row a rank of a pipeline, by pipeline and stage.

    Of a mean step all are means over its steps.
    """
    measures = [name for name, _ in _OF_BUBBLE]
    rows = frames.of_chosen_steps(frames.once(pipeline_bubbles))
    keys = [*frames.by, "pipeline", "rank"]
    facts = rows.group_by(keys).agg(pl.col(c).drop_nulls().mode().min() for c in _PIPELINE if c not in keys)
    steps = frames.combine(rows, ("pipeline", "rank"), measures)
    computed = pl.col("compute_ns").mean().over(*frames.by, "pipeline")
    return (
        facts.join(steps, on=keys)
        .with_columns(
            ratio(pl.col("bubble_ns"), pl.col("window_ns")).alias("bubble_share"),
            ratio(pl.col("schedule_ns"), pl.col("schedule_ns") + computed).alias("schedule_share"),
        )
        .sort(*frames.by, "pipeline", "stage", "rank")
        .lazy()
    )
