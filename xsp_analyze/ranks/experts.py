"""How unevenly the ranks of a job share the work of its experts, and what the others wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import ordered_mean, quotient, ratio

if TYPE_CHECKING:
    from xsp_analyze.ranks.job import Job

__all__ = ["experts_by_block", "experts_by_rank"]

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
