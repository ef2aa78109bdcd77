"""What the numbers of steps cover: the ledger's rows on device time, and the provenance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames import sanity
from xsp_analyze.frames.kernels.activities import COUNTERS, are_known, attribution_bases, counter_columns
from xsp_analyze.frames.kernels.kernel_means import chosen_activities, counted_work, layer_executions, named_work
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_bases, layer_calls, layer_latencies
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_model import Attribution, AttributionBasis, Kind, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["ATTRIBUTIONS", "attribution", "ledger", "provenance", "ways"]

ATTRIBUTIONS: Mapping[Attribution, LedgerKind] = {a: LedgerKind(a) for a in Attribution}
"""The ledger's kind for each place that device time can go to."""

_ROUNDING_NS, _ROUNDING_SHARE = 1_000, 0.001
_OVER_RUNS = "times are summed over runs; model latency is their mean"
_SCHEMA = {
    "run_id": pl.Int64(),
    "kind": pl.String(),
    "severity": pl.String(),
    "count": pl.Int64(),
    "duration_ns": pl.Int64(),
    "detail": pl.String(),
    "advice": pl.String(),
}
_ALL_STEPS = {"extent": "first start to last end of the trace", "sum": "the sum of the steps timed without a profiler"}
_Row = dict[str, object]


def attribution(frames: StepView, by: Sequence[str] = ()) -> pl.DataFrame:
    """Where device time went: kind, count, duration_ns (of each step, if `by` says so), in the order of `Attribution`.

    Only what occurs; with severity, detail and advice.
    """
    time = pl.col("duration_ns").sum()
    sums = (
        frames.once(named_work)
        .group_by(*by, pl.col("attribution").alias("kind"), maintain_order=True)
        .agg(pl.col("count").sum(), time if frames.of_trace.is_timed else pl.lit(None, pl.Int64).alias("duration_ns"))
    )
    per_step = ", per step" if frames.averaged else ""
    bases = {LedgerKind.LAYER: ways(frames)}
    texts = pl.DataFrame(
        [(str(k), str(k.severity), k.sentence + per_step + bases.get(k, ""), k.advice) for k in ATTRIBUTIONS.values()],
        schema=["kind", "severity", "detail", "advice"],
        orient="row",
    )
    return (
        texts.with_row_index("place")
        .join(sums.with_columns(pl.col("kind").cast(pl.String)), on="kind")
        .sort(*by, "place")
        .drop("place")
    )


def ways(frames: StepView) -> str:
    """How the layers of work are known that did not simply run in them, with the time of each way; else empty."""
    if not frames.trace.height("attributions"):
        return ""
    work = frames.once(named_work).select(
        "duration_ns", attribution_bases(frames.trace, frames.once(named_work)["span_id"])
    )
    total = work["duration_ns"].sum()
    time = work.drop_nulls().group_by("attribution_basis").agg(pl.col("duration_ns").sum())
    shares = [
        f"{100 * duration / total:.1f} % of all device time by {_BASES[AttributionBasis(basis)]}"
        for basis, duration in time.sort(-pl.col("duration_ns"), "attribution_basis").iter_rows()
        if total
    ]
    return f" ({', '.join(shares)})" if shares else ""


_BASES: Mapping[AttributionBasis, str] = {
    AttributionBasis.GRAPH_NODE: "the graph nodes that the file names",
    AttributionBasis.GRAPH_CAPTURE: "the capture of the replayed graphs",
    AttributionBasis.ALIGNED: "the same kernels of a run without graphs",
    AttributionBasis.ANNOTATION: "what the framework wrote beside them",
    AttributionBasis.COMPILED_CODE: "what the compiler says of its kernels",
}


def ledger(frames: StepView, *, on_layers: bool = True) -> pl.DataFrame:
    """The rows on coverage, then the trace's own; those of the trace that coverage says more exactly give way.

    `on_layers` false leaves out what concerns tables over layers alone, which takes longest to find out.
    In a mean step, counts and durations of coverage are per step, so those columns are Float64.
    """
    return frames.once(_ledger, on_layers=on_layers)


