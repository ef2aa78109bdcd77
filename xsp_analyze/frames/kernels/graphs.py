"""Graphs: replays of device graphs, calls of what torch.compile made, and the kernels in either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.labels import GENERATED, operators_of_name
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.host_calls import COMPILATIONS
from xsp_analyze.frames.kernels.activities import attribution_bases, column_at
from xsp_model import Attribution, Kind, Level
from xsp_model.columns.arrays import lookup, nullable_index
from xsp_model.columns.tree import innermost, outermost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "GRAPH_LABELS",
    "KERNEL_FACTS",
    "KERNEL_KEY",
    "KERNEL_MEASURES",
    "REPLAY_MEASURES",
    "CompiledRegions",
    "compiled_kernels",
    "compiled_regions",
    "graph_captures",
    "graph_replays",
    "has_compiled_kernels",
    "replayed_share",
    "replayed_work",
]

# Replays of device graphs: which launches are of the same graph, and what of their work has a layer.

GRAPH_LABELS = ("captured_in", "attribution_basis", "launched_in")
"""What describes a graph: where it was captured, how its layers are known, and where it was first launched."""
REPLAY_MEASURES = ("replay_count", "kernel_count", "device_sum_ns", "attributed_ns", "launch_ns")
_GRAPH_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"
_CAPTURE = r"(?i)^(cuda|cu|hip)Stream(Begin|End)Capture"


def graph_replays(frames: TraceView) -> pl.DataFrame:
    """One row a run, step and graph, numbered in order of first replay: GRAPH_LABELS, REPLAY_MEASURES, layer_count.

    Replays are of one graph where they were captured by the same launches; of which that is not known, where the same
    kernels ran in the same order.
    """
    work = replayed_work(frames)
    if work.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    replays = _by_replay(work)
    order = replays.select(pl.col("key").rank("dense").alias("number")).with_row_index("row")
    first = order.group_by("number", maintain_order=True).agg(pl.col("row").min())
    graph = order.join(first.with_row_index("graph").select("number", "graph"), on="number", maintain_order="left")
    described = replays.with_columns(
        graph["graph"].cast(pl.Int64),
        _capture_positions(frames.trace, replays["origin_id"]),
        _layers_around(frames.trace, replays["parent_id"]),
    )
    return (
        described.group_by("run_id", "step", "graph", maintain_order=True)
        .agg(
            pl.col("captured_in", "attribution_basis", "launched_in").first(),
            pl.len().cast(pl.Int64).alias("replay_count"),
            pl.col("kernel_count", "device_sum_ns", "attributed_ns", "launch_ns").sum(),
            pl.col("layers").list.explode().drop_nulls().n_unique().cast(pl.Int64).alias("layer_count"),
        )
        .select(*_SCHEMA)
    )


def graph_captures(view: TraceView) -> tuple[int, float, int]:
    """How often a graph was captured, for how long in all (ns), and how often one was launched."""
    if not view.span_names.cast(pl.String).str.contains(_CAPTURE).any():
        return 0, 0.0, 0
    name, thread = pl.col("name").cast(pl.String), ["run_id", "process_id", "thread_id"]
    calls = view.kernel_runs.scan("spans").filter(
        pl.col("level") == str(Level.RUNTIME), name.str.contains(f"{_CAPTURE}|{_GRAPH_LAUNCH}")
    )
    rows = calls.select(
        *thread, name, "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    ).collect()
    marks = rows.filter(name.str.contains(_CAPTURE)).sort(*thread, "start_ns")
    begins = name.str.contains("(?i)Begin")
    held = pl.col("end_ns").shift(-1) - pl.col("start_ns")
    pairs = marks.select(held.filter(begins & ~begins.shift(-1)).over(thread, mapping_strategy="explode"))
    return int(marks.select(begins.sum()).item()), total_of(pairs.to_series()), rows.height - marks.height


_SCHEMA = {
    "run_id": pl.Int64,
    "step": pl.Int64,
    "graph": pl.Int64,
    **dict.fromkeys(GRAPH_LABELS, pl.String),
    **dict.fromkeys(REPLAY_MEASURES, pl.Int64),
    "layer_count": pl.Int64,
}


def replayed_work(frames: TraceView) -> pl.DataFrame:
    """The device work that graph launches issued, in order of start."""
    work = frames.all_activities
    names = frames.span_names.cast(pl.String)
    launches = names.filter(names.str.contains(_GRAPH_LAUNCH))
    work = work.with_columns(attribution_bases(frames.trace, work["span_id"]).cast(pl.String))
    parents = column_at(frames.trace, "name", work["parent_id"]).cast(pl.String)
    is_graph = (work["kind"].cast(pl.String) == str(Kind.GRAPH)).fill_null(value=False)
    return work.filter(parents.is_in(launches.implode()).fill_null(value=False) | is_graph)


def replayed_share(view: TraceView) -> float:
    """The part of device time that replays of graphs launched, or that is known to be of one without its launch."""
    rows = view.all_activities
    calls = column_at(view.trace, "name", rows["parent_id"]).cast(pl.String)
    is_replayed = (
        (rows["kind"].cast(pl.String) == str(Kind.GRAPH))
        | (rows["attribution"].cast(pl.String) == str(Attribution.GRAPH_REPLAY))
        | calls.str.contains(_GRAPH_LAUNCH).fill_null(value=False)
    )
    total = total_of(rows["duration_ns"])
    return total_of(rows.filter(is_replayed)["duration_ns"]) / total if total else 0.0


def _by_replay(work: pl.DataFrame) -> pl.DataFrame:
    """One row a launch, in order: `key` is the same for replays of one graph, `origin_id` where it was captured."""
    captured = pl.col("origin_id") != pl.col("span_id")
    is_layer = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
    token = pl.when(captured).then(pl.col("origin_id")).otherwise(-1 - pl.col("name").to_physical().cast(pl.Int64))
    replay = pl.coalesce("parent_id", "span_id").alias("replay")
    return (
        work.with_columns(token.alias("token"))
        .group_by("run_id", "step", replay, maintain_order=True)
        .agg(
            pl.col("parent_id").first(),
            (pl.col("token").hash() * (2 * pl.int_range(pl.len()) + 1).cast(pl.UInt64)).sum().alias("key"),
            pl.col("origin_id").filter(captured).min(),
            pl.col("attribution_basis").drop_nulls().first(),
            pl.len().cast(pl.Int64).alias("kernel_count"),
            pl.col("duration_ns").sum().alias("device_sum_ns"),
            pl.col("duration_ns").filter(is_layer).sum().alias("attributed_ns"),
            (pl.col("call_end_ns") - pl.col("call_start_ns")).first().fill_null(0).alias("launch_ns"),
            pl.col("layer_name").cast(pl.String).filter(is_layer).unique().alias("layers"),
        )
    )


def _capture_positions(trace: Trace, origins: pl.Series) -> pl.Series:
    """For each captured launch the outermost range around it (a serving engine names captures), else its run's file."""
    spans = trace.scan("spans").select("parent_id", (pl.col("kind") == str(Kind.RANGE)).alias("is_range")).collect()
    around = outermost(spans["parent_id"].fill_null(-1).to_numpy(), spans["is_range"].to_numpy())
    held = pl.Series(around).gather(origins)
    ranges = column_at(trace, "name", held.set(held < 0, None)).cast(pl.String)
    files = trace.frame("runs").select("run_id", "source_path")
    runs = column_at(trace, "run_id", origins).to_frame("run_id")
    paths = runs.join(files, on="run_id", how="left", maintain_order="left")["source_path"]
    return pl.select(pl.coalesce(ranges, paths).alias("captured_in")).to_series()


