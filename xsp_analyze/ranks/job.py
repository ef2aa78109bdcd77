"""A job of many ranks, joined from what each left: tables are scanned, and no rank's spans are held."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import find
from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_analyze.faults import attempt
from xsp_analyze.formulas import ordered_mean, quotient, ratio, trimmed_mean
from xsp_analyze.frames.kernels.kernel_classes import communication_names
from xsp_analyze.frames.pipelines import UnitsByPipeline, bubbles_of, units_of_job
from xsp_analyze.frames.rank_waits import CALL, GROUP, SENT, waiting_by_rank, with_waits
from xsp_analyze.ranks.facts import RANK_TABLES
from xsp_model import XspError, bundle
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from xsp_analyze.trace.step_view import StepView
    from xsp_model import Trace

__all__ = ["Job", "experts_by_block", "experts_by_rank", "open_job", "tables"]

_FACTS = "facts.json"
_CAUSES = ("schedule_ns", "imbalance_ns", "transfer_ns", "other_ns")
_BUNDLE = "trace.xsp"


@dataclass(frozen=True)
class Job:
    """The ranks by number, each with the folder of its tables and bundle, and its facts.

    Every method's frame has one row of what its name says, in a declared order; times in ns.
    """

    name: str
    folders: Mapping[int, Path]
    facts: Mapping[int, Mapping[str, Any]]

    @property
    def has_bundles(self) -> bool:
        """Whether the ranks' spans were kept too."""
        return any((folder / _BUNDLE).is_dir() for folder in self.folders.values())

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
        rows = self.scan("collectives").rename({"nth": "number"}).select(*CALL, "operation", "rank", "duration_ns")
        return with_waits(rows).sort(*CALL, "rank").collect(engine="streaming")

    def by_rank(self) -> pl.DataFrame:
        """One row a rank, in order: means over its steps, waits, how often it was last, and its lead over the median.

        `last_count`: collectives in which it ran shortest, so that the others waited for it, of `matched_count`; a tie
        counts for none.
        """
        measures = (
            "duration_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns",
            "idle_input_ns",
        )  # fmt: skip
        steps = (
            self.scan("steps")
            .group_by("rank")
            .agg(pl.len().cast(pl.Int64).alias("step_count"), *(trimmed_mean(pl.col(m)).alias(m) for m in measures))
        )
        ranks = steps.rename({"duration_ns": "step_ns"}).collect().join(self._waits_by_rank(), on="rank", how="left")
        median = pl.col("step_ns").median()
        return ranks.with_columns(
            (pl.col("step_ns") - pl.col("busy_ns")).alias("idle_ns"),
            (ratio(pl.col("step_ns"), median) - 1).alias("over_median_share"),
            ratio(pl.col("exposed_communication_ns"), pl.col("step_ns")).alias("exposed_share"),
        ).sort("rank")

    def _waits_by_rank(self) -> pl.DataFrame:
        steps = self.scan("steps").select(pl.col("step").n_unique()).collect().item()
        wait = quotient(pl.col("wait_ns"), max(steps, 1))
        waits = waiting_by_rank(self.waits).select("rank", wait, "last_count", "matched_count")
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
        """One row a rank and step, in order: step_ns, compute_ns, exposed_communication_ns, wait_ns and SENT.

        Waiting is 0 in a step without matched collectives, and null of a rank that ran none.
        """
        waits = self.waits.filter("matched").group_by("rank", "step").agg(pl.col("wait_ns").sum())
        judged = pl.col("rank").is_in(waits["rank"].unique().implode())
        times = self.scan("steps").select(
            "rank", "step", pl.col("duration_ns").alias("step_ns"), "compute_ns", "exposed_communication_ns"
        )
        wait = pl.when(judged).then(pl.col("wait_ns").fill_null(0))
        keys = ["rank", "step"]
        sums = (pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()).alias(c) for c in SENT)
        sent = self.scan("collectives").group_by(keys).agg(sums).collect(engine="streaming")
        joined = times.collect().join(waits, on=keys, how="left", nulls_equal=True)
        joined = joined.join(sent, on=keys, how="left", nulls_equal=True)
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

    def by_coordinate(self) -> pl.DataFrame:
        """One row a place in groups of one kind, in order: means over the ranks that have it there.

        Groups are of one kind that have one name (what they are described as, if they are), or where names are numbers
        one distance between their ranks (1: the ranks of a node, as tensor parallelism has them). A kind that holds all
        ranks, or one group alone, is none.
        """
        groups = self.scan("collectives").select("rank", "process_group").unique().drop_nulls().collect()
        kinds_of = {text: _kind_of_group(text) for text in groups["process_group"].unique()}
        rows = [
            (rank, kinds_of[text][0], nth, text)
            for rank, text in groups.iter_rows()
            if (nth := _place_in_group(rank, text, *kinds_of[text])) is not None
        ]
        schema = {"rank": pl.Int64, "groups": pl.String, "place": pl.Int64, "process_group": pl.String}
        members = pl.DataFrame(rows, schema=schema, orient="row")
        several = members.group_by("groups").agg(pl.col("process_group", "place").n_unique())
        kinds = several.filter(pl.col("process_group") > 1, pl.col("place") > 1)["groups"]
        members = members.filter(pl.col("groups").is_in(kinds.implode())).unique(["rank", "groups"], keep="any")
        measures = ("step_ns", "compute_ns", "exposed_communication_ns", "wait_ns")
        return (
            members.join(self.by_rank(), on="rank")
            .group_by("groups", "place")
            .agg(pl.len().cast(pl.Int64).alias("rank_count"), *(ordered_mean(pl.col(c)) for c in measures))
            .with_columns(
                (ratio(pl.col("compute_ns"), pl.col("compute_ns").median().over("groups")) - 1).alias(
                    "over_median_share"
                )
            )
            .sort("groups", "place")
        )

    @cached_property
    def units(self) -> UnitsByPipeline:
        """What each rank of a pipeline computes of each micro-batch, by pipeline and step."""
        return units_of_job(self.scan("units").collect(), self.waits)

    def pipelines(self) -> pl.DataFrame:
        """One row a rank of a pipeline, by pipeline and stage: B46 over all ranks, means over steps."""
        rows = bubbles_of(self.units, self.waits)
        facts = (pl.col(c).drop_nulls().mode().min() for c in ("stage", "schedule", "micro_batches", "stages_of_rank"))
        sizes = ("window_ns", "compute_ns", "bubble_ns", "warm_up_ns", "drain_ns", *_CAUSES)
        means = rows.group_by("pipeline", "rank").agg(*facts, *(ordered_mean(pl.col(c)) for c in sizes))
        computed = pl.col("compute_ns").mean().over("pipeline")
        return means.with_columns(
            ratio(pl.col("bubble_ns"), pl.col("window_ns")).alias("bubble_share"),
            ratio(pl.col("schedule_ns"), pl.col("schedule_ns") + computed).alias("schedule_share"),
        ).sort("pipeline", "stage", "rank")

    def kernels_of_ranks(self) -> pl.DataFrame:
        """How often and how long each rank ran each kernel that computes: rank, kernel_name, count, duration_ns."""
        kernels = self.scan("kernels").filter(pl.col("kind") == "kernel").collect(engine="streaming")
        talks = communication_names(kernels["kernel_name"])
        return kernels.filter(~pl.col("kernel_name").is_in(talks.implode()))

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
        once = pl.col("rank") == pl.col("rank").min().over(*CALL, "operation")
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