def _ledger(frames: StepView, *, on_layers: bool) -> pl.DataFrame:
    flags = (asdict(f) for f in sanity.flags(frames, on_layers=on_layers) if f.count)
    rows = [*_omissions(frames), *_doubts(frames, on_layers=on_layers), *flags]
    number = pl.Float64() if frames.averaged else pl.Int64()
    schema = {**_SCHEMA, "count": number, "duration_ns": number}
    ours = pl.DataFrame(rows, schema=schema, orient="row")
    own = frames.of_trace.own_runs.frame("ledger").filter(~pl.col("kind").is_in([str(a) for a in Attribution]))
    return pl.concat([attribution(frames), ours, own], how="diagonal_relaxed").select(*schema)


def _row(kind: LedgerKind, count: object, duration_ns: object, severity: Severity | None = None) -> _Row:
    return {
        "run_id": None,
        "kind": str(kind),
        "severity": str(severity or kind.severity),
        "count": count,
        "duration_ns": duration_ns,
        "detail": kind.sentence,
        "advice": kind.advice,
    }


def _omissions(frames: StepView) -> Iterator[_Row]:
    """What the choice of steps leaves out: device work outside of them, kernels that are not in all of them."""
    inside = frames.chosen(frames.of_trace.device_work)
    outside = frames.of_trace.device_work.height - inside.height
    if outside:
        duration = int(frames.of_trace.device_work["duration_ns"].sum()) - int(inside["duration_ns"].sum())
        few = frames.choice.mode is StepMode.ONE or frames.serving_phase is not None
        severity = Severity.INFO if few else None
        yield _row(LedgerKind.OUTSIDE_STEPS, outside, duration, severity)
    if frames.averaged:
        stubs = frames.every_step.height - frames.worked_steps.height
        if stubs:
            yield _row(LedgerKind.STEP_WITHOUT_DEVICE_WORK, stubs, None)
        ramp_up = frames.worked_steps.join(frames.steps, on=["run_id", "step"], how="anti")
        if not ramp_up.is_empty():
            yield _row(LedgerKind.RAMP_UP_STEPS, ramp_up.height, int(ramp_up["duration_ns"].sum()))
    if frames.averaged:
        partial = frames.once(chosen_activities).filter(pl.col("present") < pl.col("step_count"))
        if not partial.is_empty():
            yield _row(LedgerKind.NOT_IN_EVERY_STEP, partial["execution"].n_unique(), partial["mean_ns"].sum())


def _doubts(frames: StepView, *, on_layers: bool) -> Iterator[_Row]:
    """What is missing from, or odd in, the tables over layers and counters."""
    if frames.of_trace.device_work.is_empty():
        return
    rows = frames.once(named_work)
    if not are_known(frames.of_trace.once(counted_work)):
        yield _row(LedgerKind.NO_COUNTERS, rows["count"].sum(), None)
    if are_known(frames.of_trace.once(counted_work)):
        yield from _without_counters(rows.filter(pl.col("kind") == str(Kind.KERNEL)))
    if on_layers and not frames.of_trace.once(layer_calls).is_empty():
        yield from _negative(frames)


def _without_counters(kernels: pl.DataFrame) -> Iterator[_Row]:
    """Kernels that lack all counters; and of the others those that lack one that others have, with its name."""
    measured = pl.any_horizontal(pl.col(counter_columns(kernels)).is_not_null())
    bare, rest = kernels.filter(~measured), kernels.filter(measured)
    if not bare.is_empty():
        yield _row(LedgerKind.COUNTERS_PARTIAL, bare["count"].sum(), bare["duration_ns"].sum())
    for counter in COUNTERS:
        lacking = rest.filter(pl.col(counter).is_null())
        if not lacking.is_empty() and lacking.height < rest.height:
            row = _row(LedgerKind.COUNTERS_PARTIAL, lacking["count"].sum(), lacking["duration_ns"].sum())
            yield {**row, "detail": f"kernels without {counter}, which others have; sums and means leave them out"}


