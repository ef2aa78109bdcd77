"""Adds to a run what is said of its compiled kernels: layers of their own, and whose work each call is."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.compiled_code.code import event_name
from xsp_ingest.staging.raw import frame_of
from xsp_model import AttributionBasis, Finding, Kind, LedgerKind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.compiled_code.code import CompiledCode, Graph
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["Matches", "join_code", "match"]

_REGION = r"^## Call CompiledFxGraph (\S+) ##$"
IS_GENERATED = pl.col("name").str.contains(r"^(?:cpp|triton)_\w*fused_")
"""Names of functions that Inductor generated, without their graph's number."""
_GRAPH_NUMBER = r"^graph_\d+_(cpp_)"
WHERE = ("process_id", "thread_id")
"""Host calls that nest share these."""


def regions_of(spans: pl.DataFrame) -> pl.DataFrame:
    """Calls of compiled graphs in order: region_row, region, region_call, process_id, thread_id, start_ns, end_ns."""
    name = pl.col("name").cast(pl.String)
    calls = spans.filter(name.str.starts_with("## Call CompiledFxGraph"), pl.col("duration_ns").is_not_null())
    return (
        calls.select(
            pl.col("row").alias("region_row"),
            name.str.extract(_REGION).alias("region"),
            *WHERE,
            "start_ns",
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        )
        .drop_nulls()
        .sort("start_ns", "region_row")
        .with_columns(pl.int_range(pl.len()).over("region").alias("region_call"))
    )


