"""A trace as analyses see it: over the steps chosen, with the frames that they share, computed once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.host_calls import waiting_calls
from xsp_analyze.frames.serving_steps import batch_of, of_phase, parsed_phase
from xsp_analyze.frames.steps import (
    MIN_SHARE_IN_STEPS,
    STEP_COLUMNS,
    StepChoice,
    StepMode,
    choose_steps,
    faulty_steps,
    mean_over_steps,
    without_ramp_up,
)
from xsp_analyze.trace.memo import Memo
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace
    from xsp_model.step_annotations import ServingPhase

__all__ = ["StepView"]


class StepView(Memo):
    """A trace over the steps chosen: `mean` (default where there are steps), `all`, `each` or one step's number."""

    def __init__(
        self,
        of_trace: TraceView,
        steps: StepChoice | str | None = None,
        serving_phase: ServingPhase | str | None = None,
    ) -> None:
        """`of_trace` is what other choices of steps share with this one; `serving_phase`: the steps of that alone."""
        super().__init__()
        self.of_trace = of_trace
        self.serving_phase = None if serving_phase is None else parsed_phase(serving_phase)
        self._requested = steps
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
        """The view of a trace of which no other choice of steps is looked at: its TraceView is made for it alone."""
        return cls(TraceView(trace), steps, serving_phase)

    @property
    def trace(self) -> Trace:
        """The trace itself."""
        return self.of_trace.trace

    @cached_property
    def choice(self) -> StepChoice:
        """Which steps, found out when first asked for where nothing was said: reports of other tools take all."""
        if self._requested == str(StepMode.ALL):
            return StepChoice(StepMode.ALL)
        if self._requested is None and self.serving_phase is None and not self._are_steps_worth_it:
            return StepChoice(StepMode.ALL)
        what = f"{self.serving_phase} step" if self.serving_phase else "step"
        return choose_steps(self._requested, self._of_phase(self.of_trace.marked_steps), what)

    @property
    def is_whole_for_want_of_steps(self) -> bool:
        """Whether the trace is taken whole, unasked, though it marks steps: they are not what it is about."""
        unasked = self._requested is None and self.choice.mode is StepMode.ALL
        return unasked and not self.of_trace.marked_steps.is_empty()

    @property
    def _are_steps_worth_it(self) -> bool:
        """Whether a mean step says something of the trace: steps hold half of the work, and some are sound."""
        view = self.of_trace
        if view.marked_steps.is_empty() or view.share_in_steps < MIN_SHARE_IN_STEPS:
            return False
        return view.once(_faulty_steps).height < view.all_steps.height

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
    def is_mean(self) -> bool:
        """Whether numbers are means over steps (Float64) rather than exact sums (Int64)."""
        return self.choice.mode is StepMode.MEAN

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps chosen, as `all_steps`; a mean without faulty ones and ramp-up (`without_ramp_up`)."""
        if self.choice.mode is StepMode.ONE:
            return self.every_step.filter(pl.col("step") == self.choice.number)
        if not self.is_mean:
            return self.every_step
        by_phase = batch_of(self.worked_steps, self.of_trace.serving_steps)  # a prefill before decoding is no ramp-up
        return without_ramp_up(by_phase, ("run_id", "serving_phase")).select(STEP_COLUMNS)

    @cached_property
    def worked_steps(self) -> pl.DataFrame:
        """Every step but faulty ones, of which a mean takes no more than it must; it leaves out ramp-up as well."""
        faulty = self.of_trace.once(_faulty_steps)
        sound = self.every_step.join(faulty, on=["run_id", "step"], how="anti", maintain_order="left")
        return self.every_step if sound.is_empty() else sound

    @cached_property
    def faulty_steps(self) -> pl.DataFrame:
        """The steps that a mean leaves out, each with its `fault`, but for ramp-up."""
        left_out = self.every_step.join(self.worked_steps, on=["run_id", "step"], how="anti")
        return self.of_trace.once(_faulty_steps).join(
            left_out, on=["run_id", "step"], how="semi", maintain_order="left"
        )

    @cached_property
    def ramp_up_count(self) -> int:
        """How many steps a mean leaves out because the latency of their run had not settled; 0 where all are taken."""
        return self.worked_steps.height - self.steps.height if self.is_mean else 0

    def of_chosen_steps(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows (with run_id and step) that belong to the steps chosen; all rows where the trace is taken whole."""
        if self.choice.mode is StepMode.ALL:
            return rows
        inside = positions_in(self.steps, rows, ("run_id", "step")) >= 0
        return rows if inside.all() else rows.filter(pl.Series(inside))

    def combine(self, values: pl.DataFrame, keys: Sequence[str], measures: Sequence[str]) -> pl.DataFrame:
        """Rows of a run, step and key become rows of a key: summed, or averaged over steps, as the choice says.

        A sum in which nothing is known is null.
        """
        inside = self.of_chosen_steps(values)
        if self.is_mean:
            return mean_over_steps(inside, self.steps, keys, measures)
        totals = (pl.when(pl.col(m).count() > 0).then(pl.col(m).sum()).alias(m) for m in measures)
        return inside.group_by(*self.by, *keys, maintain_order=True).agg(totals)

    @cached_property
    def by_batch_size(self) -> Sequence[StepView]:
        """These frames, then those of the profile's other batch sizes over the same choice of steps, if any."""
        others = (self._with_this_choice(each) for each in self.of_trace.at_other_batch_sizes)
        return [self, *(frames for frames in others if frames is not None)]

    def _with_this_choice(self, of_trace: TraceView) -> StepView | None:
        try:
            return StepView(of_trace, self.choice, self.serving_phase)
        except XspError:
            return None


def _faulty_steps(view: TraceView) -> pl.DataFrame:
    """Of all steps those that are empty, cut, or begin in a wait; see `steps.faulty_steps`."""
    launched = view.all_activities.drop_nulls(["step", "call_start_ns"])
    first = launched.group_by("run_id", "step").agg(pl.col("call_start_ns").min())
    steps = batch_of(view.all_steps, view.serving_steps)
    return faulty_steps(steps, view.work_in_steps, first, lambda run: view.once(waiting_calls, run))
