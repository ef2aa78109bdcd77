"""Adds to a run what is said of its compiled kernels: layers of their own, and whose work each call is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.compiled_code.events import WHERE, regions_of
from xsp_ingest.formats.compiled_code.match import match
from xsp_ingest.staging.raw import frame_of
from xsp_model import AttributionBasis, Finding, Kind, LedgerKind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.compiled_code.code import CompiledCode, Graph
    from xsp_ingest.formats.compiled_code.match import Matches
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["joined"]

_LAYER = ("holder_row", "module")
_MAX_NAMES = 8


def joined(path: Path, code: CompiledCode, runs: Sequence[RawTrace]) -> list[RawTrace]:
    """The runs with what the code says of their regions; XspError where none has any of its graphs."""
    regions = [regions_of(run.tables["spans"]) for run in runs]
    shared = [not set(each["region"]).isdisjoint(code.graphs) for each in regions]
    if not any(shared):
        raise XspError(
            "the compiled code is of none of the runs given with it: they call no graph that it tells of",
            path=path,
            advice="Give it together with the trace of the same process, recorded by torch.profiler",
        )
    return [_joined(run, each, code) if fits else run for run, each, fits in zip(runs, regions, shared, strict=True)]


def _joined(run: RawTrace, regions: pl.DataFrame, code: CompiledCode) -> RawTrace:
    spans = run.tables["spans"]
    matches = match(spans, regions, code)
    parts = _parts(code)
    holders = _holders(regions, code.graphs)
    shares = _shares(matches, parts, holders)
    layers = _layers(shares, regions, code, _next_row(spans))
    layers = _called(layers, spans, regions)
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
        _incomplete(shares, layers, regions.join(holders, on="region_row"), parts),
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


def _incomplete(shares: pl.DataFrame, layers: pl.DataFrame, regions: pl.DataFrame, parts: pl.DataFrame) -> Finding:
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


def _called(layers: pl.DataFrame, spans: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
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
            *map(_listed, (kernel.operators, kernel.sources)),
        )
        for graph in code.graphs.values()
        for index, kernel in enumerate(graph.kernels)
    ]
    texts = ("kernel_name", "direction", "operators", "sources")
    schema = {"region": pl.String, "kernel": pl.Int64, **dict.fromkeys(texts, pl.String)}
    return matches.paired.join(pl.DataFrame(rows, schema=schema, orient="row"), on=["region", "kernel"])


def _listed(texts: Sequence[str]) -> str | None:
    return ", ".join(texts) or None
