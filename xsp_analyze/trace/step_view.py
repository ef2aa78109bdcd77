"""A trace as analyses see it: over the steps chosen, with the frames that they share, computed once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames import layer_time, model_time
from xsp_analyze.frames.activities import shapes_of
from xsp_analyze.frames.attributions import shared_out
from xsp_analyze.frames.counters import summed_columns
from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.holds import holds
from xsp_analyze.frames.kernel_means import aligned, executions
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.serving_steps import batch_of, of_phase, parsed_phase
from xsp_analyze.frames.steps import (
    STEP_COLUMNS,
    StepChoice,
    StepMode,
    choose_steps,
    mean_over_steps,
    settled,
    without_stubs,
)
from xsp_analyze.trace.timed_runs import capture_runs
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.needs import Need
    from xsp_model import Trace
    from xsp_model.step_annotations import ServingPhase

__all__ = ["StepView"]

T = TypeVar("T")


class StepView:
    """A trace over the steps chosen: `mean` (default where there are steps), `all`, `each` or one step's number."""

    def __init__(
        self,
        of_trace: TraceView,
        steps: StepChoice | str | None = None,
        serving_phase: ServingPhase | str | None = None,
    ) -> None:
        """`of_trace` is what other choices of steps share with this one; `serving_phase`: the steps of that alone."""
        self.of_trace = of_trace
        self.serving_phase = None if serving_phase is None else parsed_phase(serving_phase)
        self._requested = steps
        self._computed: dict[object, object] = {}
        if self.serving_phase is not None and str(steps) == StepMode.ALL:
            raise XspError(
                "--steps all takes the trace as one, of which no phase can be taken apart",
                advice="Take the mean of the phase's steps, or each, with --steps mean or each",
            )
        if steps is not None or serving_phase is not None:
            _ = self.choice  # says at once where it cannot be met

    @classmethod
    def of(
        cls, trace: Trace, steps: StepChoice | str | None = None, serving_phase: ServingPhase | str | None = None
    ) -> StepView:
        """Those of a trace that no other choice of steps is looked at of."""
        return cls(TraceView(trace), steps, serving_phase)

    @property
    def trace(self) -> Trace:
        """The trace itself."""
        return self.of_trace.trace

    def once(self, compute: Callable[[StepView], T]) -> T:
        """What the function answers for these frames, computed when first asked for."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast("T", self._computed[compute])

    @cached_property
    def choice(self) -> StepChoice:
        """Which steps, found out when first asked for where nothing was said: reports of other tools take all."""
        if self._requested == str(StepMode.ALL):
            return StepChoice(StepMode.ALL)
        what = f"{self.serving_phase} step" if self.serving_phase else "step"
        return choose_steps(self._requested, self._of_phase(self.of_trace.marked_steps), what)

    def _of_phase(self, steps: pl.DataFrame) -> pl.DataFrame:
        if self.serving_phase is None:
            return steps
        return of_phase(steps, self.of_trace.serving_steps, self.serving_phase)

    @cached_property
    def every_step(self) -> pl.DataFrame:
        """Every step of the trace, as `all_steps`; of a serving phase its own."""
        return self._of_phase(self.of_trace.all_steps)

    @cached_property
    def of_all_steps(self) -> StepView:
        """The frames of all steps and of what is outside of them, which is what reports of other tools answer for."""
        return self if self.choice.mode is StepMode.ALL else StepView(self.of_trace, StepMode.ALL)

    @cached_property
    def of_each_step(self) -> StepView:
        """The frames of every step by itself."""
        each = self.choice.mode is StepMode.EACH
        return self if each else StepView(self.of_trace, StepMode.EACH, self.serving_phase)

    @property
    def by(self) -> Sequence[str]:
        """The keys that every table starts with: `step` where each step is answered for itself, else none."""
        return ("step",) if self.choice.mode is StepMode.EACH else ()

    @property
    def averaged(self) -> bool:
        """Whether numbers are means over steps (Float64) rather than exact sums (Int64)."""
        return self.choice.mode is StepMode.MEAN

    def has(self, need: Need) -> bool:
        """Whether the trace holds it; see `holds`."""
        return holds(self.of_trace, need)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps chosen, as `all_steps`; a mean leaves out stubs and ramp-up (see `without_stubs`, `settled`)."""
        if self.choice.mode is StepMode.ONE:
            return self.every_step.filter(pl.col("step") == self.choice.number)
        if not self.averaged:
            return self.every_step
        by_phase = batch_of(self.worked_steps, self.of_trace.serving_steps)  # a prefill before decoding is no ramp-up
        return settled(by_phase, ("run_id", "serving_phase")).select(STEP_COLUMNS)

    @cached_property
    def worked_steps(self) -> pl.DataFrame:
        """Every step but stubs; of a mean, `steps` leaves out ramp-up as well."""
        return without_stubs(self.every_step, self.of_trace.all_activities)

    @cached_property
    def ramp_up_count(self) -> int:
        """How many steps a mean leaves out because the latency of their run had not settled; 0 where all are taken."""
        return self.worked_steps.height - self.steps.height if self.averaged else 0

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
        totals = (pl.when(pl.col(m).count() > 0).then(pl.col(m).sum()).alias(m) for m in measures)
        return inside.group_by(*self.by, *keys, maintain_order=True).agg(totals)

    @cached_property
    def named_work(self) -> pl.DataFrame:
        """What tables over kernel names are summed from: of `executions` the labels of `device_work` and all numbers.

        Of whole steps it takes no links to be known.
        """
        if self.averaged:
            return self.executions
        rows = self.chosen(self.of_trace.counted_work).with_columns(pl.lit(1, pl.Int64).alias("count"))
        return rows.rename({"name": "kernel_name"})

    @cached_property
    def activities(self) -> pl.DataFrame:
        """The device activities of the steps chosen; of a mean step also aligned, see `kernel_means.aligned`."""
        if not self.averaged:
            return self.chosen(self.of_trace.all_activities)
        shapes = shapes_of(self.trace, self.of_trace.all_activities)
        return aligned(self.of_trace.all_activities.with_columns(shapes), self.steps)

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

    @cached_property
    def layer_executions(self) -> pl.DataFrame:
        """`executions` as sums over layers take them: a kernel that several layers share is a row for each of them."""
        rows = self.executions
        amounts = tuple(summed_columns(rows))
        return shared_out(self.trace, rows, time="duration_ns", count="count", by_weight=amounts)

    @cached_property
    def layers(self) -> pl.DataFrame:
        """One row a layer (and step, where each is answered), in order: latency_ns, call_count, memory, labels."""
        measures = ("latency_ns", "call_count", "allocated_bytes")
        return (
            self._with_deeper_memory(self.combine(self.of_trace.layer_steps, LAYER_KEY, measures))
            .join(
                layer_time.layer_labels(self.of_trace.described_calls, capture_runs(self.trace)),
                on=LAYER_KEY,
                how="left",
                nulls_equal=True,
            )
            .sort(*self.by, *LAYER_KEY, nulls_last=True)
        )

    def _with_deeper_memory(self, layers: pl.DataFrame) -> pl.DataFrame:
        """The layers with memory from the kernels run of a profile where the layers run did not record it."""
        if not self.of_trace.is_leveled or layers["allocated_bytes"].is_not_null().any():
            return layers
        calls = self.of_trace.kernel_runs.of(self.of_trace.described_calls)
        keys = ["run_id", "step", *LAYER_KEY]
        per_step = calls.group_by(keys, maintain_order=True).agg(known_sum(pl.col("allocated_bytes")))
        memory = self.combine(per_step, LAYER_KEY, ("allocated_bytes",))
        return layers.drop("allocated_bytes").join(
            memory, on=[*self.by, *LAYER_KEY], how="left", nulls_equal=True, maintain_order="left"
        )

    @cached_property
    def run_latencies(self) -> pl.DataFrame:
        """Model latency per run; see `model_time.run_latencies`."""
        runs = self.of_trace.model_runs
        return runs.of(model_time.run_latencies(self.of_trace, self.choice.mode, runs.of(self.steps)))

    @cached_property
    def by_batch_size(self) -> Sequence[StepView]:
        """These frames, then those of the profile's other batch sizes over the same choice of steps, if any."""
        others = (self._chosen_alike(each) for each in self.of_trace.at_other_batch_sizes)
        return [self, *(frames for frames in others if frames is not None)]

    def _chosen_alike(self, of_trace: TraceView) -> StepView | None:
        try:
            return StepView(of_trace, self.choice, self.serving_phase)
        except XspError:
            return None

    @cached_property
    def model_latency(self) -> pl.DataFrame:
        """Model latency over all runs; see `model_time.model_latency`."""
        return model_time.model_latency(self.run_latencies, self.by)

    def with_model(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The frame with `model_ns` added: the time that shares of the model are of; null where there was none."""
        model = pl.col("model_ns")
        latency = self.model_latency.lazy().select(*self.by, pl.when(model > 0).then(model))
        return frame.join(latency, on="step", how="left") if self.by else frame.join(latency, how="cross")