def _layers_around(trace: Trace, launches: pl.Series) -> pl.Series:
    """For each launch the innermost layer around it."""
    layers = trace.scan("layers").select("span_id", "layer_name", "source").collect()
    parents = trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
    is_layer = np.zeros(len(parents), dtype=np.bool_)
    is_layer[layers["span_id"].to_numpy()] = True
    held = pl.Series(innermost(parents, is_layer)).gather(launches).fill_null(-1)
    rows = nullable_index(lookup(layers["span_id"].to_numpy(), held.to_numpy()))
    return layers["layer_name"].cast(pl.String).gather(rows).alias("launched_in")


# Kernels in the code of compiled graphs: which call of which graph they are in, and what they stand for.

KERNEL_KEY = ("region", "region_call", "position")
"""A compiled graph, which of its calls in the step, and which kernel of that call, in order."""
KERNEL_FACTS = ("region_hash", "direction", "kernel_name", "operators", "sources", "layers")
KERNEL_MEASURES = ("call_count", "host_ns", "device_sum_ns")
_REGION = r"^## Call CompiledFxGraph (\S+) ##$"
_GRAPH_NUMBER = r"^graph_\d+_(cpp_)"


def has_compiled_kernels(frames: TraceView) -> bool:
    """Whether any kernel was generated by a compiler."""
    return _generated_names(frames).len() > 0 or bool(frames.trace.scan("compiled_kernels").head(1).collect().height)


