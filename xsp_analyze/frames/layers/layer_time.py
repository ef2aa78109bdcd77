"""Latency and memory of layers, per run and step, on the basis that suits how the run was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import bootstrap_interval, known_sum, ordered_sum, quotient
from xsp_analyze.frames.group_ids import first_rows, group_ids, numbers_by_appearance, run_starts, running_max, sort_by
from xsp_analyze.frames.host_calls import INPUT_CALLS, names_like
from xsp_analyze.frames.kernels.activities import attributed_host, column_at, device_activities, share_among_layers
from xsp_analyze.frames.model_time import with_model_time
from xsp_analyze.frames.steps import kept_steps
from xsp_model import Attribution, Phase
from xsp_model.columns.arrays import lookup, nullable_index
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Ints

__all__ = [
    "COMMUNICATION",
    "INPUT",
    "LAYER_KEY",
    "calls_of_layers",
    "every_layer_call",
    "host_time",
    "host_time_by",
    "layer_bases",
    "layer_calls",
    "layer_intervals",
    "layer_labels",
    "layer_latencies",
    "layer_quartiles",
    "layer_steps",
    "layers_and_others",
    "parts_of_host_time",
]

LAYER_KEY = ("layer_index", "layer_name", "layer_type")
"""What makes two calls calls of the same layer."""
_ATTRIBUTED = {"span_id": pl.Int64, "run_id": pl.Int64, "step": pl.Int64, "work_ns": pl.Int64, "call": pl.Int64}
_SERIALISED_SHARE = 0.99
COMMUNICATION = "communication"
"""Phase of calls of process groups."""
INPUT = "input"
"""What waiting for the next batch is called beside the phases of training."""
_STEP = ("run_id", "step", *LAYER_KEY)
_LABELS = ("path", "shapes", "dtypes")


def layer_latencies(view: StepView) -> pl.DataFrame:
    """One row a layer (and step, where each is answered), in order: latency_ns, call_count, memory, labels."""
    of_trace = view.of_trace
    measures = ("latency_ns", "call_count", "allocated_bytes")
    labels = layer_labels(_described_calls(of_trace), of_trace.timed_runs)
    return (
        _with_deeper_memory(view, view.combine(of_trace.once(layer_steps), LAYER_KEY, measures))
        .join(labels, on=LAYER_KEY, how="left", nulls_equal=True)
        .sort(*view.by, *LAYER_KEY, nulls_last=True)
    )


def _described_calls(view: TraceView) -> pl.DataFrame:
    """Calls to take labels from: of a profile all runs', as a run that disturbs little records few of them."""
    return view.once(every_layer_call if view.are_runs_chosen else layer_calls)


def _with_deeper_memory(view: StepView, layers: pl.DataFrame) -> pl.DataFrame:
    """The layers with memory from the kernels run of a profile where the layers run did not record it."""
    if not view.of_trace.is_leveled or layers["allocated_bytes"].is_not_null().any():
        return layers
    calls = view.of_trace.kernel_runs.of(_described_calls(view.of_trace))
    keys = ["run_id", "step", *LAYER_KEY]
    per_step = calls.group_by(keys, maintain_order=True).agg(known_sum(pl.col("allocated_bytes")))
    memory = view.combine(per_step, LAYER_KEY, ("allocated_bytes",))
    return layers.drop("allocated_bytes").join(
        memory, on=[*view.by, *LAYER_KEY], how="left", nulls_equal=True, maintain_order="left"
    )


def every_layer_call(view: TraceView) -> pl.DataFrame:
    """Every call of a layer with own work, in all runs of the batch size; see `calls_of_layers`."""
    return view.own_runs.of(calls_of_layers(view.trace))


def layer_calls(view: TraceView) -> pl.DataFrame:
    """The calls in the runs that layers are taken from."""
    return view.layer_runs.of(view.once(every_layer_call))


def layer_bases(view: TraceView) -> pl.DataFrame:
    """What layer latency is measured by, per run (see `_latency_bases`); `is_host_only`: no device worked in it."""
    if not view.is_leveled:
        return _latency_bases(view.trace, view.once(layer_calls), view.all_activities)
    activities = view.own_runs.of(device_activities(view.trace))
    return _latency_bases(view.trace, view.once(every_layer_call), activities)