def events_in(regions: pl.DataFrame, spans: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Calls in regions of one of the names or of a generated one, in order; with the region's columns."""
    called = _outermost(_inside(spans.filter(pl.col("level") == str(Level.OPERATOR)), regions))
    launched = _launched_kernels(spans, regions).join(called, on=["region_row", "name"], how="anti")
    of_code = pl.col("name").is_in(names) | IS_GENERATED
    return pl.concat([called, launched.select(called.columns)]).filter(of_code).sort("start_ns", "row")


def _inside(some: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """The calls that ran in a region, on its thread; of regions that hold one another the innermost."""
    columns = ("row", "start_ns", "duration_ns", "correlation_id", *WHERE)
    name = pl.col("name").cast(pl.String).str.replace(_GRAPH_NUMBER, "$1")
    rows = some.select(*columns, name).drop_nulls(["start_ns", "duration_ns", "thread_id"]).sort("start_ns")
    joined = rows.join_asof(
        _innermost(regions),
        left_on="start_ns",
        right_on="since_ns",
        by=list(WHERE),
        check_sortedness=False,
    )
    held = regions.select("region_row", "region", "region_call", region_end_ns="end_ns")
    end = pl.col("start_ns") + pl.col("duration_ns")
    return joined.join(held, on="region_row", maintain_order="left").filter(
        end <= pl.col("region_end_ns"), pl.col("row") != pl.col("region_row")
    )


def _innermost(regions: pl.DataFrame) -> pl.DataFrame:
    """The innermost region of a thread: process_id, thread_id, since_ns, region_row (null in none)."""
    ordered = regions.sort(["start_ns", "end_ns", "region_row"], descending=[False, True, False])
    stacks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    changes: list[tuple[int, int, int, int | None]] = []

    def close(where: tuple[int, int], before_ns: float) -> None:
        stack = stacks[where]
        while stack and stack[-1][0] <= before_ns:
            end_ns, _ = stack.pop()
            changes.append((*where, end_ns, stack[-1][1] if stack else None))

    for process, thread, start_ns, end_ns, row in ordered.select(*WHERE, "start_ns", "end_ns", "region_row").rows():
        close((process, thread), start_ns)
        stacks[process, thread].append((end_ns, row))
        changes.append((process, thread, start_ns, row))
    for where in stacks:
        close(where, math.inf)
    schema = dict.fromkeys((*WHERE, "since_ns", "region_row"), pl.Int64)
    return pl.DataFrame(changes, schema=schema, orient="row").sort("since_ns", maintain_order=True)


def _outermost(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that no other one of the same region holds."""
    ordered = calls.sort(["region_row", "start_ns", "duration_ns", "row"], descending=[False, False, True, False])
    end = pl.col("start_ns") + pl.col("duration_ns")
    before = end.cum_max().shift(1).over("region_row")
    return ordered.filter(before.is_null() | (before <= pl.col("start_ns")))


def _launched_kernels(spans: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Generated kernels on a device, at the time of their launch in a region: older traces have no call for them."""
    name = pl.col("name").cast(pl.String)
    kernels = spans.filter(pl.col("level") == str(Level.KERNEL), pl.col("correlation_id").is_not_null())
    kernels = kernels.select("row", "duration_ns", "correlation_id", name).filter(IS_GENERATED)
    calls = _inside(spans.filter(pl.col("level") == str(Level.RUNTIME)), regions)
    launches = calls.drop_nulls("correlation_id").drop("row", "duration_ns", "name")
    return launches.unique("correlation_id", keep="none").join(kernels, on="correlation_id")


# Pairs calls in a trace with the kernels that a compiler generated, by their order within a call of a graph.

_CALL = ("region_row", "name")
_SEGMENT_CALL = ("segment", "name", "nth")


@dataclass(frozen=True, slots=True)
class Matches:
    """`paired`: row, start_ns, region_row, region, region_call, kernel (its index in the graph).

    `unpaired` counts calls that only one side has, has more often or in another order; `unpaired_ns` is the time of
    those in the trace.
    """

    paired: pl.DataFrame
    unpaired: int
    unpaired_ns: int


def match(spans: pl.DataFrame, regions: pl.DataFrame, code: CompiledCode) -> Matches:
    """The calls within regions that the code has, where both have them in one order.

    Generated kernels are what a region's call is known by: where their sequence is another than the code's, nothing of
    that call is paired. Between two of them calls of libraries are paired in order, each name only where it was called
    as often as generated. A trace without any generated kernel has none to be known by: a region is then one segment.
    """
    of_code = pl.col("region").is_in(list(code.graphs))
    recorded = regions.filter(of_code)
    expected = _kernels_of_code(code)
    events = events_in(regions, spans, expected["name"].unique().to_list()).filter(of_code)
    has_anchors = events.filter(IS_GENERATED).height > 0
    events = _with_segments(events, "region_row", has_anchors=has_anchors)
    expected = _with_segments(expected, "region", has_anchors=has_anchors)
    calls = _as_often(events, expected)
    if has_anchors:
        calls = calls.join(_other_kernels(events, expected), on="region_row", how="anti")
    paired = _in_order(calls.join(expected, on=["region", *_SEGMENT_CALL]))
    left = events.join(paired, on="row", how="anti")
    columns = ("row", "start_ns", "region_row", "region", "region_call", "kernel")
    return Matches(
        paired.select(columns).sort("start_ns", "row"),
        _unpaired_count(recorded, expected, events, paired),
        int(left["duration_ns"].sum() or 0),
    )


def _kernels_of_code(code: CompiledCode) -> pl.DataFrame:
    """region, kernel, name as in a trace; in order."""
    rows = [
        (graph.region, index, event_name(kernel.name))
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
    ]
    return pl.DataFrame(rows, schema={"region": pl.String, "kernel": pl.Int64, "name": pl.String}, orient="row")


def _with_segments(calls: pl.DataFrame, of: str, *, has_anchors: bool) -> pl.DataFrame:
    """The calls with `segment`, counted up at each generated kernel, and which one of the name it is there (`nth`)."""
    starts = IS_GENERATED if has_anchors else pl.lit(value=False)
    segmented = calls.with_columns(starts.cast(pl.Int64).cum_sum().over(of).alias("segment"))
    return segmented.with_columns(pl.int_range(pl.len()).over(of, "segment", "name").alias("nth"))


def _as_often(events: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """The events of a name that the segment has as often as the code's."""
    generated = expected.group_by("region", "segment", "name").agg(generated=pl.len())
    counted = events.with_columns(pl.len().over("region_row", "segment", "name").alias("calls"))
    joined = counted.join(generated, on=["region", "segment", "name"], maintain_order="left")
    return joined.filter(pl.col("calls") == pl.col("generated"))


def _other_kernels(events: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """`region_row` of calls whose generated kernels are others than the code's, or in another order."""
    anchors = expected.filter(IS_GENERATED).select("region", "segment", "name", is_same=pl.lit(value=True))
    needed = anchors.group_by("region").agg(needed=pl.len())
    held = events.join(anchors, on=["region", "segment", "name"], how="left")
    sums = held.group_by("region_row", "region").agg(
        anchors=IS_GENERATED.sum(), same=(IS_GENERATED & pl.col("is_same").fill_null(value=False)).sum()
    )
    compared = sums.join(needed, on="region", how="left").with_columns(pl.col("needed").fill_null(0))
    return compared.filter((pl.col("anchors") != pl.col("same")) | (pl.col("anchors") != pl.col("needed")))


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Without libraries' calls of segments in which names follow one another otherwise than in the code."""
    segment = ("region_row", "segment")
    rises = (pl.col("kernel").diff().fill_null(1) > 0).all().over(segment)
    return calls.sort("start_ns", "row").filter(IS_GENERATED | rises)


def _unpaired_count(regions: pl.DataFrame, expected: pl.DataFrame, events: pl.DataFrame, paired: pl.DataFrame) -> int:
    """For each name in each region's call the larger number of what is left on either side, added up."""
    of_code = expected.group_by("region", "name").agg(generated=pl.len().cast(pl.Int64))
    of_region = of_code.group_by("region").agg(pl.col("generated").sum())
    if_none_is_called = regions.join(of_region, on="region")["generated"].sum()
    pairs = paired.group_by(*_CALL).agg(pairs=pl.len())
    names = (
        events.group_by("region", *_CALL)
        .agg(calls=pl.len())
        .join(of_code, on=["region", "name"], how="left")
        .join(pairs, on=list(_CALL), how="left")
        .with_columns(pl.col("generated", "pairs").fill_null(0).cast(pl.Int64), pl.col("calls").cast(pl.Int64))
    )
    change = pl.max_horizontal("calls", "generated") - pl.col("pairs") - pl.col("generated")
    return int(if_none_is_called or 0) + int(names.select(change.sum()).item() or 0)


_LAYER = ("holder_row", "module")
_MAX_NAMES = 8


def join_code(path: Path, code: CompiledCode, runs: Sequence[RawTrace]) -> list[RawTrace]:
    """The runs with what the code says of their regions; XspError where none has any of its graphs."""
    regions = [regions_of(run.tables["spans"]) for run in runs]
    shared = [not set(each["region"]).isdisjoint(code.graphs) for each in regions]
    if not any(shared):
        raise XspError(
            "the compiled code is of none of the runs given with it: they call no graph that it tells of",
            path=path,
            advice="Give it together with the trace of the same process, recorded by torch.profiler",
        )
    return [_join_run(run, each, code) if fits else run for run, each, fits in zip(runs, regions, shared, strict=True)]


def _join_run(run: RawTrace, regions: pl.DataFrame, code: CompiledCode) -> RawTrace:
    spans = run.tables["spans"]
    matches = match(spans, regions, code)
    parts = _parts(code)
    holders = _holders(regions, code.graphs)
    shares = _shares(matches, parts, holders)
    layers = _layers(shares, regions, code, _next_row(spans))
    layers = _with_calls_of_models(layers, spans, regions)
    attributions = shares.join(layers, on=_LAYER).select(
        "row",
        pl.col("layer_row"),
        (pl.col("weight") / pl.col("weight").sum().over("row")).alias("weight"),
        basis=pl.lit(str(AttributionBasis.COMPILED_CODE)),
    )
    compiled_away = layers.filter(~pl.col("is_called"))
    added = {
        "spans": compiled_away.select(
            pl.col("layer_row").alias("row"),
            "name",
            "start_ns",
            "process_id",
            level=pl.lit(str(Level.LAYER)),
            kind=pl.lit(str(Kind.MODULE)),
            issued_by_row="holder_row",
        ),
        "layers": compiled_away.select(pl.col("layer_row").alias("row"), "layer_type", "path"),
        "attributions": attributions,
        "compiled_kernels": _kernels(matches, code),
    }
    tables = {name: _with(run.tables[name], frame_of(name, rows)) for name, rows in added.items()}
    findings = (
        Finding(LedgerKind.COMPILED_CODE_JOINED, count=matches.paired.height),
        Finding(LedgerKind.COMPILED_CODE_UNMATCHED, count=matches.unpaired, duration_ns=matches.unpaired_ns),
        _incomplete_layers(shares, layers, regions.join(holders, on="region_row"), parts),
    )
    return replace(run, tables={**run.tables, **tables}, findings=(*run.findings, *(f for f in findings if f.count)))


def _next_row(spans: pl.DataFrame) -> int:
    last: int | None = spans.select(pl.col("row").max()).item()
    return 0 if last is None else last + 1


def _with(rows: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
    """Both; large tables have other types of texts than small ones."""
    if rows.is_empty():
        return added
    texts = [name for name, kind in rows.schema.items() if kind != added.schema[name]]
    return pl.concat([rows.with_columns(pl.col(texts).cast(pl.String).cast(pl.Categorical)), added])


def _holders(regions: pl.DataFrame, graphs: Mapping[str, Graph]) -> pl.DataFrame:
    """Whose layers the work of a region is of: its own, or those of the forward call that it is the backward of.

    Autograd goes backwards: the last forward call that waits for it is the one.
    """
    waiting: dict[tuple[int, str], list[int]] = defaultdict(list)
    holders = []
    for row, region, process in regions.select("region_row", "region", "process_id").iter_rows():
        graph = graphs.get(region)
        calls = waiting[process, graph.pair] if graph and graph.pair is not None else []
        if graph and not graph.is_backward:
            calls.append(row)
        holders.append(calls.pop() if graph and graph.is_backward and calls else row)
    return pl.DataFrame(
        {"region_row": regions["region_row"], "holder_row": holders}, schema_overrides={"holder_row": pl.Int64}
    )


def _parts(code: CompiledCode) -> pl.DataFrame:
    """What the code has of layers: region, kernel, module, weight."""
    rows = [
        (graph.region, index, module, weight)
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
        for module, weight in kernel.modules
    ]
    schema = {"region": pl.String, "kernel": pl.Int64, "module": pl.Int64, "weight": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _shares(matches: Matches, parts: pl.DataFrame, holders: pl.DataFrame) -> pl.DataFrame:
    """A row a call and layer: row, start_ns, holder_row, module, weight."""
    return matches.paired.join(parts, on=["region", "kernel"]).join(holders, on="region_row")


def _incomplete_layers(
    shares: pl.DataFrame, layers: pl.DataFrame, regions: pl.DataFrame, parts: pl.DataFrame
) -> Finding:
    """Names the layers that have some of their kernels in a call and not the others, and so seem faster there."""
    generated = parts.group_by("region", "module").agg(generated=pl.len())
    needed = layers.select(*_LAYER).join(regions.select("holder_row", "region"), on="holder_row")
    needed = needed.join(generated, on=["region", "module"]).group_by(*_LAYER).agg(pl.col("generated").sum())
    paired = shares.group_by(*_LAYER).agg(paired=pl.len())
    less = paired.join(needed, on=_LAYER).filter(pl.col("paired") < pl.col("generated"))
    names = layers.join(less, on=_LAYER, how="semi", maintain_order="left")["name"]
    kind = LedgerKind.COMPILED_LAYERS_INCOMPLETE
    distinct = names.unique(maintain_order=True).to_list()
    listed = ", ".join(distinct[:_MAX_NAMES]) + (" and others" if len(distinct) > _MAX_NAMES else "")
    return Finding(kind, detail=f"{kind.sentence}: {listed}", count=len(names))


def _layers(shares: pl.DataFrame, regions: pl.DataFrame, code: CompiledCode, first_row: int) -> pl.DataFrame:
    """A row a layer of a region's call: holder_row, module, layer_row, name, layer_type, path, start_ns, process_id."""
    modules = pl.DataFrame(
        {
            "module": range(len(code.modules)),
            "name": [each.name for each in code.modules],
            "layer_type": [each.layer_type for each in code.modules],
            "path": [each.path for each in code.modules],
        },
        schema={"module": pl.Int64, "name": pl.String, "layer_type": pl.String, "path": pl.String},
    )
    processes = regions.select(pl.col("region_row").alias("holder_row"), "process_id")
    calls = shares.group_by(_LAYER).agg(pl.col("start_ns").min()).sort("start_ns", *_LAYER)
    return (
        calls.join(modules, on="module", maintain_order="left")
        .join(processes, on="holder_row", maintain_order="left")
        .with_columns(layer_row=pl.int_range(pl.len(), dtype=pl.Int64) + first_row)
    )


def _with_calls_of_models(layers: pl.DataFrame, spans: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """The same with `is_called`: the model itself is called around its compiled code, and that call is the layer's."""
    models = layers.filter(~pl.col("path").str.contains(".", literal=True))["name"].unique()
    name = pl.col("name").cast(pl.String)
    calls = spans.filter(pl.col("kind") == str(Kind.MODULE), name.is_in(models.implode()), pl.col("duration_ns") >= 0)
    around = regions.select(pl.col("region_row").alias("holder_row"), *WHERE, "start_ns", "end_ns").join_asof(
        calls.select(
            *WHERE,
            name,
            "start_ns",
            pl.col("row").alias("call_row"),
            call_end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        ).sort("start_ns"),
        on="start_ns",
        by=list(WHERE),
        check_sortedness=False,
    )
    holding = around.filter(pl.col("end_ns") <= pl.col("call_end_ns")).select("holder_row", "name", "call_row")
    joined = layers.join(holding, on=["holder_row", "name"], how="left", maintain_order="left")
    is_model = ~pl.col("path").str.contains(".", literal=True) & pl.col("call_row").is_not_null()
    return joined.with_columns(
        is_model.alias("is_called"), pl.when(is_model).then("call_row").otherwise("layer_row").alias("layer_row")
    ).drop("call_row")


def _kernels(matches: Matches, code: CompiledCode) -> pl.DataFrame:
    """The raw table `compiled_kernels`."""
    rows = [
        (
            graph.region,
            index,
            kernel.name,
            "backward" if graph.is_backward else "forward",
            *map(_comma_separated, (kernel.operators, kernel.sources)),
        )
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
    ]
    texts = ("kernel_name", "direction", "operators", "sources")
    schema = {"region": pl.String, "kernel": pl.Int64, **dict.fromkeys(texts, pl.String)}
    return matches.paired.join(pl.DataFrame(rows, schema=schema, orient="row"), on=["region", "kernel"])


def _comma_separated(texts: Sequence[str]) -> str | None:
    return ", ".join(texts) or None
