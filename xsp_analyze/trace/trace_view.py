"""The frames of a trace that are the same whatever the steps chosen, each computed once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernels.activities import device_activities, device_work
from xsp_analyze.frames.kernels.kernel_classes import kernel_classes
from xsp_analyze.frames.serving_steps import serving_steps
from xsp_analyze.frames.steps import all_steps, host_steps, marked_steps, step_windows, unseen_end
from xsp_analyze.trace.memo import Memo
from xsp_analyze.trace.roles import roles_of
from xsp_analyze.trace.runs import Runs
from xsp_analyze.trace.timed_runs import timed_runs
from xsp_model import LedgerKind, Level
from xsp_model.vocabulary import Recorder, formats_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.roles import Roles
    from xsp_model import Trace

__all__ = ["TraceView"]

_CALL = ("call_start_ns", "call_end_ns")


class TraceView(Memo):
    """What analyses share of a trace, independent of steps; of a profile of several batch sizes at one of them."""

    def __init__(self, trace: Trace, batch_size: int | None = None) -> None:
        """`batch_size`: which one, where it is not the one that the profile was merged for."""
        super().__init__()
        self.trace: Trace = trace
        self._batch_size = batch_size

    @cached_property
    def _roles(self) -> Roles:
        return roles_of(self.trace, self._batch_size)

    @cached_property
    def _every_run(self) -> Sequence[int]:
        return self.trace.frame("runs")["run_id"].to_list()

    def runs(self, ids: Sequence[int]) -> Runs:
        """These runs."""
        return Runs(self.trace, ids, are_all=set(ids) >= set(self._every_run))

    @property
    def is_leveled(self) -> bool:
        """Whether runs of the same work were made at several levels, and each number is taken from one of them."""
        return self._roles.leveled

    @property
    def source_files(self) -> Mapping[str, str]:
        """The files that each kind of number is taken from, where not every run gives everything."""
        return self._roles.sources

    @property
    def has_other_batches(self) -> bool:
        """Whether there are runs of other batch sizes, which only what goes over batch sizes is taken from."""
        return bool(self._roles.other_batches)

    @property
    def other_batch_sizes(self) -> Sequence[int]:
        """Theirs, smallest first."""
        return self._roles.batch_sizes

    @cached_property
    def own_runs(self) -> Runs:
        """All runs but those of other batch sizes, also such that no time is taken from."""
        others = set(self._roles.other_batches)
        return self.runs([run for run in self._every_run if run not in others])

    @cached_property
    def timed_runs(self) -> Runs:
        """All runs of whatever batch size, but captures of graphs: these say which layers work is of, and no time."""
        return self.runs(timed_runs(self.trace)["run_id"].to_list())

    @cached_property
    def model_runs(self) -> Runs:
        """The runs that model latency is taken from."""
        return self.runs(self._roles.model)

    @cached_property
    def layer_runs(self) -> Runs:
        """The runs that layers and their latency are taken from."""
        return self.runs(self._roles.layers)

    @cached_property
    def kernel_runs(self) -> Runs:
        """The runs that device work and its launches are taken from."""
        return self.runs(self._roles.kernels)

    @cached_property
    def serialised_runs(self) -> Runs:
        """The runs of kernels in which the host waited for each layer's work, where such were made."""
        return self.runs(self._roles.serialised_kernels)

    @cached_property
    def profiled_layer_runs(self) -> Runs:
        """The runs whose steps show what it costs to profile layers."""
        return self.runs(self._roles.profiled_layers)

    @cached_property
    def counter_runs(self) -> Runs:
        """The runs that counters alone are taken from, and no time."""
        return self.runs(self._roles.counters)

    @cached_property
    def run_labels(self) -> Mapping[int, str | None]:
        """What each run of a profile was made for, as a label for people; null in a plain trace."""
        runs = self.trace.frame("runs").select("run_id", pl.col("role").cast(pl.String))
        return dict(runs.iter_rows())

    def deepest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the runs that kernels are taken from; where these have none, of those of layers, else the model.

        For what is not of one level, such as ranges: of a profile, whose runs are of the same work, each is told once.
        """
        taken = (runs.of(rows) for runs in (self.kernel_runs, self.layer_runs, self.model_runs))
        return next((own for own in taken if own.height), rows.clear())

    @property
    def are_runs_chosen(self) -> bool:
        """Whether some runs give nothing: those of other levels or batch sizes, and captures of graphs."""
        return self._roles.selective

    @property
    def replays_tell_layers(self) -> bool:
        """Whether layers take what their replayed work takes: no other run was made to time their calls."""
        return set(self.layer_runs.ids) <= set(self.kernel_runs.ids)

    @cached_property
    def at_other_batch_sizes(self) -> Sequence[TraceView]:
        """The same of the profile's other batch sizes, smallest first."""
        return [TraceView(self.trace, size) for size in self._roles.batch_sizes]

    @cached_property
    def marked_steps(self) -> pl.DataFrame:
        """run_id and step of every step of every run: what choosing among them takes."""
        return self.own_runs.of(marked_steps(self.trace))

    @cached_property
    def process_steps(self) -> pl.DataFrame:
        """Every step that a span marks, of every process, with the time it took on the process's devices."""
        return step_windows(self._host_steps, self._launched_work)

    @cached_property
    def _host_steps(self) -> pl.DataFrame:
        """Every step of every process as its range marks it on the host; see `steps.host_steps`."""
        return self.own_runs.of(host_steps(self.trace))

    @cached_property
    def _launched_work(self) -> pl.DataFrame:
        """What `step_windows` asks of device work; of processes without steps it counts as that of one with steps."""
        owners = self._host_steps.group_by("run_id").agg(
            pl.col("process_id").unique(), pl.col("process_id").min().alias("owner")
        )
        columns = ("run_id", "process_id", "device_id", "stream_id", "step", "start_ns", "duration_ns", *_CALL)
        work = self.all_activities.select(columns).join(owners, on="run_id", maintain_order="left", suffix="_owners")
        owns = pl.col("process_id").is_in(pl.col("process_id_owners"))
        return work.with_columns(pl.when(owns).then("process_id").otherwise("owner").alias("process_id"))

    @cached_property
    def all_steps(self) -> pl.DataFrame:
        """Every step of every run that a number is taken from, in `steps.STEP_COLUMNS`."""
        timed_first = self.model_runs.ids if self.is_leveled else ()
        return self.own_runs.of(all_steps(self.trace, self.process_steps, timed_first=timed_first))

    @cached_property
    def work_in_steps(self) -> pl.DataFrame:
        """By run and step (null: outside of all) `count` and `duration_ns` of device activities (`on_device`).

        Of runs without any it is of operators, of which those within others count as well.
        """
        sums = pl.len().cast(pl.Int64).alias("count"), pl.col("duration_ns").sum()
        device = self.device_work.group_by("run_id", "step").agg(*sums, on_device=pl.lit(value=True))
        rest = set(self.marked_steps["run_id"]) - set(device["run_id"])
        if not rest:
            return device
        is_operator = pl.col("level") == str(Level.OPERATOR)
        operators = self.own_runs.scan("spans").filter(pl.col("run_id").is_in(list(rest)), is_operator)
        return pl.concat(
            [device, operators.group_by("run_id", "step").agg(*sums, on_device=pl.lit(value=False)).collect()]
        )

    @cached_property
    def share_in_steps(self) -> float:
        """The part of the work of runs with marked steps that is in these; 1 where no work is recorded.

        It is of device time. Of operators it is of their time or their number, whichever is more: the first calls of a
        process may take longer than all of its steps.
        """
        marked = self._host_steps["run_id"].unique()
        work = self.work_in_steps.filter(pl.col("run_id").is_in(marked.implode()))
        measures = pl.col("duration_ns" if work["on_device"].any() else ("duration_ns", "count"))
        inside, total = (rows.select(measures.sum().cast(pl.Float64)) for rows in (work.drop_nulls("step"), work))
        shares = [part / every for part, every in zip(inside.row(0), total.row(0), strict=True) if every]
        return max(shares, default=1.0)

    @cached_property
    def device_work(self) -> pl.DataFrame:
        """Of `all_activities` what needs nothing but their own rows: run, process, step, kind, name and duration."""
        return self.kernel_runs.of(device_work(self.trace))

    @cached_property
    def all_activities(self) -> pl.DataFrame:
        """Every device activity of the runs that kernels are taken from; see `device_activities`, `kernel_classes`."""
        activities = self.kernel_runs.of(device_activities(self.trace))
        return activities.hstack(kernel_classes(self.trace, activities))

    @cached_property
    def serving_steps(self) -> pl.DataFrame:
        """What a serving engine named its steps; see `serving_steps.serving_steps`."""
        return self.own_runs.of(serving_steps(self.trace))

    @cached_property
    def extents(self) -> pl.DataFrame:
        """run_id, begin_ns, end_ns: first start to last end of anything in each run in which something was timed."""
        end = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()
        is_timed = pl.col("duration_ns").is_not_null().any()
        runs = self.timed_runs.scan("spans").group_by("run_id")
        extents = runs.agg(pl.col("start_ns").min().alias("begin_ns"), end.alias("end_ns"), is_timed.alias("timed"))
        return self.own_runs.of(extents.filter("timed").drop("timed").sort("run_id").collect())

    @cached_property
    def is_timed(self) -> bool:
        """Whether it says of anything how long it took; counters alone may come without any time."""
        return bool(self.trace.scan("spans").select(pl.col("duration_ns").count() > 0).collect().item())

    @cached_property
    def extents_seen(self) -> pl.DataFrame:
        """The extents, without what was before the first device work where that stood behind work of before the trace.

        If it started over a millisecond after its launch, the device did until then what the trace does not hold.
        """
        keys = ["device_id", "stream_id", "start_ns", "duration_ns", "call_end_ns"]
        by_run = self.all_activities.select("run_id", *keys).partition_by("run_id", as_dict=True)
        ends = {run: unseen_end(rows.drop_nulls("duration_ns")) for (run,), rows in by_run.items()}
        begins = [
            max(begin, ends.get(run, begin)) for run, begin in self.extents.select("run_id", "begin_ns").iter_rows()
        ]
        return self.extents.with_columns(pl.Series("begin_ns", begins, dtype=pl.Int64))

    @cached_property
    def has_starts(self) -> bool:
        """Whether work stands where it ran: reports of sums have no times of start."""
        ledger = self.trace.frame("ledger").filter(pl.col("kind").cast(pl.String) == str(LedgerKind.NO_TIMESTAMPS))
        return not any(run is None or run in self.kernel_runs for run in ledger["run_id"])

    @cached_property
    def is_one_by_one(self) -> bool:
        """Whether kernels ran alone for their counters (ncu, nvprof --metrics): then no gap or share of time tells."""
        formats = self.kernel_runs.table["format"].drop_nulls()
        if len(formats) and formats.is_in(formats_by(Recorder.KERNEL_COUNTERS)).all():
            return True
        ledger = self.trace.frame("ledger").filter(pl.col("kind").cast(pl.String) == str(LedgerKind.KERNELS_ONE_BY_ONE))
        return any(run is None or run in self.kernel_runs for run in ledger["run_id"])

    @cached_property
    def span_names(self) -> pl.Series:
        """All names of spans, each once."""
        return self.trace.scan("spans").select(pl.col("name").unique()).collect().to_series()