def _generated_names(frames: TraceView) -> pl.Series:
    names = frames.span_names.cast(pl.String)
    return names.filter(names.str.replace(_GRAPH_NUMBER, "$1").str.contains(GENERATED))


def compiled_kernels(frames: TraceView) -> pl.DataFrame:
    """One row a run, step and KERNEL_KEY, with KERNEL_FACTS and KERNEL_MEASURES; region is null outside of all.

    What no compiler's record tells of stands for the operators in its name.
    """
    trace = frames.trace
    spans = trace.scan("spans").select("span_id", "parent_id", "name", "level").collect()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    names = spans["name"].cast(pl.String)
    recorded = trace.scan("compiled_kernels").collect().with_columns(pl.col(pl.Categorical).cast(pl.String))
    kernels = names.is_in(_generated_names(frames).implode()).fill_null(value=False).to_numpy().copy()
    kernels[recorded["span_id"].to_numpy()] = True
    regions = names.str.starts_with("## Call CompiledFxGraph").fill_null(value=False).to_numpy()
    at = _outermost(parent, kernels)
    region = innermost(parent, regions)[at]
    rows = _rows_at(trace, at).with_columns(
        pl.Series("region_id", np.where(region >= 0, region, -1)).replace(-1, None),
        _device_time(frames, parent, at),
    )
    rows = rows.join(recorded.drop("region", "region_call"), on="span_id", how="left", maintain_order="left")
    region_names = names.gather(nullable_index(region)).str.extract(_REGION).alias("region_hash")
    of_runs = pl.col("run_id").is_in(frames.kernel_runs.ids)
    return _with_kernel_keys(rows.with_columns(region_names, _layers(trace, rows["span_id"])).filter(of_runs))


def _outermost(parent: Positions, kernels: Bools) -> Ints:
    """The calls that are not launched by another one: a generated function's call may hold the kernel of its name."""
    at = np.flatnonzero(kernels)
    up = parent[at]
    above = np.where(up >= 0, innermost(parent, kernels)[up], -1)
    return at[above < 0]


def _rows_at(trace: Trace, at: Ints) -> pl.DataFrame:
    """run_id, step, name and host time (of device work: null), in order of start."""
    columns = ("span_id", "run_id", "step", "start_ns", "level", "name", pl.col("duration_ns").fill_null(0))
    rows = trace.scan("spans").filter(pl.col("span_id").is_in(at.tolist())).select(columns).collect()
    on_host = rows["level"].cast(pl.String) != str(Level.KERNEL)
    return rows.with_columns(
        pl.when(on_host).then("duration_ns").alias("host_ns"), pl.col("name").cast(pl.String), on_host.alias("on_host")
    )


def _device_time(frames: TraceView, parent: Positions, at: Ints) -> pl.Series:
    """Of each the device time launched in it, or its own; null in a trace without a device."""
    work = frames.all_activities.select("span_id", "duration_ns")
    total = np.zeros(len(parent), dtype=np.int64)
    outer = np.zeros(len(parent), dtype=np.bool_)
    outer[at] = True
    holder = innermost(parent, outer)[work["span_id"].to_numpy()]
    held = holder >= 0
    np.add.at(total, holder[held], work["duration_ns"].fill_null(0).to_numpy()[held])
    sums = pl.Series("device_sum_ns", total[at])
    return sums if work.height else pl.Series("device_sum_ns", [None] * len(at), dtype=pl.Int64)


