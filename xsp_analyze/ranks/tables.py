"""The tables over the ranks of a job as results, so that every renderer takes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_analyze.faults import attempt
from xsp_analyze.formulas import ordered_mean, quotient, ratio
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.ranks.job import Job
    from xsp_analyze.trace.step_view import StepView

__all__ = ["experts_by_block", "experts_by_rank", "tables"]

_BLOCK = ["block", "process_group"]
_ONE = ["step", *_BLOCK]


def _complete(job: Job) -> pl.DataFrame:
    """One row a rank, block, process group and step: products_ns, combine_ns, and wait_ns: beyond the shortest rank's.

    A rank that runs any part of a block in some step has a row for each of its steps, with 0 where its experts had
    nothing to do; a rank that never does has none. Waiting is null where a rank's communication is not known.
    """
    ran = job.scan("experts").collect()
    steps = job.scan("steps").select("rank", "step").unique().collect()
    expected = (
        ran.select("rank", *_BLOCK)
        .unique()
        .join(ran.select(_ONE).unique(), on=_BLOCK, nulls_equal=True)
        .join(steps, on=["rank", "step"], how="semi", nulls_equal=True)
    )
    filled = expected.join(ran, on=["rank", *_ONE], how="left", nulls_equal=True)
    beyond = pl.col("combine_ns") - pl.col("combine_ns").min().over(_ONE)
    is_known = (pl.col("combine_ns").null_count() == 0).over(_ONE)
    return (
        filled.with_columns(pl.col("products_ns").fill_null(0), pl.when(is_known).then(beyond).alias("wait_ns"))
        .filter((pl.col("products_ns").max() > 0).over(_ONE))
        .sort(*_ONE, "rank", nulls_last=True)
    )


def experts_by_block(job: Job) -> pl.DataFrame:
    """One row a block and process group, most lost first: products a step over ranks and of the longest, waiting.

    `imbalance_share` is the longest rank of each step over the mean of its ranks, less 1: over steps the sum of the one
    by the sum of the other. `heaviest_rank` took longest over all steps, and was so alone in `heaviest_count` of them.
    """
    products = pl.col("products_ns")
    rows = _complete(job).with_columns(
        (products == products.max()).over(_ONE).alias("longest"),
        (products == products.max()).sum().over(_ONE).alias("longest_count"),
    )
    alone = pl.col("longest") & (pl.col("longest_count") == 1)
    of_rank = rows.group_by(*_BLOCK, "rank").agg(products.sum(), alone.sum().cast(pl.Int64).alias("heaviest_count"))
    heaviest = (
        of_rank.sort(-products, "rank")
        .unique(_BLOCK, keep="first", maintain_order=True)
        .select(*_BLOCK, pl.col("rank").alias("heaviest_rank"), "heaviest_count")
    )
    of_step = rows.group_by(_ONE).agg(
        pl.len().alias("ranks"),
        ordered_mean(products).alias("mean_ns"),
        products.max().alias("longest_ns"),
        ordered_mean(pl.col("wait_ns")),
    )
    blocks = of_step.group_by(_BLOCK).agg(
        pl.col("ranks").max().cast(pl.Int64).alias("rank_count"),
        pl.len().cast(pl.Int64).alias("step_count"),
        *(ordered_mean(pl.col(each).cast(pl.Float64)) for each in ("mean_ns", "longest_ns")),
        ordered_mean(pl.col("wait_ns")),
    )
    lost = pl.col("longest_ns") - pl.col("mean_ns")
    return (
        blocks.join(heaviest, on=_BLOCK, nulls_equal=True)
        .with_columns(
            (ratio(pl.col("longest_ns"), pl.col("mean_ns")) - 1).alias("imbalance_share"), lost.alias("lost_ns")
        )
        .sort(-pl.col("lost_ns"), *_BLOCK, nulls_last=True)
    )


def experts_by_rank(job: Job) -> pl.DataFrame:
    """One row a rank that has experts, in order: products_ns and wait_ns, over all blocks, means a step.

    Waiting is null where of any block it is not known.
    """
    steps = pl.col("step").n_unique()
    wait = pl.when(pl.col("wait_ns").null_count() == 0).then(quotient(pl.col("wait_ns").sum(), steps))
    rows = _complete(job).group_by("rank").agg(quotient(pl.col("products_ns").sum(), steps), wait.alias("wait_ns"))
    return rows.sort("rank")


# The tables over the ranks of a job as results, so that every renderer takes them.


def _ns(name: str, doc: str) -> Column:
    return Column(name, pl.Float64(), doc, "ns")


_KERNEL = Column("kernel_name", pl.String(), "Name of the kernel, copy or memset.", role=Role.KEY)
_RANKS = Column("rank_count", pl.Int64(), "Ranks that have it.")
_IMBALANCE = Column("imbalance_share", pl.Float64(), "The longest over the mean of the ranks that have it, less 1.")
_BY_RANK = (
    Column("rank", pl.Int64(), "The rank.", role=Role.KEY),
    Column("step_count", pl.Int64(), "Steps that means are over."),
    _ns("step_ns", "Trimmed mean of its steps."),
    Column("over_median_share", pl.Float64(), "How much longer that is than the median over ranks."),
    _ns("busy_ns", "Time a step in which its devices worked."),
    _ns("compute_ns", "Time a step in which kernels other than communication ran."),
    _ns("communication_ns", "Time a step in which communication ran."),
    _ns("exposed_communication_ns", "Communication while nothing computed."),
    Column("exposed_share", pl.Float64(), "That, over the step."),
    _ns("memory_ns", "Time a step in which copies and memsets ran."),
    _ns("wait_ns", "Time a step in collectives beyond the shortest rank of the group: waiting for the last to come."),
    Column("last_count", pl.Int64(), "Collectives that it came to last, alone: the others waited for it."),
)
_BY_STEP = (
    Column("step", pl.Int64(), "Number of the step; null: the traces mark none.", role=Role.KEY),
    _RANKS,
    _ns("shortest_ns", "The shortest of the ranks'."),
    _ns("median_ns", "The median over ranks."),
    _ns("longest_ns", "The longest."),
    Column("slowest_rank", pl.Int64(), "Whose that was; of several the lowest.", role=Role.LABEL),
    _IMBALANCE,
)
_BY_KERNEL = (
    _KERNEL,
    Column("kind", pl.String(), "kernel, memcpy, memset or graph.", role=Role.KEY),
    _RANKS,
    Column("count", pl.Int64(), "How often it ran, over all ranks and the whole traces."),
    _ns("duration_ns", "Sum over all ranks, exact."),
    Column("share", pl.Float64(), "Of all device time of the job."),
    _ns("least_of_a_rank_ns", "The least that one rank spent in it."),
    _ns("most_of_a_rank_ns", "The most that one rank spent in it."),
    _IMBALANCE,
)
_BY_COLLECTIVE = (
    Column("operation", pl.String(), "all_reduce, all_to_all, ... as the framework or the kernel says.", role=Role.KEY),
    Column(
        "process_group",
        pl.String(),
        "Name and ranks of the group as recorded; null: not recorded, so that all ranks are taken for one.",
        role=Role.KEY,
    ),
    _RANKS,
    Column("count", pl.Int64(), "How often it ran, over these ranks."),
    _ns("duration_ns", "Sum over these ranks."),
    _ns("transfer_ns", "Sum over calls that all of them ran of the shortest rank's time, counted once a call."),
    _ns("wait_ns", "What they together spent beyond that: waiting for the last to come."),
    Column("matched_share", pl.Float64(), "Of its time, that of calls which all of them ran; the rest is not judged."),
)
_BY_BLOCK = (
    Column(
        "block",
        pl.String(),
        "Path of the block of experts; null: no layer is recorded, so that all of a step are taken together.",
        role=Role.KEY,
    ),
    Column(
        "process_group",
        pl.String(),
        "Name and ranks of the group that exchanges its tokens as recorded; null: not recorded, so that all ranks"
        " without one are taken together.",
        role=Role.KEY,
    ),
    Column("rank_count", pl.Int64(), "Ranks of these that run any part of it."),
    Column("step_count", pl.Int64(), "Steps that means are over."),
    _ns("mean_ns", "Time of its experts' products a step, mean over these ranks; a rank with nothing to do counts 0."),
    _ns("longest_ns", "The same of each step's longest rank."),
    Column("imbalance_share", pl.Float64(), "The longest over the mean, less 1."),
    _ns("lost_ns", "The longest less the mean: what would be gained a step if all ranks had the same."),
    Column("heaviest_rank", pl.Int64(), "The rank with most of it over all steps.", role=Role.LABEL),
    Column("heaviest_count", pl.Int64(), "Steps in which it alone took longest."),
    _ns(
        "wait_ns",
        "Time a step in communication that combines, beyond the shortest rank's: waiting for the last, mean over ranks;"
        " null: no such communication is known.",
    ),
)


def tables(job: Job) -> list[Result]:
    """The tables that the job has rows for: by rank, by step, by collective, by kernel, of experts by block."""
    every = (
        ("R01", "ranks", _BY_RANK, job.by_rank),
        ("R02", "steps over ranks", _BY_STEP, job.by_step),
        ("R03", "collectives over ranks", _BY_COLLECTIVE, job.by_collective),
        ("R04", "kernels over ranks", _BY_KERNEL, job.by_kernel),
        ("R05", "experts over ranks", _BY_BLOCK, partial(experts_by_block, job)),
    )
    made = (attempt(f"{one[0]} ({one[1]})", partial(_result, *one), lambda _: None) for one in every)
    return [each for each in made if each is not None and each.table.height]


def _result(identity: str, title: str, columns: Sequence[Column], make: Callable[[], pl.DataFrame]) -> Result:
    frame = make()
    ledger = pl.DataFrame(schema=pl.Schema(TABLES["ledger"].schema))
    return Result(
        Analysis(identity, title, (), columns, _of_job), frame.select(c.name for c in columns), columns, lambda: ledger
    )


def _of_job(frames: StepView) -> pl.LazyFrame:
    raise XspError(f"this analysis is of a job's ranks, not of {frames.trace.origin}", advice="Use xsp batch")
