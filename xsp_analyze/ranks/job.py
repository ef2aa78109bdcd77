"""A job of many ranks, joined from what each left: tables are scanned, and no rank's spans are held."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.collectives import PAIRWISE
from xsp_analyze.ranks.rank_facts import TABLES
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Job", "open_job"]

_FACTS = "facts.json"
_BUNDLE = "trace.xsp"
_KIND = ["operation", "process_group"]
_SAME = ["step", *_KIND, "nth"]  # what makes a collective on two ranks one call


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
            pl.scan_parquet(folder / _BUNDLE / f"{table}.parquet").with_columns(pl.lit(rank, pl.Int64).alias("rank"))
            for rank, folder in self.folders.items()
        )
        return pl.concat(each, how="vertical_relaxed")

    @cached_property
    def waits(self) -> pl.DataFrame:
        """One row a rank and collective that all ranks of its process group ran: _SAME, rank, duration_ns, wait_ns.

        A collective ends everywhere at about the same time, so whoever came last ran it shortest: what the others
        took longer than the shortest they waited. No clock is compared. Without a group it is taken to be of all ranks.
        """
        ran = self.scan("collectives").filter(~pl.col("operation").is_in(PAIRWISE))
        members = ran.group_by("process_group").agg(pl.col("rank").n_unique().alias("members"))
        grouped = pl.col("process_group").is_not_null()
        in_full = pl.when(grouped).then("members").otherwise(len(self.folders)) == pl.col("ranks")
        calls = (
            ran.group_by(_SAME)
            .agg(pl.col("duration_ns").min().alias("transfer_ns"), pl.col("rank").n_unique().alias("ranks"))
            .join(members, on="process_group", nulls_equal=True)
        )
        return (
            ran.join(calls.filter(in_full & (pl.col("ranks") > 1)), on=_SAME, nulls_equal=True)
            .with_columns((pl.col("duration_ns") - pl.col("transfer_ns")).alias("wait_ns"))
            .sort(*_SAME, "rank")
            .select(*_SAME, "rank", "duration_ns", "transfer_ns", "ranks", "wait_ns")
            .collect(engine="streaming")
        )

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
            (pl.col("step_ns") / median - 1).alias("over_median_share"),
            (pl.col("exposed_communication_ns") / pl.col("step_ns")).alias("exposed_share"),
        ).sort("rank")

    def _waits_by_rank(self) -> pl.DataFrame:
        steps = self.scan("steps").select(pl.col("step").n_unique()).collect().item()
        alone = (pl.col("wait_ns") == 0).sum().over(_SAME) == 1
        return (
            self.waits.with_columns(alone.alias("alone"))
            .group_by("rank")
            .agg(
                (pl.col("wait_ns").sum() / max(steps, 1)).alias("wait_ns"),
                ((pl.col("wait_ns") == 0) & pl.col("alone")).sum().cast(pl.Int64).alias("last_count"),
            )
        )

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
            .with_columns((duration / duration.sum()).alias("share"))
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
            .group_by(_KIND)
            .agg(
                pl.col("rank").n_unique().cast(pl.Int64).alias("rank_count"),
                pl.len().cast(pl.Int64).alias("count"),
                pl.col("duration_ns").sum(),
            )
            .collect(engine="streaming")
        )
        matched = self.waits.group_by(_KIND).agg(
            (pl.col("transfer_ns") / pl.col("ranks")).sum(),
            pl.col("wait_ns").sum(),
            pl.col("duration_ns").sum().alias("matched_ns"),
        )
        share = (pl.col("matched_ns").fill_null(0) / pl.col("duration_ns")).alias("matched_share")
        return (
            complete.join(matched, on=_KIND, how="left", nulls_equal=True)
            .with_columns(share)
            .drop("matched_ns")
            .sort(-pl.col("duration_ns"), *_KIND)
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
