"""What commands, pages, batches, Python and agents all ask of a trace: answers, contents, distance to its roofs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import outcome
from xsp_analyze.faults import attempt, noting_faults
from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.operators.operator_work import time_of_no_operator
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import FULL_COVERAGE, duration, share, spelled_call
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import XspError
from xsp_model.vocabulary import LEVELS, Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.faults import FaultError
    from xsp_analyze.findings import Advice, Verdict
    from xsp_model import Trace

__all__ = [
    "Answers",
    "AttributedTime",
    "Coverage",
    "Summary",
    "coverage_of",
    "reached_sentence",
    "reached_share",
    "roof_summary",
    "roofed_time_ns",
    "summarise",
    "unknown_peaks",
    "view_of_one",
]

# What a trace holds, in a few numbers: for `xsp info` and the head of the report.
# Of a profile, whose runs are of the same work, device work is that of the kernels run and layers are the layers run's;
# spans are counted as they are stored, but for those of captures of graphs, in which nothing was timed.


@dataclass(frozen=True, slots=True)
class AttributedTime:
    """One way device time was attributed: how many activities, and the sum of their durations, null if all unknown."""

    attribution: str
    count: int
    duration_ns: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and extents of a trace; times in ns, null where the trace has nothing of the kind."""

    runs: Sequence[Mapping[str, Any]]
    captures: Sequence[Mapping[str, Any]]  # runs that only hold how graphs were captured
    view: TraceView
    counts: Mapping[str, int]  # spans per level, outermost first
    steps: Sequence[int]
    layer_count: int
    layer_call_count: int
    devices: Sequence[Mapping[str, Any]]
    window_ns: int | None  # first start to last end of anything
    device_window_ns: int | None  # the same of device work
    attributed: Sequence[AttributedTime]
    findings: Sequence[Mapping[str, Any]]

    @property
    def device_time_ns(self) -> int | None:
        """Sum of the durations of all device activities; null where activities have none at all."""
        durations = [a.duration_ns for a in self.attributed if a.duration_ns is not None]
        return sum(durations) if durations or not self.attributed else None

    @property
    def coverage(self) -> float | None:
        """Share of device time that was attributed to a layer."""
        total = self.device_time_ns
        layers = sum(a.duration_ns or 0 for a in self.attributed if a.attribution == Attribution.LAYER)
        return layers / total if total else None

    @property
    def layer_caveat(self) -> str:
        """How much of device time layers hold, as a clause; empty where that is nearly all, or no device worked."""
        if self.coverage is None or self.coverage >= FULL_COVERAGE:
            return ""
        return f"only {share(self.coverage)} of device time is in a layer"

    @property
    def layer_sources(self) -> Sequence[str]:
        """What the layers were taken from, over all runs."""
        runs = (run for run in self.runs if not self.view.is_leveled or run["run_id"] in self.view.layer_runs)
        return sorted({str(run["layer_source"]) for run in runs if run["layer_source"]})


def summarise(trace: Trace) -> Summary:
    """Reads the trace once over, a few columns at a time."""
    view = TraceView(trace)
    spans = view.timed_runs.scan("spans")
    device = view.kernel_runs.scan("spans").filter(pl.col("attribution").is_not_null())
    device = device.select("attribution", "run_id", "device_id", "start_ns", "duration_ns").collect().lazy()
    layers = trace.scan("layers").filter(pl.col("layer_index").is_not_null())
    called = layers
    if not view.layer_runs.are_all:
        called = layers.join(view.layer_runs.scan("spans").select("span_id"), on="span_id", how="semi")
        replayed = layers.join(
            trace.scan("attributions").select("layer_id"), left_on="span_id", right_on="layer_id", how="semi"
        )
        layers = pl.concat([called, replayed])
    return Summary(
        runs=view.timed_runs.table.to_dicts(),
        captures=trace.frame("runs").filter(~pl.col("run_id").is_in(view.timed_runs.ids)).to_dicts(),
        view=view,
        counts=_counts(spans),
        steps=spans.select(pl.col("step").drop_nulls().unique().sort()).collect()["step"].to_list(),
        layer_count=layers.select(pl.col("layer_index").n_unique()).collect().item(),
        layer_call_count=called.select(pl.len()).collect().item(),
        devices=_devices(trace, device),
        window_ns=_extent((view.kernel_runs or view.layer_runs).scan("spans")),
        device_window_ns=_extent(device),
        attributed=_time_by_attribution(device),
        findings=trace.frame("ledger").to_dicts(),
    )


def _counts(spans: pl.LazyFrame) -> dict[str, int]:
    rows = spans.group_by("level").len().collect().iter_rows()
    counts: dict[str, int] = dict(rows)
    return {str(level): counts[level] for level in LEVELS if level in counts}


def _extent(spans: pl.LazyFrame) -> int | None:
    end = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()
    timed = pl.col("duration_ns").count() > 0
    extent: int | None = spans.select(pl.when(timed).then(end - pl.col("start_ns").min())).collect().item()
    return extent


def _time_by_attribution(device: pl.LazyFrame) -> list[AttributedTime]:
    rows = device.group_by("attribution").agg(pl.len(), _sum_of_known()).collect().iter_rows()
    by_name = {name: AttributedTime(name, count, duration) for name, count, duration in rows}
    return [by_name[a] for a in Attribution if a in by_name]


def _sum_of_known() -> pl.Expr:
    return pl.when(pl.col("duration_ns").count() > 0).then(pl.col("duration_ns").sum()).alias("duration_ns")