def _layers(trace: Trace, span_ids: pl.Series) -> pl.Series:
    """Of each the layers that share it, `Linear_0 0.75, GELU_0 0.25`; null where none is known."""
    layers = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    shares = trace.scan("attributions").join(layers, on="layer_id", how="left").collect()
    texts = (
        shares.sort("span_id", -pl.col("weight"), "layer_name")
        .with_columns(
            pl.when(pl.col("weight") < 1)
            .then(pl.format("{} {}", "layer_name", pl.col("weight").round(3)))
            .otherwise("layer_name")
            .alias("text")
        )
        .group_by("span_id", maintain_order=True)
        .agg(pl.col("text").str.join(", "))
    )
    return (
        texts["text"].gather(nullable_index(lookup(texts["span_id"].to_numpy(), span_ids.to_numpy()))).alias("layers")
    )


def _with_kernel_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """With KERNEL_KEY: graphs in order of first call, their calls in each step, and kernels in each call."""
    step = ("run_id", "step")
    plain = pl.col("name").str.replace(_GRAPH_NUMBER, "$1")
    generated = plain.map_elements(operators_of_name, return_dtype=pl.String)
    hashes = rows.drop_nulls("region_hash")["region_hash"].unique(maintain_order=True)
    numbers = pl.DataFrame({"region_hash": hashes, "region": range(len(hashes))}, schema_overrides={"region": pl.Int64})
    return (
        rows.join(numbers, on="region_hash", how="left", maintain_order="left")
        .with_columns(
            (pl.col("region_id").rank("dense").over(*step, "region_hash") - 1).cast(pl.Int64).alias("region_call"),
            pl.int_range(pl.len()).over(*step, "region_id").alias("position"),
            pl.coalesce("kernel_name", plain).alias("kernel_name"),
            pl.coalesce("operators", generated).alias("operators"),
            pl.lit(1, pl.Int64).alias("call_count"),
        )
        .select(*step, *KERNEL_KEY, *KERNEL_FACTS, *KERNEL_MEASURES)
    )


# Calls of what torch.compile made, and where such a call leaves compiled code: at a graph break.
#
# Dynamo names each call `Torch-Compiled Region: F/V`, F the number of the function that it compiled and V of the
# version
# of it; PyTorch before 2.5 has no numbers. Where it cannot compile a function whole, the rest after the break is a
# function of its own that the first part calls: a region within a region, but not within the call of a compiled graph.
# A graph that a backend splits on purpose (vLLM's piecewise graphs, DDP's buckets) is several calls of compiled graphs
# in
# one region, and no break.

