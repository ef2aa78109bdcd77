"""What the numbers of a view cover: the ledger's rows on device time, and the provenance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames import sanity
from xsp_analyze.frames.counters import are_known, counter_columns
from xsp_analyze.frames.layer_time import LAYER_KEY
from xsp_analyze.frames.steps import StepMode
from xsp_model import Attribution, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.frames.view import View

__all__ = ["ATTRIBUTIONS", "attribution", "ledger", "provenance"]

ATTRIBUTIONS: Mapping[Attribution, tuple[Severity, str, str]] = {
    Attribution.LAYER: (Severity.INFO, "device time of work that belongs to a layer", ""),
    Attribution.MODEL_ONLY: (
        Severity.INFO,
        "device time of work launched outside of every layer",
        "Name more ranges as layers with --layer-range, or record modules (with_stack=True), to see whose it is",
    ),
    Attribution.GRAPH_REPLAY: (
        Severity.INFO,
        "device time of replayed graphs whose kernels cannot be tied to a layer",
        "Profile without graphs, or with the capture inside the trace, to see the layers",
    ),
    Attribution.ORPHAN_BEFORE_WINDOW: (
        Severity.WARNING,
        "device time of work launched before the trace began",
        "Start the profiler a step earlier, or synchronise before it starts",
    ),
    Attribution.ORPHAN_NO_LAUNCH: (
        Severity.WARNING,
        "device time of work whose launch is not in the file",
        "Record runtime and driver calls over the whole window",
    ),
    Attribution.ORPHAN_NO_CORRELATION: (
        Severity.WARNING,
        "device time of work that carries no correlation id",
        "Record with a profiler that writes correlation ids",
    ),
}
"""Severity, sentence and advice of each place that device time can go to."""

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
_Row = dict[str, object]


def attribution(view: View, by: Sequence[str] = ()) -> pl.DataFrame:
    """Where device time went: kind, count, duration_ns (of each step, if `by` says so), in the order of `Attribution`.

    Only what occurs; with severity, detail and advice.
    """
    sums = view.named_work.group_by(*by, pl.col("attribution").alias("kind"), maintain_order=True).agg(
        pl.col("count").sum(), pl.col("duration_ns").sum()
    )
    per_step = ", per step" if view.averaged else ""
    words = pl.DataFrame(
        [(str(a), str(s), detail + per_step, advice) for a, (s, detail, advice) in ATTRIBUTIONS.items()],
        schema=["kind", "severity", "detail", "advice"],
        orient="row",
    )
    return (
        words.with_row_index("place")
        .join(sums.with_columns(pl.col("kind").cast(pl.String)), on="kind")
        .sort(*by, "place")
        .drop("place")
    )


def ledger(view: View, *, on_layers: bool = True) -> pl.DataFrame:
    """The rows on coverage, then the trace's own; those of the trace that coverage says more exactly give way.

    `on_layers` false leaves out what concerns tables over layers alone, which takes longest to find out.
    In a mean step, counts and durations of coverage are per step, so those columns are Float64.
    """
    flags = (asdict(f) for f in sanity.flags(view, on_layers=on_layers) if f.count)
    rows = [*_left_out(view), *_doubts(view, on_layers=on_layers), *flags]
    number = pl.Float64() if view.averaged else pl.Int64()
    schema = {**_SCHEMA, "count": number, "duration_ns": number}
    ours = pl.DataFrame(rows, schema=schema, orient="row")
    own = view.trace.frame("ledger").filter(~pl.col("kind").is_in([str(a) for a in Attribution]))
    return pl.concat([attribution(view), ours, own], how="diagonal_relaxed").select(*schema)


def _row(kind: str, severity: Severity, count: object, duration_ns: object, detail: str, advice: str) -> _Row:
    return {
        "run_id": None,
        "kind": kind,
        "severity": str(severity),
        "count": count,
        "duration_ns": duration_ns,
        "detail": detail,
        "advice": advice,
    }


def _left_out(view: View) -> Iterator[_Row]:
    """What the choice of steps leaves out: device work outside of them, kernels that are not in all of them."""
    inside = view.chosen(view.device_work)
    outside = view.device_work.height - inside.height
    if outside:
        duration = int(view.device_work["duration_ns"].sum()) - int(inside["duration_ns"].sum())
        yield _row(
            "outside_steps",
            Severity.WARNING if view.choice.mode is not StepMode.ONE else Severity.INFO,
            outside,
            duration,
            "device work outside of the chosen steps, left out of every table (over the whole trace)",
            "Use --steps all to count it",
        )
    stubs = view.all_steps.height - view.steps.height if view.averaged else 0
    if stubs:
        yield _row(
            "step_without_device_work",
            Severity.INFO,
            stubs,
            None,
            "steps without any device work, while others of their run have some, are left out of the mean",
            "Look at them with --steps each",
        )
    if view.averaged:
        partial = view.activities.filter(pl.col("present") < pl.col("step_count"))
        if not partial.is_empty():
            yield _row(
                "not_in_every_step",
                Severity.INFO,
                partial["execution"].n_unique(),
                partial["mean_ns"].sum(),
                "kernels that run in some steps only; each counts for the share of steps it is in",
                "Look at single steps with --steps each where the difference matters",
            )


def _doubts(view: View, *, on_layers: bool) -> Iterator[_Row]:
    """What is missing from, or odd in, the tables over layers and counters."""
    if view.device_work.is_empty():
        return
    rows = view.named_work
    if not are_known(view.counted_work):
        yield _row(
            "no_counters",
            Severity.INFO,
            rows["count"].sum(),
            None,
            "no hardware counters in this trace: flops, bytes, occupancy and what follows from them are unknown",
            "Measure counters in a run of their own and merge the runs",
        )
    kernels = rows.filter(
        pl.col("kind") == str(Kind.KERNEL), pl.all_horizontal(pl.col(counter_columns(rows)).is_null())
    )
    if are_known(view.counted_work) and not kernels.is_empty():
        yield _row(
            "counters_partial",
            Severity.WARNING,
            kernels["count"].sum(),
            kernels["duration_ns"].sum(),
            "kernels without hardware counters; sums of flops and bytes leave them out",
            "Measure counters for these kernels too",
        )
    if on_layers and not view.layer_calls.is_empty():
        yield from _negative(view)


def _negative(view: View) -> Iterator[_Row]:
    keys = [*view.by, *LAYER_KEY]
    inside = view.executions.filter(pl.col("attribution") == str(Attribution.LAYER))
    kernels = inside.group_by(keys, maintain_order=True).agg(pl.col("duration_ns").sum().alias("kernel_ns"))
    rest = view.layers.join(kernels, on=keys, nulls_equal=True).filter(pl.col("kernel_ns") > pl.col("latency_ns"))
    if not rest.is_empty():
        yield _row(
            "negative_non_kernel",
            Severity.INFO,
            rest.height,
            (rest["kernel_ns"] - rest["latency_ns"]).sum(),
            "layers whose kernels took longer than the layer: they overlap, outlast its call, or run in backward",
            "Take layer latency from a serialised run, where the device is waited for after every layer",
        )


def provenance(view: View, *, on_layers: bool = True) -> Mapping[str, object]:
    """JSON-able facts on where a view's numbers come from; what is on layers alone is null without `on_layers`."""
    runs = view.trace.frame("runs")
    sources = [
        {"file": r["source_path"], "sha256": r["source_sha256"], "format": r["format"], "profiler": r["profiler"]}
        for r in runs.iter_rows(named=True)
    ]
    basis, is_observed = _layer_basis(view) if on_layers else (None, None)
    return {
        "sources": sources,
        "run_count": runs.height,
        "taken_from": dict(view.roles.sources) or None,
        "levels": list(view.trace.levels),
        "layer_source": _layer_source(view),
        "steps": str(view.choice),
        "step_count": view.steps["step"].n_unique(),
        "model_latency_basis": _model_basis(view),
        "layer_latency_basis": basis,
        "layer_latency_basis_observed": is_observed,
        "over_runs": _OVER_RUNS if len(view.roles.kernels) > 1 else None,
    }


def _layer_basis(view: View) -> tuple[str | None, bool | None]:
    """What layer latency is measured by, and whether that was observed rather than supposed."""
    if view.layer_calls.is_empty():
        return None, None
    bases = view.layer_bases
    return " and ".join(bases["basis"].unique().sort()) or None, bool(bases["observed"].any())


def _layer_source(view: View) -> str | None:
    """What the layers are from, in the runs that layer latency is taken from."""
    runs = view.trace.frame("runs").filter(pl.col("run_id").is_in(list(view.roles.layers)))
    return " and ".join(sorted(set(runs["layer_source"].drop_nulls()))) or None


def _model_basis(view: View) -> str:
    if view.all_steps.is_empty():
        return "first start to last end of the trace"
    return "trimmed mean of step durations" if view.averaged else "step durations"
