"""A job of many ranks, joined from what each left: tables are scanned, and no rank's spans are held."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.formulas import quotient, ratio, trimmed_mean
from xsp_analyze.frames.rank_time import CALL, GROUP, waiting_by_rank, with_waits
from xsp_analyze.ranks.facts import TABLES
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["Job", "open_job"]

_FACTS = "facts.json"
_BUNDLE = "trace.xsp"


@dataclass(frozen=True)
class Job:
    """The ranks by number, each with the folder of its tables and bundle, and its facts.

    Every method's frame has one row of what its name says, in a declared order; times in ns.
    """

    name: str
    folders: Mapping[int, Path]
    facts: Mapping[int, Mapping[str, Any]]

    def scan(self, table: str) -> pl.LazyFrame:
        """One of TABLES over all ranks, with the column `rank`."""
        return pl.scan_parquet([folder / f"{table}.parquet" for folder in self.folders.values()])

    def spans(self, table: str = "spans") -> pl.LazyFrame:
        """A table of the model over the bundles of all ranks, with the column `rank`; read only as far as it is used.

        Times are from the start of each rank's trace; `runs.epoch_ns` says when that was.
        """
        each = (
            trace.scan(table).with_columns(pl.lit(rank, pl.Int64).alias("rank")) for rank, trace in self._traces.items()
        )
        return pl.concat(each, how="vertical_relaxed")

    @cached_property
    def _traces(self) -> dict[int, Trace]:
        return {rank: bundle.read(folder / _BUNDLE) for rank, folder in self.folders.items()}

    @cached_property
    def waits(self) -> pl.DataFrame:
        """One row a rank and collective, with what `with_waits` tells of it."""
        rows = self.scan("collectives").rename({"nth": "number"}).select(*CALL, "rank", "duration_ns")
        return with_waits(rows).sort(*CALL, "rank").collect(engine="streaming")

    def by_rank(self) -> pl.DataFrame:
        """One row a rank, in order: means over its steps, waits, how often it was last, and its lead over the median.

        `last_count`: collectives in which it ran shortest, so that the others waited for it; a tie counts for none.
        """
        measures = ("duration_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns")
        steps = (
            self.scan("steps")
            .group_by("rank")
            .agg(pl.len().cast(pl.Int64).alias("step_count"), *(trimmed_mean(pl.col(m)).alias(m) for m in measures))
        )
        ranks = steps.rename({"duration_ns": "step_ns"}).collect().join(self._waits_by_rank(), on="rank", how="left")
        median = pl.col("step_ns").median()
        return ranks.with_columns(
            (ratio(pl.col("step_ns"), median) - 1).alias("over_median_share"),
            ratio(pl.col("exposed_communication_ns"), pl.col("step_ns")).alias("exposed_share"),
        ).sort("rank")

    def _waits_by_rank(self) -> pl.DataFrame:
        steps = self.scan("steps").select(pl.col("step").n_unique()).collect().item()
        waits = waiting_by_rank(self.waits).select("rank", quotient(pl.col("wait_ns"), max(steps, 1)), "last_count")
        return waits.drop_nulls("wait_ns")

    def by_step(self) -> pl.DataFrame:
        """One row a step, in order: how long it took over ranks, and which was slowest.

        `imbalance_share` is the longest over the mean, less 1: what would be gained if all were equal.
        """
        duration = pl.col("duration_ns")
        return (
            self.scan("steps")
            .sort("rank")
            .group_by("step")
            .agg(
                pl.len().cast(pl.Int64).alias("rank_count"),
                duration.min().alias("shortest_ns"),
                duration.median().alias("median_ns"),
                duration.max().alias("longest_ns"),
                pl.col("rank").gather(duration.arg_max()).first().alias("slowest_rank"),
                (duration.max() / duration.mean() - 1).alias("imbalance_share"),
            )
            .sort("step", nulls_last=True)
            .collect(engine="streaming")
        )

    def by_rank_and_step(self) -> pl.DataFrame:
        """One row a rank and step, in order: step_ns, compute_ns, exposed_communication_ns and wait_ns.

        Waiting is 0 in a step without matched collectives, and null of a rank that ran none.
        """
        waits = self.waits.filter("matched").group_by("rank", "step").agg(pl.col("wait_ns").sum())
        judged = pl.col("rank").is_in(waits["rank"].unique().implode())
        times = self.scan("steps").select(
            "rank", "step", pl.col("duration_ns").alias("step_ns"), "compute_ns", "exposed_communication_ns"
        )
        wait = pl.when(judged).then(pl.col("wait_ns").fill_null(0))
        joined = times.collect().join(waits, on=["rank", "step"], how="left", nulls_equal=True)
        return joined.with_columns(wait).sort("step", "rank", nulls_last=True)

    def by_kernel(self) -> pl.DataFrame:
        """One row a kernel name and kind, longest first: A10 over all ranks, exact sums, and its spread over ranks."""
        duration = pl.col("duration_ns")
        return (
            self.scan("kernels")
            .group_by("kernel_name", "kind")
            .agg(
                pl.len().cast(pl.Int64).alias("rank_count"),
                pl.col("count").sum(),
                duration.sum(),
                duration.min().alias("least_of_a_rank_ns"),
                duration.max().alias("most_of_a_rank_ns"),
                (duration.max() / duration.mean() - 1).alias("imbalance_share"),
            )
            .with_columns(quotient(duration, duration.sum()).alias("share"))
            .sort(-duration, "kernel_name", "kind")
            .collect(engine="streaming")
        )

    def by_collective(self) -> pl.DataFrame:
        """One row a collective and process group, longest first: calls, transfer and wait, what could be matched.

        `rank_count` counts the ranks that ran it. `transfer_ns` sums each matched call's shortest time, once; `wait_ns`
        is what its ranks together waited. `matched_share`: of its time over these, that of calls which all of them ran.
        """
        complete = (
            self.scan("collectives")
            .group_by(*GROUP)
            .agg(
                pl.col("rank").n_unique().cast(pl.Int64).alias("rank_count"),
                pl.len().cast(pl.Int64).alias("count"),
                pl.col("duration_ns").sum(),
            )
            .collect(engine="streaming")
        )
        once = pl.col("rank") == pl.col("rank").min().over(CALL)
        matched = (
            self.waits.filter("matched")
            .with_columns(once.alias("once"))
            .group_by(*GROUP)
            .agg(
                pl.col("transfer_ns").filter("once").sum().cast(pl.Float64),
                pl.col("wait_ns").sum(),
                pl.col("duration_ns").sum().alias("matched_ns"),
            )
        )
        share = ratio(pl.col("matched_ns").fill_null(0), pl.col("duration_ns")).alias("matched_share")
        return (
            complete.join(matched, on=list(GROUP), how="left", nulls_equal=True)
            .with_columns(share)
            .drop("matched_ns")
            .sort(-pl.col("duration_ns"), *GROUP)
        )


def open_job(folder: Path, name: str | None = None, *, only: Sequence[str] | None = None) -> Job:
    """The job whose ranks `xsp batch` left in the folder (OUT/jobs/NAME); XspError where there is none.

    `only`: the names of the ranks' folders that count; None: all.
    """
    folders: dict[int, Path] = {}
    facts: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"ranks/*/{_FACTS}")):
        if only is not None and path.parent.name not in only:
            continue
        try:
            recorded = json.loads(path.read_text(encoding="utf-8"))
            rank = int(recorded["rank"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise XspError("the rank's facts cannot be read", path=path, advice="Run xsp batch again") from error
        if all((path.parent / f"{table}.parquet").is_file() for table in TABLES):
            folders[rank], facts[rank] = path.parent, recorded
    if not folders:
        raise XspError("no rank of a job is in this folder", path=folder, advice="Give a folder OUT/jobs/NAME")
    order: Sequence[int] = sorted(folders)
    return Job(name or folder.name, {r: folders[r] for r in order}, {r: facts[r] for r in order})