def layer_steps(view: TraceView) -> pl.DataFrame:
    """One row a run, step and layer, steps chosen or not: latency_ns on the run's basis, call_count, allocated_bytes.

    Unknown is null. Layers that were not called take the time that the work took that is theirs.
    """
    calls, activities = view.once(layer_calls), view.all_activities
    attributed = _attributed_work(view.trace, calls, activities)
    attributed = attributed if view.replays_tell_layers else attributed.clear()
    hosted = view.once(host_time).filter(pl.col("layer_index").is_not_null() & ~pl.col("is_shared"))
    return _layer_steps(calls, activities, view.once(layer_bases), attributed, hosted)


def calls_of_layers(trace: Trace) -> pl.DataFrame:
    """One row a call of a layer with own work: its identity, run, step, start and end, host_ns (outside children)."""
    calls = trace.scan("layers").filter(pl.col("layer_index").is_not_null()).collect()
    spans = [column_at(trace, name, calls["span_id"]) for name in ("run_id", "step", "start_ns", "duration_ns")]
    return calls.hstack(spans).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        pl.coalesce("self_host_ns", pl.when(~pl.col("is_container")).then("duration_ns")).alias("host_ns"),
        pl.col("span_id").alias("layer_id"),
    )


def layer_labels(calls: pl.DataFrame, timed: Runs) -> pl.DataFrame:
    """One row a layer, in order: path, shapes and dtypes of its first call that has them, those not in `timed` last."""
    keys = calls.select((~pl.col("run_id").is_in(timed.ids)).cast(pl.Int64), "start_ns", "span_id")
    order = sort_by(*group_ids(keys.drop("run_id") if timed.are_all else keys, ordered=True))
    ordered = calls[order].select(*LAYER_KEY, *_LABELS)
    number, first = numbers_by_appearance(*group_ids(ordered.select(LAYER_KEY)))
    return ordered.select(LAYER_KEY)[first].hstack([_first_known(ordered[c], number, len(first)) for c in _LABELS])


def _first_known(values: pl.Series, number: Ints, count: int) -> pl.Series:
    """For each number the first value, of those that are not null, of a row that bears it."""
    valid = np.flatnonzero(values.is_not_null().to_numpy())
    first = first_rows(number[valid], count)
    rows = pl.Series(np.append(valid, 0)[first])
    return values.gather(rows.set(pl.Series(first == len(valid)), None))