def _negative(frames: StepView) -> Iterator[_Row]:
    keys = [*frames.by, *LAYER_KEY]
    inside = frames.once(layer_executions).filter(pl.col("attribution") == str(Attribution.LAYER))
    kernels = inside.group_by(keys, maintain_order=True).agg(pl.col("duration_ns").sum().alias("kernel_ns"))
    excess, latency = pl.col("kernel_ns") - pl.col("latency_ns"), pl.col("latency_ns")
    # kernels of one stream overlap by a few ns as profilers round their times: no sign that layers ran side by side
    is_rounding = (excess < _ROUNDING_NS) & (excess < _ROUNDING_SHARE * latency)
    rest = frames.once(layer_latencies).join(kernels, on=keys, nulls_equal=True).filter((excess > 0) & ~is_rounding)
    if not rest.is_empty():
        longer = (rest["kernel_ns"] - rest["latency_ns"]).sum()
        yield _row(LedgerKind.NEGATIVE_NON_KERNEL, rest.height, longer)


def provenance(frames: StepView, *, on_layers: bool = True) -> Mapping[str, object]:
    """JSON-able facts on where the numbers come from; what is on layers alone is null without `on_layers`."""
    return frames.once(_provenance, on_layers=on_layers)


def _provenance(frames: StepView, *, on_layers: bool) -> Mapping[str, object]:
    runs = frames.trace.frame("runs")
    sources = [
        {"file": r["source_path"], "sha256": r["source_sha256"], "format": r["format"], "profiler": r["profiler"]}
        for r in runs.iter_rows(named=True)
    ]
    basis, is_observed = _layer_basis(frames) if on_layers else (None, None)
    return {
        "sources": sources,
        "run_count": len(frames.of_trace.timed_runs),
        "taken_from": dict(frames.of_trace.taken_from) or None,
        "levels": list(frames.trace.levels),
        "layer_source": _layer_source(frames),
        "steps": str(frames.choice),
        "serving_phase": frames.serving_phase and str(frames.serving_phase),
        "step_count": frames.steps["step"].n_unique(),
        "ramp_up_steps": frames.ramp_up_count,
        "model_latency_basis": _model_basis(frames),
        "layer_latency_basis": basis,
        "layer_latency_basis_observed": is_observed,
        "layer_coverage": _layer_coverage(frames) if on_layers else None,
        "over_runs": _OVER_RUNS if len(frames.of_trace.kernel_runs) > 1 else None,
    }


def _layer_basis(frames: StepView) -> tuple[str | None, bool | None]:
    """What layer latency is measured by, and whether that was observed rather than supposed."""
    if frames.of_trace.once(layer_calls).is_empty():
        return None, None
    bases = frames.of_trace.once(layer_bases)
    return " and ".join(bases["basis"].unique().sort()) or None, bool(bases["observed"].any())


def _layer_coverage(frames: StepView) -> float | None:
    """The share of device time that belongs to a layer; null without layers, or without any device time."""
    if frames.of_trace.once(layer_calls).is_empty():
        return None
    time = pl.col("duration_ns")
    in_layers = time.filter(pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)).sum()
    total, covered = frames.once(named_work).select(time.sum(), in_layers.alias("covered")).row(0)
    return float(covered / total) if total else None


def _layer_source(frames: StepView) -> str | None:
    """What the layers are from, in the runs that layer latency is taken from."""
    runs = frames.of_trace.layer_runs.table
    return " and ".join(sorted(set(runs["layer_source"].drop_nulls()))) or None


def _model_basis(frames: StepView) -> str:
    """How latency was taken, in a sentence."""
    bases = list(dict.fromkeys(frames.once(latency_by_run)["basis"].list.explode().drop_nulls()))
    if bases == [StepBasis.LOAD_TEST]:
        return StepBasis.LOAD_TEST.sentence
    if frames.of_trace.marked_steps.is_empty():
        return "first start to last end of the trace"
    if frames.choice.mode is StepMode.ALL:
        return " and ".join(_ALL_STEPS.get(basis) or StepBasis(basis).sentence for basis in bases)
    sentences = "; ".join(f"{basis}: {StepBasis(basis).sentence}" for basis in bases)
    return f"{'trimmed mean of step latencies' if frames.averaged else 'step latencies'} ({sentences})"