_REGION_CALL = r"^Torch-Compiled Region(?:$|: (\d{1,18})/(\d{1,18}))"
_GRAPH = r"^## Call CompiledFxGraph|^CompiledFunction$"
_LOOKUP = r"^TorchDynamo Cache Lookup"
_OWN = r"^TorchDynamo |^Pregraph bytecode|^PythonDispatchMode|^AOTDispatcher "  # calls of Dynamo's, no operators
_MARKS = {"region": _REGION_CALL, "graph": _GRAPH, "compilation": rf"^dynamo$|{COMPILATIONS}", "lookup": _LOOKUP}
_THREAD = ("run_id", "process_id", "thread_id")
_SWEPT = ("mark", "start_ns", "end_ns", "function")
_CALLS = ("run_id", "start_ns", "duration_ns", "function", "version")
_BREAK_COLUMNS = {
    "start_ns": pl.Int64, "end_ns": pl.Int64, "from_function": pl.Int64, "to_function": pl.Int64,
    "from_graph": pl.Boolean,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompiledRegions:
    """What was called and where it was left; each in order of run, thread and start.

    `calls`: run_id, start_ns, duration_ns, function, version. `breaks`: run_id, process_id, thread_id, start_ns (end of
    the compiled graph before, else begin of the region), end_ns (the next region is looked up), from_function,
    to_function, from_graph (whether calls of compiled graphs are recorded). `eager`: operators in such breaks that are
    in no other operator: run_id, name, start_ns, duration_ns.
    """

    calls: pl.DataFrame
    breaks: pl.DataFrame
    eager: pl.DataFrame


def compiled_regions(trace: Trace, runs: Sequence[int], names: pl.Series) -> CompiledRegions:
    """The compiled regions of the runs; `names` are all names of spans, each once."""
    marks = _marks(trace, runs, names)
    pieces = [
        pl.DataFrame(_breaks(rows.select(_SWEPT).iter_rows()), schema=_BREAK_COLUMNS, orient="row").select(
            *(pl.lit(value, pl.Int64).alias(column) for column, value in zip(_THREAD, key, strict=True)), pl.all()
        )
        for key, rows in marks.group_by(_THREAD, maintain_order=True)
    ]
    none = pl.DataFrame(schema={**dict.fromkeys(_THREAD, pl.Int64), **_BREAK_COLUMNS})
    breaks = pl.concat([none, *pieces])
    return CompiledRegions(marks.filter(pl.col("mark") == "region").select(_CALLS), breaks, _eager(trace, breaks))


def _marks(trace: Trace, runs: Sequence[int], names: pl.Series) -> pl.DataFrame:
    """The spans that say where compiled code begins, ends and is made, outer ones first; none without regions."""
    text = pl.col("name").cast(pl.String)
    mark = pl.coalesce(pl.when(text.str.contains(pattern)).then(pl.lit(name)) for name, pattern in _MARKS.items())
    named = names.to_frame("name").select(
        "name",
        mark.alias("mark"),
        text.str.extract(_REGION_CALL, 1).cast(pl.Int64, strict=False).alias("function"),
        text.str.extract(_REGION_CALL, 2).cast(pl.Int64, strict=False).alias("version"),
    )
    named = named.drop_nulls("mark") if (named["mark"] == "region").any() else named.clear()
    end = pl.col("start_ns") + pl.col("duration_ns")
    return (
        trace.scan("spans")
        .filter(
            pl.col("name").is_in(named["name"].implode()),
            pl.col("run_id").is_in(list(runs)),
            pl.col("duration_ns").is_not_null(),
            pl.col("attribution").is_null(),
        )
        .select(*_THREAD, "name", "start_ns", "duration_ns", end.alias("end_ns"))
        .join(named.lazy(), on="name")
        .sort(*_THREAD, "start_ns", -pl.col("end_ns"))
        .collect()
    )


@dataclass(slots=True)
class _Open:
    """A region whose call has not ended: where its compiled code last ended, and when Dynamo looked for more of it."""

    function: int | None
    end: int
    left: int
    from_graph: bool = False
    until: int | None = None

    def leaves_at(self, time: int) -> None:
        self.left, self.until = time, None


def _breaks(marks: Iterable[tuple[str, int, int, int | None]]) -> list[tuple[int, int, int | None, int | None, bool]]:
    """The breaks on one thread, in the columns of `_BREAK_COLUMNS`; marks stand in order of start, outer ones first."""
    regions: list[_Open] = []
    breaks, covered = [], -1  # until `covered` all lies within a compiled graph or a compilation
    for mark, start, end, function in marks:
        if start < covered:
            continue
        while regions and regions[-1].end <= start:
            inner = regions.pop()
            if regions:
                regions[-1].leaves_at(inner.end)
        outer = regions[-1] if regions else None
        if mark == "region":
            if outer is not None:
                until = start if outer.until is None else outer.until
                breaks.append((outer.left, until, outer.function, function, outer.from_graph))
            regions.append(_Open(function, end, start))
            continue
        covered = covered if mark == "lookup" else end
        if outer is not None and mark == "graph":
            outer.from_graph = True
            outer.leaves_at(end)
        elif outer is not None and (mark == "lookup" or outer.until is None):
            outer.until = start
    return breaks


def _eager(trace: Trace, breaks: pl.DataFrame) -> pl.DataFrame:
    """The outermost operators that begin in a break after a compiled graph."""
    windows = breaks.filter("from_graph").select(*_THREAD, pl.col("start_ns").alias("from_ns"), "end_ns").lazy()
    name = pl.col("name").cast(pl.String)
    rows = (
        trace.scan("spans")
        .filter(pl.col("level") == str(Level.OPERATOR), pl.col("duration_ns").is_not_null())
        .select(*_THREAD, name, "start_ns", "duration_ns")
        .filter(~name.str.contains(_OWN))
        .join(windows.select(_THREAD).unique(), on=_THREAD, how="semi", nulls_equal=True)
        .sort("start_ns")
        .join_asof(windows.sort("from_ns"), left_on="start_ns", right_on="from_ns", by=_THREAD, check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .sort(*_THREAD, "start_ns", -pl.col("duration_ns"))
        .collect()
    )
    end = (pl.col("start_ns") + pl.col("duration_ns")).cum_max().shift().over(_THREAD)
    outermost = rows.filter((pl.col("start_ns") >= end).fill_null(value=True))
    return outermost.select("run_id", "name", "start_ns", "duration_ns")
