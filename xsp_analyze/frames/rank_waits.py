"""Who waits for whom: collectives matched between ranks, from one trace or from the tables of many."""

from __future__ import annotations

from typing import TypeVar

import polars as pl

__all__ = ["CALL", "GROUP", "PAIRWISE", "waiting_by_rank", "with_waits"]

PAIRWISE = ("send", "recv")
"""Operations of two ranks each time: the n-th of one rank of a group is no other's n-th."""

GROUP = ("operation", "process_group")
CALL = ("step", *GROUP, "number")
"""What makes a collective on two ranks one call: the n-th of its operation and group in its step."""

Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def with_waits(rows: Rows) -> Rows:
    """Collectives (rank, CALL, duration_ns) with what matching them between ranks tells of each.

    `matched`: every rank of its group ran the call, if there are several; where no group is recorded, every rank that
    runs the operation. All ranks leave a collective together, so that the shortest is that of the rank that came last:
    `transfer_ns` is its time, `wait_ns` what the row took beyond that, both null where nothing is matched. No clock is
    compared. `last_share` is 1 where the row's rank came last, a part of it where others came as late, else 0.
    """
    rank, duration = pl.col("rank").n_unique(), pl.col("duration_ns")
    ungrouped = pl.when(pl.col("process_group").is_null()).then("operation")  # who takes part is not is_matched
    ranks, here = rank.over("process_group", ungrouped), rank.over(CALL)
    matched = (here == ranks) & (ranks > 1) & ~pl.col("operation").is_in(PAIRWISE)
    shortest = pl.when("matched").then(duration.min().over(CALL))
    is_shortest = (duration == pl.col("transfer_ns")).fill_null(value=False)
    share = pl.when("is_shortest").then(1 / pl.col("is_shortest").sum().over(CALL)).otherwise(0.0)
    return (
        rows.with_columns(matched.alias("matched"))
        .with_columns(shortest.alias("transfer_ns"))
        .with_columns((duration - pl.col("transfer_ns")).alias("wait_ns"), is_shortest.alias("is_shortest"))
        .with_columns(share.alias("last_share"))
        .drop("is_shortest")
    )


def waiting_by_rank(waits: pl.DataFrame, keys: tuple[str, ...] = ()) -> pl.DataFrame:
    """Sums of what `with_waits` gives over each of these and rank: count, matched_count, last_count, duration_ns, ...

    `last_count` are calls that it alone came last to. `waited_for_ns` is what the others together waited in calls that
    it came last to, of several as late an equal part. Both, and `wait_ns`, are null where none of its calls is matched.
    """
    wait_of_call = pl.col("wait_ns").sum().over(CALL)
    is_matched = pl.col("matched").any()
    sums = {
        "last_count": (pl.col("last_share") == 1).sum().cast(pl.Int64),
        "wait_ns": pl.col("wait_ns").sum(),
        "waited_for_ns": pl.col("caused_ns").sum(),
    }
    return (
        waits.with_columns((wait_of_call * pl.col("last_share")).alias("caused_ns"))
        .group_by(*keys, "rank", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("duration_ns").sum(),
            pl.col("matched").sum().cast(pl.Int64).alias("matched_count"),
            *(pl.when(is_matched).then(value).alias(name) for name, value in sums.items()),
        )
    )