def _kind_of_group(text: str) -> tuple[str, int, int]:
    """What kind of group it is, its first rank, and the distance between its ranks; 0 where that is not one."""
    name, _, ranks = text.partition("[")
    numbers = [int(part) for part in re.findall(r"\d+", ranks.partition("...")[0])]
    apart = {later - earlier for earlier, later in pairwise(numbers)}
    distance = apart.pop() if len(apart) == 1 else 0
    name = re.sub(r"(?<=\S) \d+$", "", name.strip())  # what a group is described as, without its number
    kind = name if name and not name.isdecimal() else f"ranks {distance} apart"
    return kind, numbers[0] if numbers else 0, max(distance, 0)


def _place_in_group(rank: int, text: str, kind: str, first: int, distance: int) -> int | None:
    """By the distance between its ranks, or by its list where these are not equally far apart."""
    if distance:
        return (rank - first) // distance
    listed = [int(part) for part in re.findall(r"\d+", text.partition("[")[2])]
    return listed.index(rank) if rank in listed and not kind.startswith("ranks 0 ") else None


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
        if all((path.parent / f"{table}.parquet").is_file() for table in RANK_TABLES):
            folders[rank], facts[rank] = path.parent, recorded
    if not folders:
        raise XspError("no rank of a job is in this folder", path=folder, advice="Give a folder OUT/jobs/NAME")
    order: Sequence[int] = sorted(folders)
    return Job(name or folder.name, {r: folders[r] for r in order}, {r: facts[r] for r in order})


# The tables over the ranks of a job as results, so that every renderer takes them.

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


_BY_COORDINATE = (
    Column("groups", pl.String(), "Kind of process groups: their name, or the distance between ranks.", role=Role.KEY),
    Column("place", pl.Int64(), "Place in the group, from 0.", role=Role.KEY),
    Column("rank_count", pl.Int64(), "Ranks that have that place in their group."),
    _ns("step_ns", "Mean of their steps."),
    _ns("compute_ns", "Mean of what they compute a step."),
    Column("over_median_share", pl.Float64(), "How much more that is than the median over places."),
    _ns("exposed_communication_ns", "Mean of communication while nothing computed."),
    _ns("wait_ns", "Mean of their waiting for the last to come."),
)


def tables(job: Job) -> list[Result]:
    """The tables that the job has rows for: by rank, step, collective, kernel, block of experts, place and stage."""
    every = (
        ("R01", "ranks", _BY_RANK, job.by_rank),
        ("R02", "steps over ranks", _BY_STEP, job.by_step),
        ("R03", "collectives over ranks", _BY_COLLECTIVE, job.by_collective),
        ("R04", "kernels over ranks", _BY_KERNEL, job.by_kernel),
        ("R05", "experts over ranks", _BY_BLOCK, partial(experts_by_block, job)),
        ("R06", "places in groups", _BY_COORDINATE, job.by_coordinate),
        ("R07", "stages of pipelines", _columns_of_b46(), job.pipelines),
    )
    made = (attempt(f"{one[0]} ({one[1]})", partial(_result, *one), lambda _: None) for one in every)
    return [each for each in made if each is not None and each.table.height]


def _columns_of_b46() -> Sequence[Column]:
    return [column for column in find("B46").columns if column.name != "step"]


def _result(identity: str, title: str, columns: Sequence[Column], make: Callable[[], pl.DataFrame]) -> Result:
    frame = make()
    ledger = pl.DataFrame(schema=pl.Schema(TABLES["ledger"].schema))
    return Result(
        Analysis(identity, title, (), columns, _of_job), frame.select(c.name for c in columns), columns, lambda: ledger
    )


def _of_job(frames: StepView) -> pl.LazyFrame:
    raise XspError(f"this analysis is of a job's ranks, not of {frames.trace.origin}", advice="Use xsp batch")