def _devices(trace: Trace, device: pl.LazyFrame) -> list[Mapping[str, Any]]:
    """One entry a device that did work, named where the trace names it."""
    worked = device.group_by("run_id", "device_id").agg(pl.len().alias("activities"), _sum_of_known())
    described = (
        trace.scan("devices")
        .unique(["run_id", "device_id"], keep="first", maintain_order=True)
        .select("run_id", "device_id", "name", "multiprocessor_count", "compute_capability", "memory_bytes")
    )
    joined = worked.join(described, on=["run_id", "device_id"], how="left", nulls_equal=True)
    return list(joined.sort("run_id", "device_id", nulls_last=True).collect().to_dicts())


# The analyses a report is made of; what cannot be answered is a sentence.


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


# How much of device time the modelled work is of, what is not modelled, and how far it is from the roofs.

_MAX_NAMED = 3
_ALL = 0.995  # from there on a share is shown as all of it
_NO_OPERATOR = "work of no operator"
_MIN_NAMED = 0.005  # of device time: less is not worth a name


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of device time that is of calls whose work is modelled, and the largest parts that are not."""

    modelled_share: float
    rest: Sequence[tuple[str, float]]
    device_ns: float

    @property
    def sentence(self) -> str:
        """`The work of 93.1 % of device time is modelled; not that of aten::all (1.2 %).`."""
        named = [f"{clean(name)} ({share(part)})" for name, part in self.rest if part >= _MIN_NAMED]
        without = f"; not that of {', '.join(named)}" if named else ""
        return f"The work of {share(self.modelled_share)} of device time is modelled{without}."

    @property
    def at_least(self) -> str:
        """What stands before a rate of which some work is not counted."""
        return "at least " if self.modelled_share < _ALL else ""


def coverage_of(answers: Answers) -> Coverage | None:
    """By the rows of B11; None where it has no answer, or nothing is modelled."""
    result = answers.of("B11")
    if isinstance(result, str) or not result.table["modelled_count"].sum():
        return None
    table = result.table
    of_none, replays = time_of_no_operator(answers.per_step)
    total = total_of(table["device_sum_ns"]) + of_none
    if not total:
        return None
    rest_ns = pl.col("device_sum_ns") * (1 - pl.col("modelled_share").fill_null(0))
    others = [("replays of graphs whose capture is not in the trace", replays), (_NO_OPERATOR, of_none - replays)]
    rows = [*table.select("operator", rest_ns).iter_rows(), *others]
    largest = sorted(rows, key=lambda row: -row[1])[:_MAX_NAMED]
    rest = sum(time for _, time in rows)
    return Coverage(1 - rest / total, [(name, time / total) for name, time in largest], total)


def unknown_peaks(answers: Answers, what: str) -> str:
    """`what`, which is for want of peak rates, and how to give them."""
    names = [str(d["name"]) for d in answers.summary.devices if d["name"]]
    if names:
        return f"{what}, as peak rates of {clean(names[0])} are not known: give them with --device FILE.toml."
    return (
        f"{what}, as peak rates of a device that the trace does not name are unknown: name the device with --gpu NAME"
        " (xsp devices lists names), or give its rates with --device FILE.toml."
    )


def roof_summary(answers: Answers) -> str | None:
    """How far modelled operators are from their roofs, and which have most to gain, for the page's head."""
    result, covered = answers.of("B23"), coverage_of(answers)
    if isinstance(result, str) or covered is None:
        return None
    if result.table["gain_ns"].null_count() == result.table.height:
        return unknown_peaks(answers, "How far operators are from what the device can do is unknown")
    rows = result.table.drop_nulls("gain_ns")
    gain, first = total_of(rows["gain_ns"]), rows.row(0, named=True)
    products = answers.first("B24")
    mfu, is_all = products.get("mfu"), (products.get("counted_share") or 0) >= _ALL
    lead = f", most at {spelled_call(first)} ({duration(first['gain_ns'])})" if first["gain_ns"] else ""
    of_peak = "" if mfu is None else f", MFU is {covered.at_least if is_all else 'at least '}{share(mfu)}"
    return f"{reached_sentence(answers)}{of_peak}: {duration(gain)} of device time to gain at most{lead}."


def reached_sentence(answers: Answers) -> str:
    """`Operators run at 43.8 % of what their shapes allow on this device (modelled for 94.1 % of device time)`.

    That time is without what waits for other ranks, and what took less than its roof. Empty where none is known.
    """
    result, covered, reached = answers.of("B23"), coverage_of(answers), reached_share(answers)
    if isinstance(result, str) or covered is None or reached is None:
        return ""
    part = roofed_time_ns(result.table.drop_nulls("gain_ns")) / covered.device_ns
    return (
        f"Operators run at {share(reached)} of what their shapes allow on this device (modelled for {share(part)} of"
        " device time)"
    )


def reached_share(answers: Answers) -> float | None:
    """How much of what their shapes allow operators reach: the part of their device time that is not to be gained."""
    result = answers.of("B23")
    if isinstance(result, str):
        return None
    rows = result.table.drop_nulls("gain_ns")
    spent = roofed_time_ns(rows)
    return 1 - total_of(rows["gain_ns"]) / spent if spent else None


def roofed_time_ns(rows: pl.DataFrame) -> float:
    """Device time of calls that have a roof: their least time over its share of it."""
    spent = (
        pl.when(pl.col("roof_share") > 0).then(quotient(pl.col("roof_ns"), pl.col("roof_share"))).otherwise("gain_ns")
    )
    return total_of(rows.select(spent).to_series())