def _latency_bases(trace: Trace, calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """What a layer's latency is measured by in each run: run_id, basis (host or device), observed (bool).

    Host without device work, whatever the run says. Else a run that says whether it was serialised is believed; of
    one that does not, host where at least 99 % of the layers' forward activities end within their layer's call in the
    same run, so that the device was waited for.
    """
    forward = activities.select(
        "run_id",
        pl.col("attribution") == str(Attribution.LAYER),
        pl.col("phase") == str(Phase.FORWARD),
        pl.col("start_ns") + pl.col("duration_ns"),
    )
    at = _call_of(activities, calls)
    of_own_run = (calls["run_id"].gather(nullable_index(at)) == forward["run_id"]).fill_null(value=False)
    selected = (forward["attribution"] & forward["phase"] & of_own_run).fill_null(value=False).to_numpy()
    rows = np.flatnonzero(selected)
    ends = calls["end_ns"].gather(at[rows])
    inside = (
        forward.select("run_id", "start_ns")[rows]
        .with_columns((pl.col("start_ns") <= ends).alias("inside"))
        .group_by("run_id")
        .agg(pl.col("inside").mean().alias("share"))
    )
    busy = activities.group_by("run_id").agg(pl.len().alias("activities"))
    observed = pl.col("share").fill_null(0.0) >= _SERIALISED_SHARE
    idle = pl.col("activities").is_null()
    return (
        trace.scan("runs")
        .select("run_id", "serialised")
        .collect()
        .join(busy, on="run_id", how="left")
        .join(inside, on="run_id", how="left")
        .select(
            "run_id",
            pl.when(idle | pl.coalesce("serialised", observed))
            .then(pl.lit("host"))
            .otherwise(pl.lit("device"))
            .alias("basis"),
            pl.col("serialised").is_null().alias("observed"),
            idle.alias("is_host_only"),
        )
        .sort("run_id")
    )


def _call_of(activities: pl.DataFrame, calls: pl.DataFrame) -> Ints:
    """For each activity the row of the call that it belongs to, or -1."""
    return lookup(calls["layer_id"].to_numpy(), activities["layer_id"].fill_null(-1).to_numpy())


def _layer_steps(
    calls: pl.DataFrame,
    activities: pl.DataFrame,
    bases: pl.DataFrame,
    attributed: pl.DataFrame,
    hosted: pl.DataFrame,
) -> pl.DataFrame:
    """See `layer_steps`; `attributed`: see `_attributed_work`, the work of layers that were not called."""
    own = activities.filter(~pl.col("span_id").is_in(attributed["span_id"].implode()))
    called = _of_calls(_with_host_time(calls, hosted), own, bases)
    if attributed.is_empty():
        return called
    elsewhere = _sums_by_layer(
        attributed,
        pl.col("work_ns").sum().alias("latency_ns"),
        pl.col("call").drop_nulls().n_unique().cast(pl.Int64).alias("call_count"),
        pl.lit(None, called.schema["allocated_bytes"]).alias("allocated_bytes"),
    )
    both = pl.concat([called, elsewhere.select(pl.col(name).cast(kind) for name, kind in called.schema.items())])
    sums = pl.col("latency_ns", "call_count").sum(), known_sum(pl.col("allocated_bytes"))
    return both.group_by(_STEP, maintain_order=True).agg(sums).sort(_STEP, nulls_last=True)


def _attributed_work(trace: Trace, calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Work of layers without a timed call in its run, a row a layer it is shared among: _STEP, work_ns, span_id, call.

    `call` is what replayed it; null where the layer has calls that are counted, though none that took a time.
    Device work, and on a host without a device generated operators.
    """
    pairs = trace.scan("attributions").select("span_id", "layer_id").collect()
    if pairs.is_empty():
        return pl.DataFrame(schema={**_ATTRIBUTED, **{key: activities.schema[key] for key in LAYER_KEY}})
    untimed = _work_of_untimed_layers(pairs, calls)
    columns = ("span_id", "run_id", "step", "layer_id", "duration_ns")
    device = activities.select(*columns, pl.col("parent_id").alias("call"))
    host = attributed_host(trace).select(*columns, pl.lit(None, pl.Int64).alias("call"))
    host = host.filter(~pl.col("run_id").is_in(activities["run_id"].unique().implode()))
    work = pl.concat([device, host]).filter(pl.col("span_id").is_in(untimed.implode()))
    taken = _less_time_of_callers(trace, calls, host.filter(pl.col("span_id").is_in(untimed.implode())))
    layers = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY).collect()
    of_run = pl.col("layer_id").is_in(calls["span_id"].implode())

    def with_layers(rows: pl.DataFrame) -> pl.DataFrame:
        named = rows.join(layers, on="layer_id", how="left", maintain_order="left")
        call = pl.when(~of_run).then("call").alias("call")
        return named.with_columns(pl.col("duration_ns").alias("work_ns"), call, pl.lit(1).alias("count"))

    parts = share_among_layers(trace, with_layers(work), time="work_ns", count="count")
    return pl.concat([parts, with_layers(taken)]).select(*_ATTRIBUTED, *LAYER_KEY)


def _work_of_untimed_layers(attributions: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    timed = calls.filter(pl.col("duration_ns").is_not_null())["span_id"]
    return attributions.filter(~pl.col("layer_id").is_in(timed.implode()))["span_id"].unique()


def _less_time_of_callers(trace: Trace, calls: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The same operators as less time of the layers in whose calls they ran, which have it in their own."""
    parents = trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    is_timed = np.zeros(len(parents), dtype=np.bool_)
    is_timed[calls.filter(pl.col("duration_ns").is_not_null())["span_id"].to_numpy()] = True
    caller = pl.Series("layer_id", innermost(parents, is_timed)[host["span_id"].to_numpy()], dtype=pl.Int64)
    return host.with_columns(caller, -pl.col("duration_ns")).filter(pl.col("layer_id") >= 0)


def _with_host_time(calls: pl.DataFrame, hosted: pl.DataFrame) -> pl.DataFrame:
    """The calls with `calls`, 1 each; of runs without device work host time is that of `host_time`, a row a part."""
    counted = calls.with_columns(pl.lit(1, pl.Int64).alias("calls"))
    if hosted.is_empty():
        return counted
    own_time = hosted.select("span_id", pl.col("host_ns").alias("own_ns"))
    own = counted.join(own_time, on="span_id", how="left", maintain_order="left")
    backward = hosted.filter(~pl.col("span_id").is_in(calls["span_id"].implode()))
    kinds = {name: calls.schema[name] for name in (*_STEP, "host_ns")}
    rows = backward.select(pl.col(name).cast(kind) for name, kind in kinds.items()).with_columns(
        pl.lit(0, pl.Int64).alias("calls")
    )
    return pl.concat([own.with_columns(pl.coalesce("own_ns", "host_ns").alias("host_ns")), rows], how="diagonal")


def _of_calls(calls: pl.DataFrame, activities: pl.DataFrame, bases: pl.DataFrame) -> pl.DataFrame:
    """What `_layer_steps` answers, of layers by their calls."""
    hosted = bases.filter(pl.col("basis") == "host")["run_id"].implode()
    host = _sums_by_layer(
        calls,
        pl.col("host_ns").sum(),
        pl.col("calls").sum().alias("call_count"),
        known_sum(pl.col("allocated_bytes")).alias("allocated_bytes"),
    )
    on_host = pl.col("run_id").is_in(hosted)
    device = _device_latency(activities.filter(~on_host), calls)
    has_work = (
        pl.col("device_ns").is_not_null().any().over("run_id", *LAYER_KEY)
    )  # else there is no latency, not one of 0
    device_ns = pl.when(has_work).then(pl.col("device_ns").fill_null(0))
    return (
        host.join(device, on=_STEP, how="full", coalesce=True, nulls_equal=True)
        .select(
            *_STEP,
            pl.when(on_host).then(pl.col("host_ns").fill_null(0)).otherwise(device_ns).alias("latency_ns"),
            pl.col("call_count").fill_null(0),
            "allocated_bytes",
        )
        .sort(_STEP, nulls_last=True)
    )


def _sums_by_layer(rows: pl.DataFrame, *sums: pl.Expr) -> pl.DataFrame:
    """One row a run, step and layer: the columns of _STEP, and these sums over the rows."""
    number, first = numbers_by_appearance(*group_ids(rows.select(_STEP)))
    totals = rows.with_columns(pl.Series("number", number)).group_by("number", maintain_order=True).agg(sums)
    return rows.select(_STEP)[first].hstack(totals.drop("number"))


def _device_latency(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """device_ns of each run, step and layer: over calls and phases, first start to last end; containers: busy time."""
    at = _call_of(activities, calls)
    rows = np.flatnonzero(at >= 0)
    work, call = activities.select("run_id", "step", "phase", "start_ns", "duration_ns")[rows], at[rows]
    cell, size = group_ids([pl.Series(call), work["phase"], work["run_id"], work["step"]])
    order = sort_by(cell, size)  # activities stand in order of start
    starts = run_starts(cell[order])
    start, duration = (work[c].to_numpy()[order] for c in ("start_ns", "duration_ns"))
    first = order[starts]
    groups = calls.select(*LAYER_KEY, "is_container")[call[first]].hstack(work.select("run_id", "step")[first])
    span, busy = _extent_and_busy_time(start, start + duration, starts)
    latency = pl.when("is_container").then(pl.Series(busy)).otherwise(pl.Series(span)).alias("device_ns")
    return _sums_by_layer(groups.with_columns(latency), pl.col("device_ns").sum())


def _extent_and_busy_time(start: Ints, end: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Of each run of intervals, in order of start: first start to last end, and the time that any of them covers."""
    if not len(start):
        return start, start
    reach = running_max(end, starts)
    before = np.empty_like(reach)
    before[1:] = reach[:-1]
    before[starts] = start[starts]
    busy = np.add.reduceat(np.maximum(end - np.maximum(start, before), 0), starts)
    last = np.append(starts[1:], len(start)) - 1
    return reach[last] - start[starts], busy


# Where no device worked: what the host did, each moment of a thread counted for the innermost that says what it is.

_OPTIMIZER, _BACKWARD, _OTHER = str(Phase.OPTIMIZER), str(Phase.BACKWARD), str(Phase.OTHER)
_HOST_PHASES = (*(str(phase) for phase in Phase if phase != _OTHER), INPUT, COMMUNICATION, _OTHER)
_COMMUNICATES = r"^(?:gloo|mpi|ucc|nccl|rccl):|^c10d::"
"""Calls of process groups, as PyTorch names them."""
_PARTS = ("span_id", "run_id", "step", *LAYER_KEY, "phase", "host_ns", "is_shared")
_THREAD = ("run_id", "process_id", "thread_id")


def layers_and_others(view: StepView) -> pl.DataFrame:
    """`layer_latencies`, and what `host_time` has of no layer, without index: optimizers, input, backward."""
    layers = view.once(layer_latencies)
    rows = view.of_trace.once(host_time).filter(pl.col("layer_index").is_null() & ~pl.col("is_shared"))
    sums = pl.col("host_ns").sum().alias("latency_ns"), pl.len().cast(pl.Int64).alias("call_count")
    per_step = rows.group_by(_STEP, maintain_order=True).agg(sums)
    others = view.combine(per_step, LAYER_KEY, ("latency_ns", "call_count")).sort(*view.by, *LAYER_KEY)
    kinds = (pl.col(name).cast(layers.schema[name]) for name in others.columns)
    return pl.concat([layers, others.select(kinds)], how="diagonal")


def parts_of_host_time(view: StepView) -> pl.DataFrame:
    """`phase`, `layer_type` and duration_ns (of each step, where asked for): `host_time` added up, and what it leaves.

    Phases in order, longest first in each. What is left of the model's time has no type; of a mean step both are means
    over those that the trimmed mean of latency keeps, so that parts add up to it, unless threads worked side by side.
    """
    rows = view.of_chosen_steps(view.of_trace.once(host_time)).with_columns(pl.lit(1).alias("steps"))
    if view.is_mean:
        kept = kept_steps(view.steps).select("run_id", "step", pl.len().over("run_id").alias("steps"))
        rows = rows.drop("steps").join(kept, on=["run_id", "step"], maintain_order="left")
    parts = (
        rows.with_columns(quotient(pl.col("host_ns"), pl.col("steps")).alias("duration_ns"))
        .group_by(*view.by, "phase", "layer_type", maintain_order=True)
        .agg(ordered_sum(pl.col("duration_ns")))
        .lazy()
    )
    left = (pl.col("model_ns").first() - ordered_sum(pl.col("duration_ns"))).alias("duration_ns")
    of_other = pl.lit(_OTHER).alias("phase")
    rest = with_model_time(view, parts).group_by(*view.by, of_other).agg(left).filter(pl.col("duration_ns") > 0)
    order = pl.col("phase").replace_strict(_HOST_PHASES, range(len(_HOST_PHASES)), return_dtype=pl.Int64)
    every = pl.concat([parts, rest], how="diagonal").collect()
    return every.sort(*view.by, order, -pl.col("duration_ns"), "layer_type", nulls_last=True)


def host_time_by(parts: pl.DataFrame, column: str) -> pl.DataFrame:
    """Of B43's rows the time of each phase, or of each type of layer, where there is any; in their order."""
    sums = parts.group_by(column, maintain_order=True).agg(pl.col("duration_ns").sum())
    return sums.filter(pl.col("duration_ns") > 0)


def host_time(view: TraceView) -> pl.DataFrame:
    """In runs where no device worked: span_id, run_id, step, LAYER_KEY, phase and host_ns; a row a part of host time.

    Parts are calls of layers, backward operators, optimizers, waits for input (phase INPUT) and calls of process groups
    (communication), each without the parts in it. A backward operator is of its forward twin's layer. What is of no
    layer has no layer_index, and its phase as type; what is called while waiting for input is input, a layer or not.
    What `is_shared` is of generated code, whose time `layer_steps` shares among layers otherwise.
    """
    alone = view.once(layer_bases).filter("is_host_only")["run_id"]
    calls = view.once(layer_calls).filter(pl.col("run_id").is_in(alone.implode()))
    attributions = view.trace.scan("attributions").select("span_id", "layer_id").collect()
    shared = _work_of_untimed_layers(attributions if view.replays_tell_layers else attributions.clear(), calls)
    is_shared = pl.col("span_id").is_in(shared.implode()).alias("is_shared")
    parts = _spans_that_are_parts(view, alone, calls["span_id"]).with_columns(is_shared)
    parts = _with_layers(parts, calls)
    if parts.is_empty():
        return parts.select(_PARTS)
    parents = view.trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    up = _part_around(parts, parents)
    own = pl.Series("host_ns", np.maximum(parts["host_ns"].to_numpy() - _time_of_parts_inside(parts, up), 0))
    around = nullable_index(innermost(up, parts["apart"].is_not_null().to_numpy()))
    phase = pl.coalesce(parts["apart"].gather(around), "phase").alias("phase")
    return parts.with_columns(own, phase).select(_PARTS)


def _spans_that_are_parts(view: TraceView, runs: pl.Series, calls: pl.Series) -> pl.DataFrame:
    """The spans of these runs that are parts, in order; of operators in each other, of one layer, the outermost."""
    waits = names_like(view.span_names, lambda name: name.str.contains(INPUT_CALLS))
    collectives = names_like(view.span_names, lambda name: name.str.contains(_COMMUNICATES))
    is_input, is_talk = (pl.col("name").is_in(names.implode()) for names in (waits, collectives))
    apart = pl.when(is_input).then(pl.lit(INPUT)).when(is_talk).then(pl.lit(COMMUNICATION)).alias("apart")
    is_call, is_apart = pl.col("span_id").is_in(calls.implode()), apart.is_not_null()
    is_part = is_call | is_apart | pl.col("phase").is_in([_OPTIMIZER, _BACKWARD])
    above = ("phase", "layer_id")
    columns = ("span_id", "parent_id", *_THREAD, "step", "start_ns", "duration_ns", "name", *above)
    spans = view.layer_runs.scan("spans").filter(pl.col("run_id").is_in(runs.implode()), is_part)
    rows = spans.select(*columns, is_call.alias("is_call"), apart).collect().sort("span_id")
    outer = pl.DataFrame([column_at(view.trace, name, rows["parent_id"]).alias(f"outer_{name}") for name in above])
    rows = rows.hstack(outer).with_columns(pl.col("name", "phase", "outer_phase").cast(pl.String))
    is_of_same = (pl.col("phase") == _OPTIMIZER) | pl.col("layer_id").eq_missing(pl.col("outer_layer_id"))
    is_inside = pl.col("phase").eq_missing(pl.col("outer_phase")) & is_of_same
    return rows.filter(
        pl.col("duration_ns").is_not_null(), pl.col("is_call") | pl.col("apart").is_not_null() | ~is_inside
    )


def _with_layers(parts: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The parts with the key of their layer, or of what they are where they are of none, end_ns and host_ns."""
    is_backward = ~pl.col("is_call") & (pl.col("phase") == _BACKWARD)
    holders = parts.filter(is_backward)["layer_id"].unique()  # operators around forward twins are forward, too
    is_forward = pl.col("is_call") & (pl.col("phase") == _OTHER) & pl.col("span_id").is_in(holders.implode())
    kind = pl.coalesce("apart", pl.when(is_forward).then(pl.lit(str(Phase.FORWARD))).otherwise("phase"))
    name = pl.when(is_backward).then(pl.lit("backward outside of layers")).otherwise("name")
    layer = pl.when("is_call").then("span_id").when(is_backward & ~pl.col("is_shared")).then("layer_id")
    keys = calls.select(pl.col("span_id").alias("layer_id"), pl.col("host_ns").alias("call_ns"), *LAYER_KEY)
    texts = pl.col("layer_name", "layer_type").cast(pl.String)
    named = parts.with_columns(layer.alias("layer_id")).join(
        keys.with_columns(texts), on="layer_id", how="left", maintain_order="left"
    )
    return named.with_columns(
        pl.coalesce("layer_name", name),
        pl.coalesce("layer_type", kind),
        kind.alias("phase"),
        pl.when("is_call").then("call_ns").otherwise("duration_ns").alias("host_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    )


def _part_around(parts: pl.DataFrame, parents: Ints) -> Ints:
    """For each part the row of the part that it lies in, or -1.

    The tree never has an operator above a module: what is recomputed is looked for by time, in the backward operators
    of its thread.
    """
    ids = parts["span_id"].to_numpy()
    row = np.full(len(parents) + 1, -1, dtype=np.int64)  # the last for no span
    row[ids] = np.arange(len(ids))
    nearest = np.append(innermost(parents, row[:-1] >= 0), -1)
    up: Ints = row[nearest[parents[ids]]]
    phase = parts["phase"].to_numpy()
    again = phase == str(Phase.RECOMPUTE)
    lost = np.flatnonzero(again & ((up < 0) | ~again[up]))
    if not len(lost):
        return up
    backward = np.flatnonzero(~parts["is_call"].to_numpy() & (phase == _BACKWARD))
    times = parts.select(*_THREAD, "start_ns").with_row_index("at")
    sought, among = (times[rows].sort("start_ns") for rows in (lost, backward))
    pairs = sought.join_asof(among, on="start_ns", by=_THREAD, suffix="_around", check_sortedness=False)
    at, around = (pairs[name].fill_null(-1).cast(pl.Int64).to_numpy() for name in ("at", "at_around"))
    start, end = parts["start_ns"].to_numpy(), parts["end_ns"].to_numpy()
    while (over := np.flatnonzero((around >= 0) & (end[around] <= start[at]))).size:
        around = around.copy()
        around[over] = up[around[over]]
    up[at] = np.where((around >= 0) & (phase[around] == _BACKWARD), around, up[at])
    return up


def _time_of_parts_inside(parts: pl.DataFrame, up: Ints) -> Ints:
    """Of each part the time of the parts in it on its thread; that of layers in layers is not in `host_ns`."""
    is_call, start, end = (parts[name].to_numpy() for name in ("is_call", "start_ns", "end_ns"))
    thread, _ = numbers_by_appearance(*group_ids(parts.select(_THREAD)))
    rows = np.flatnonzero((up >= 0) & ~(is_call & is_call[up]) & (thread == thread[up]))
    inside = np.zeros(len(up), dtype=np.int64)
    np.add.at(inside, up[rows], np.maximum(np.minimum(end[rows], end[up[rows]]) - start[rows], 0))
    return inside


# How layer latencies vary over steps.


def layer_quartiles(frames: StepView) -> pl.DataFrame:
    """One row a layer of a mean step: min_ns, q1_ns, median_ns, q3_ns, max_ns over steps of all runs; else none."""
    latency = pl.col("latency_ns")
    at = (
        latency.min().cast(pl.Float64).alias("min_ns"),
        latency.quantile(0.25, "linear").alias("q1_ns"),
        latency.median().alias("median_ns"),
        latency.quantile(0.75, "linear").alias("q3_ns"),
        latency.max().cast(pl.Float64).alias("max_ns"),
    )
    return _averaged_steps(frames).group_by(LAYER_KEY, maintain_order=True).agg(at)


def layer_intervals(frames: StepView) -> pl.DataFrame:
    """One row a layer of a mean step: low_ns and high_ns, the 95 % interval of its latency; null where unknown.

    Known for layers of one run that are in at least three steps.
    """
    latency = pl.col("latency_ns")
    rows = (
        _averaged_steps(frames)
        .group_by(LAYER_KEY, maintain_order=True)
        .agg(latency, latency.len().alias("steps"), pl.col("run_id").n_unique().alias("runs"))
    )
    unknown = pl.lit(None, dtype=pl.Float64)
    parts = [rows.select(*LAYER_KEY, unknown.alias("low_ns"), unknown.alias("high_ns")).clear()]
    for part in rows.filter(pl.col("runs") == 1).partition_by("steps", maintain_order=True):
        low, high = bootstrap_interval(part["latency_ns"].list.to_array(part["steps"][0]).to_numpy())
        ends = pl.Series("low_ns", low).fill_nan(None), pl.Series("high_ns", high).fill_nan(None)
        parts.append(part.select(LAYER_KEY).with_columns(ends))
    return pl.concat(parts)


def _averaged_steps(frames: StepView) -> pl.DataFrame:
    steps = frames.of_chosen_steps(frames.of_trace.once(layer_steps))
    return steps if frames.is_mean else steps.clear()
