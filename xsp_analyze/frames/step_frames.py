"""A trace as analyses see it: over the steps chosen, with the frames that they share, computed once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames import coverage, layer_time, model_time
from xsp_analyze.frames.activities import WORK_COLUMNS, device_activities, device_work, shapes_of
from xsp_analyze.frames.counters import attach_counters, counter_columns, ideal_intensity
from xsp_analyze.frames.energy import power_series
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.kernel_means import aligned, executions
from xsp_analyze.frames.launches import waits_of
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.roles import Roles, roles_of
from xsp_analyze.frames.steps import StepChoice, StepMode, all_steps, choose_steps, mean_over_steps, without_stubs
from xsp_analyze.frames.timeline import COMMUNICATION
from xsp_model import Level
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_model import Trace

__all__ = ["View"]


if TYPE_CHECKING:
    _of_trace = cached_property
else:

    class _of_trace(cached_property):  # noqa: N801 (used as cached_property is)
        """What is the same whatever the steps chosen: a view takes it from the view that it was made beside."""

        def __get__(self, view: View | None, owner: type[View] | None = None) -> object:
            if view is None or view.beside is None:
                return super().__get__(view, owner)
            return view.__dict__.setdefault(self.attrname, getattr(view.beside, self.attrname))


class View:
    """A trace over the steps chosen: `mean` (default where there are steps), `all`, `each` or one step's number."""

    def __init__(self, trace: Trace, steps: StepChoice | str | None = None, *, beside: View | None = None) -> None:
        """`beside`: another view of the same trace, which shares with this one what does not depend on steps."""
        self.trace = trace
        self.beside = beside
        self._asked = steps
        if steps is not None:
            _ = self.choice  # says at once where it cannot be met

    @cached_property
    def choice(self) -> StepChoice:
        """Which steps, found out when first asked for where nothing was said: reports of other tools take all."""
        if self._asked == str(StepMode.ALL):
            return StepChoice(StepMode.ALL)
        return choose_steps(self._asked, self.all_steps)

    @cached_property
    def whole(self) -> View:
        """The view of all steps and of what is outside of them, which is what reports of other tools answer for."""
        return self if self.choice.mode is StepMode.ALL else View(self.trace, StepMode.ALL, beside=self)

    @_of_trace
    def roles(self) -> Roles:
        """Which runs model latency, layer latency and kernels are taken from."""
        return roles_of(self.trace)

    @property
    def by(self) -> Sequence[str]:
        """The keys that every table starts with: `step` where each step is answered for itself, else none."""
        return ("step",) if self.choice.mode is StepMode.EACH else ()

    @property
    def averaged(self) -> bool:
        """Whether numbers are means over steps (Float64) rather than exact sums (Int64)."""
        return self.choice.mode is StepMode.MEAN

    def has(self, need: str) -> bool:
        """Whether the trace holds a level, rows in a table, or what `_HOLDS` lists; `layer`: calls with own work.

        `A or B` is either of them.
        """
        if " or " in need:
            return any(self.has(part) for part in need.split(" or "))
        special = _HOLDS.get(need)
        if special is not None:
            return special(self)
        return self.trace.height(need) > 0 if need in TABLES else self.trace.has_level(need)

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """The trace's ledger, after rows that say where device time went and what the choice of steps left out."""
        return coverage.ledger(self)

    @cached_property
    def ledger_beside_layers(self) -> pl.DataFrame:
        """The ledger without what concerns tables over layers alone."""
        return coverage.ledger(self, on_layers=False)

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """Where the numbers come from: sources, levels, steps, and what latencies are measured by."""
        return coverage.provenance(self)

    @cached_property
    def provenance_beside_layers(self) -> Mapping[str, object]:
        """The same without what layer latency is measured by."""
        return coverage.provenance(self, on_layers=False)

    @_of_trace
    def all_steps(self) -> pl.DataFrame:
        """Every step of every run that a number is taken from: run_id, step, start_ns, duration_ns."""
        return all_steps(self.trace, timed_first=self.roles.model if self.roles.leveled else ())

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps chosen, as `all_steps`; a mean leaves out stubs, see `without_stubs`."""
        if self.choice.mode is StepMode.ONE:
            return self.all_steps.filter(pl.col("step") == self.choice.number)
        return without_stubs(self.all_steps, self.all_activities) if self.averaged else self.all_steps

    def chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows (with run_id and step) that belong to the steps chosen; all rows where the trace is taken whole."""
        if self.choice.mode is StepMode.ALL:
            return rows
        inside = positions_in(self.steps, rows, ("run_id", "step")) >= 0
        return rows if inside.all() else rows.filter(pl.Series(inside))

    def combine(self, values: pl.DataFrame, keys: Sequence[str], measures: Sequence[str]) -> pl.DataFrame:
        """Rows of a run, step and key become rows of a key: summed, or averaged over steps, as the choice says.

        A sum in which nothing is known is null.
        """
        inside = self.chosen(values)
        if self.averaged:
            return mean_over_steps(inside, self.steps, keys, measures)
        known = (pl.when(pl.col(m).count() > 0).then(pl.col(m).sum()).alias(m) for m in measures)
        return inside.group_by(*self.by, *keys, maintain_order=True).agg(known)

    @_of_trace
    def device_work(self) -> pl.DataFrame:
        """Of `all_activities` what needs nothing but their own rows: run, process, step, kind, name and duration."""
        if "all_activities" in self.__dict__:
            return self.all_activities.select(WORK_COLUMNS)
        return Roles.of(device_work(self.trace), self.roles.kernels)

    @cached_property
    def named_work(self) -> pl.DataFrame:
        """What tables over kernel names are summed from: of `executions` the labels of `device_work` and all numbers.

        Of whole steps it takes no links to be known.
        """
        if self.averaged or "executions" in self.__dict__:
            return self.executions
        rows = self.chosen(self.counted_work).with_columns(pl.lit(1, pl.Int64).alias("count"))
        return rows.rename({"name": "kernel_name"})

    @_of_trace
    def counted_work(self) -> pl.DataFrame:
        """`device_work` with counters."""
        if "all_activities" in self.__dict__:
            return self.all_activities.select(*WORK_COLUMNS, *counter_columns(self.all_activities))
        return attach_counters(self.trace, self.device_work)

    @_of_trace
    def all_activities(self) -> pl.DataFrame:
        """Every device activity of the runs that kernels are taken from; see `device_activities`."""
        return Roles.of(device_activities(self.trace), self.roles.kernels)

    def waits(self, run: int) -> pl.DataFrame:
        """The run's calls in which the host waited for a device; see `launches.waits_of`."""
        if run not in self._waits:
            self._waits[run] = waits_of(self.trace, run, self.span_names)
        return self._waits[run]

    @_of_trace
    def span_names(self) -> pl.Series:
        """All names of spans, each once."""
        return self.trace.scan("spans").select(pl.col("name").unique()).collect().to_series()

    @_of_trace
    def _waits(self) -> dict[int, pl.DataFrame]:
        return {}

    @cached_property
    def activities(self) -> pl.DataFrame:
        """The device activities of the steps chosen; of a mean step also aligned, see `kernel_means.aligned`."""
        if not self.averaged:
            return self.chosen(self.all_activities)
        shapes = shapes_of(self.trace, self.all_activities)
        return aligned(self.all_activities.with_columns(shapes), self.steps)

    @cached_property
    def work(self) -> pl.DataFrame:
        """The activities chosen with `work_ns` and `work_count`, whose sums over any group are what a step holds.

        Of whole steps they are the duration and 1; of a mean step `mean_ns` and one over the steps of the run.
        """
        one = (1 / pl.col("step_count")) if self.averaged else pl.lit(1, pl.Int64)
        duration = pl.col("mean_ns") if self.averaged else pl.col("duration_ns")
        return self.activities.with_columns(duration.alias("work_ns"), one.alias("work_count"))

    @cached_property
    def executions(self) -> pl.DataFrame:
        """One row a kernel execution (of a mean step, where averaged): what every kernel table is summed from."""
        return executions(self.activities, averaged=self.averaged)

    @_of_trace
    def every_layer_call(self) -> pl.DataFrame:
        """Every call of a layer with own work, in all runs; see `layer_time.layer_calls`."""
        return layer_time.layer_calls(self.trace)

    @_of_trace
    def layer_calls(self) -> pl.DataFrame:
        """Those of the runs that layers are taken from."""
        return Roles.of(self.every_layer_call, self.roles.layers)

    @_of_trace
    def layer_bases(self) -> pl.DataFrame:
        """What layer latency is measured by, per run; see `layer_time.latency_bases`."""
        if not self.roles.leveled:
            return layer_time.latency_bases(self.trace, self.layer_calls, self.all_activities)
        return layer_time.latency_bases(self.trace, self.every_layer_call, device_activities(self.trace))

    @_of_trace
    def layer_steps(self) -> pl.DataFrame:
        """One row a run, step and layer, steps chosen or not; see `layer_time.layer_steps`."""
        return layer_time.layer_steps(self.layer_calls, self.all_activities, self.layer_bases)

    @cached_property
    def layers(self) -> pl.DataFrame:
        """One row a layer (and step, where each is answered), in order: latency_ns, call_count, memory, labels."""
        measures = ("latency_ns", "call_count", "allocated_bytes")
        return (
            self._with_deeper_memory(self.combine(self.layer_steps, LAYER_KEY, measures))
            .join(layer_time.layer_labels(self._described_calls), on=LAYER_KEY, how="left", nulls_equal=True)
            .sort(*self.by, *LAYER_KEY, nulls_last=True)
        )

    @_of_trace
    def _described_calls(self) -> pl.DataFrame:
        """Calls to take labels from: of a profile all runs', as a run that disturbs little records few of them."""
        return self.every_layer_call if self.roles.leveled else self.layer_calls

    def _with_deeper_memory(self, layers: pl.DataFrame) -> pl.DataFrame:
        """The layers with memory from the kernels run of a profile where the layers run did not record it."""
        if not self.roles.leveled or layers["allocated_bytes"].is_not_null().any():
            return layers
        calls = Roles.of(self._described_calls, self.roles.kernels)
        keys = ["run_id", "step", *LAYER_KEY]
        per_step = calls.group_by(keys, maintain_order=True).agg(known_sum(pl.col("allocated_bytes")))
        memory = self.combine(per_step, LAYER_KEY, ("allocated_bytes",))
        return layers.drop("allocated_bytes").join(
            memory, on=[*self.by, *LAYER_KEY], how="left", nulls_equal=True, maintain_order="left"
        )

    @cached_property
    def run_latencies(self) -> pl.DataFrame:
        """Model latency per run; see `model_time.run_latencies`."""
        return self._latencies_of(self.roles.model)

    @cached_property
    def latencies_by_batch(self) -> pl.DataFrame:
        """As `run_latencies`, with the runs at other batch sizes that a sweep left beside them."""
        return self._latencies_of([*self.roles.model, *self.roles.swept])

    def _latencies_of(self, runs: Sequence[int]) -> pl.DataFrame:
        steps = Roles.of(self.steps, runs)
        latencies = model_time.run_latencies(self.trace, self.choice.mode, steps, self.device_work)
        return Roles.of(latencies, runs)

    @cached_property
    def model_latency(self) -> pl.DataFrame:
        """Model latency over all runs; see `model_time.model_latency`."""
        return model_time.model_latency(self.run_latencies, self.by)

    def with_model(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The frame with `model_ns` added: the time that shares of the model are taken of."""
        latency = self.model_latency.lazy().select(*self.by, "model_ns")
        return frame.join(latency, on="step", how="left") if self.by else frame.join(latency, how="cross")

    @cached_property
    def ideal_intensity(self) -> float | None:
        """Flop per byte at the roofline's ridge; null where unknown."""
        return ideal_intensity(self.trace)


def _works(view: View) -> bool:
    """Whether a device did anything in the runs that kernels are taken from."""
    of_runs = pl.col("run_id").is_in(list(view.roles.kernels))
    rows = view.trace.scan("spans").filter(pl.col("level") == str(Level.KERNEL), of_runs)
    return not rows.select("run_id").head(1).collect().is_empty()


def _communicates(view: View) -> bool:
    names = view.device_work["name"].unique().cast(pl.String)
    return bool(names.str.contains(COMMUNICATION).any())


def _has_modules(view: View) -> bool:
    modules = view.trace.scan("layers").filter(pl.col("source") == "module")
    return not modules.head(1).collect().is_empty()


_HOLDS: Mapping[str, Callable[[View], bool]] = {
    "kernel": _works,
    "communication": _communicates,
    "power": lambda view: bool(power_series(view.trace.frame("counters"))),
    "leveled": lambda view: view.roles.leveled,
    "layer": lambda view: not view.layer_calls.is_empty(),
    "module": _has_modules,
}
"""What an analysis may need besides levels and tables."""
