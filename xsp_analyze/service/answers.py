"""The analyses a report is made of; what cannot be answered is a sentence."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import outcome
from xsp_analyze.faults import attempt, noting_faults
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_analyze.service.contents import Summary, summarise
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.faults import FaultError
    from xsp_analyze.findings import Advice, Verdict
    from xsp_model import Trace

__all__ = ["Answers", "view_of_one"]


def view_of_one(trace: Trace, serving_phase: str | None = None, steps: str | None = None) -> StepView:
    """The trace over its mean step, one step, or as a whole; XspError for `each`."""
    if steps == str(StepMode.EACH):
        raise XspError(
            "a report, a ranking and findings are of one step or of the whole trace",
            advice="Use --steps mean, all or the number of a step; xsp analyze --steps each has every step",
        )
    return StepView.of(trace, steps, serving_phase)


class Answers:
    """A trace seen twice: over its mean step (where it has steps), and whole, so that every nanosecond is counted.

    With a serving phase the mean step is of its steps alone. `steps` takes one step, or the whole trace, in its place;
    XspError for `each`, as what is told is of one.
    """

    def __init__(self, trace: Trace, serving_phase: str | None = None, steps: str | None = None) -> None:
        self.trace = trace
        self.per_step = view_of_one(trace, serving_phase, steps)
        self.all_steps = StepView(self.per_step.of_trace, "all")

    @cached_property
    def summary(self) -> Summary:
        """Counts and extents."""
        return summarise(self.trace)

    @property
    def advice(self) -> Sequence[Advice]:
        """What rules found, the most promising first, doubts about the numbers last."""
        return self._advice_and_faults[0]

    @cached_property
    def verdict(self) -> Verdict | None:
        """What bounds the run; None where nothing was run, or what would tell it failed."""
        from xsp_analyze.findings import verdict  # noqa: PLC0415 (`xsp top` asks for none)

        return verdict(self.per_step, self.advice)

    @property
    def faults_of_advice(self) -> Sequence[FaultError]:
        """What the rules could not be told because it failed."""
        return self._advice_and_faults[1]

    @cached_property
    def _advice_and_faults(self) -> tuple[Sequence[Advice], Sequence[FaultError]]:
        from xsp_analyze.findings import advise  # noqa: PLC0415 (`xsp top` asks for none)

        with noting_faults() as faults:
            advice = attempt("What is worth doing next", lambda: advise(self.per_step), lambda _: [])
        return advice, faults

    @property
    def is_leveled(self) -> bool:
        """Whether the trace is a profile: runs of the same work at several levels."""
        return self.per_step.of_trace.is_leveled

    @property
    def step_count(self) -> int:
        """Steps that numbers are averaged over, 1 where one was asked for; 0 where the trace is taken whole."""
        choice = self.per_step.choice
        return 0 if choice.mode is StepMode.ALL else 1 if choice.number is not None else self._mean_step_count

    @property
    def has_steps(self) -> bool:
        """Whether the trace marks any, asked for or not."""
        return not self.per_step.of_trace.marked_steps.is_empty()

    @property
    def _mean_step_count(self) -> int:
        return self.per_step.steps["step"].n_unique()

    @property
    def basis(self) -> str:
        """What times are totals of: for the end of a sentence."""
        if not self.step_count:
            return "over the whole trace" if self.has_steps else "over the whole trace, which marks no steps"
        if (number := self.per_step.choice.number) is not None:
            return f"in step {number}"
        phase = self.per_step.serving_phase
        if self.step_count == 1:
            return f"in the one {phase} step of the trace" if phase else "in the one step of the trace"
        return (
            f"per {phase} step, averaged over {self.step_count}"
            if phase
            else f"per step, averaged over {self.step_count}"
        )

    def source_runs_sentence(self, **labels: str) -> str:
        """Of a profile, a sentence on which run each number is from; else nothing.

        Keys are what runs give: model, layers, kernels, as in `layers="latency"`.
        """
        if not self.is_leveled:
            return ""
        view = self.per_step.of_trace
        runs = {"model": view.model_runs, "layers": view.layer_runs, "kernels": view.kernel_runs}
        taken = ((label, runs[what]) for what, label in labels.items())
        parts = [f"{label} from run {', '.join(map(str, run_ids))}" for label, run_ids in taken if run_ids]
        sentence = " and ".join(parts)
        return f" {sentence[:1].upper()}{sentence[1:]}." if parts else ""

    def of(self, identity: str, *, all_steps: bool = False) -> Result | str:
        """The analysis's result, or one sentence on why there is none."""
        answer = outcome(self.all_steps if all_steps else self.per_step, identity)
        return f"{answer.what}." if isinstance(answer, XspError) else answer

    def advice_on(self, identity: str) -> str:
        """How to get an answer where the analysis has none, as far as it says; else nothing."""
        answer = outcome(self.per_step, identity)
        return answer.advice if isinstance(answer, XspError) else ""

    def of_load_test(self) -> bool:
        """Whether model latency is what a load generator states of its test, not a mean over steps."""
        return self.of_model().get("latency_basis") == str(StepBasis.LOAD_TEST)

    def of_model(self) -> dict[str, Any]:
        """The row of A01 at the batch size that everything else is of; a sweep leaves rows of others beside it."""
        result = self.of("A01")
        if isinstance(result, str):
            return {}
        rows = self.at_own_batch_size(result.table)
        return rows.row(0, named=True) if rows.height else {}

    def at_own_batch_size(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows that are of the batch size of everything else; all where rows are not by batch size."""
        if "batch_size" not in table.columns or not self.per_step.of_trace.has_other_batches:
            return table
        own = self.per_step.once(latency_by_run)["batch_size"].unique()
        return table.filter(pl.col("batch_size").is_in(own.implode(), nulls_equal=True))

    def first(self, identity: str) -> dict[str, Any]:
        """The first row of the result, at the batch size of everything else; empty where there is none."""
        result = self.of(identity)
        rows = None if isinstance(result, str) else self.at_own_batch_size(result.table)
        return {} if rows is None or rows.is_empty() else rows.row(0, named=True)
