"""Takes the layers of a linked trace from another source, without its raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link import layers
from xsp_ingest.link.correlate import replayed_work
from xsp_ingest.link.forest import Forest, is_backward
from xsp_ingest.link.layers import choose_source, lay
from xsp_ingest.link.spans import category_indices, span_kinds
from xsp_ingest.staging.raw import frame_of
from xsp_model import Attribution, AttributionBasis, Finding, LedgerKind, Trace, TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Ints

__all__ = ["relayer"]


def relayer(trace: Trace, layer_source: str) -> Trace:
    """The same spans with layers of another source; XspError where the trace has none of it.

    What a file itself said of layers' memory is unknown afterwards; what allocations tell is worked out again.
    """
    forest = _forest(trace)
    source = choose_source(forest, layer_source)
    layering = lay(forest, source)
    table = layers.with_recorded(
        layers.calls(forest, layering), trace.frame("spans").select(row="span_id"), _known_layers(trace)
    )
    calls = layers.with_index([table], source)[0]
    builder = TraceBuilder()
    for name in TABLES:
        if name not in {"runs", "spans", "layers", "attributions"}:
            builder.add(name, trace.frame(name))
    builder.add("runs", trace.frame("runs").with_columns(layer_source=pl.lit(str(source))))
    layer, attribution = pl.Series(layering.layer), layering.attributions()
    kept = (attribution.is_null() | (attribution == "layer")) & (layer >= 0)
    builder.add(
        "spans",
        trace.frame("spans").with_columns(
            pl.when(kept).then(layer).alias("layer_id"),
            layering.phases(),
            attribution,
        ),
    )
    builder.add("attributions", _attributions(trace, forest, layer, calls["at"]))
    builder.add("layers", calls.rename({"at": "span_id"}))
    detail = f"layers were taken again from source {source}; memory by layer is that of allocations alone"
    builder.note([Finding(LedgerKind.LAYERS_TAKEN_AGAIN, detail)])
    return builder.build()


def _attributions(trace: Trace, forest: Forest, layer: pl.Series, layers: pl.Series) -> pl.DataFrame:
    """Of replayed work the layers that its capture has now; of other work those of before that are layers still."""
    before = trace.frame("attributions")
    bases = before.select("span_id", "basis").unique("span_id", keep="first", maintain_order=True)
    captured = np.flatnonzero(forest.captured_in >= 0)
    replayed = pl.DataFrame({"span_id": captured, "layer_id": layer.gather(captured)}).filter(pl.col("layer_id") >= 0)
    basis = pl.coalesce(pl.col("basis").cast(pl.String), pl.lit(str(AttributionBasis.GRAPH_NODE)))
    again = replayed.join(bases, on="span_id", how="left", maintain_order="left").with_columns(
        pl.lit(1.0).alias("weight"), basis.alias("basis")
    )
    kept = before.with_columns(pl.col("basis").cast(pl.String)).filter(
        ~pl.col("span_id").is_in(pl.Series(captured).implode()), pl.col("layer_id").is_in(layers.implode())
    )
    share = pl.col("weight") / pl.col("weight").sum().over("span_id")
    columns = (pl.col("span_id", "layer_id").cast(pl.Int64), "weight", "basis")
    return pl.concat([again.select(columns), kept.with_columns(share).select(columns)])


def _known_layers(trace: Trace) -> pl.DataFrame:
    """What is known of layers already: a file may have stated it, and then it cannot be worked out again."""
    layers = trace.frame("layers").select(
        pl.col("span_id").alias("row"),
        pl.col("layer_index").alias("sequence_index"),
        pl.col("layer_type").cast(pl.String),
        "shapes",
        "dtypes",
    )
    return frame_of("layers", layers)


def _forest(trace: Trace) -> Forest:
    spans = trace.frame("spans")
    operators = trace.frame("operators").with_columns(
        at=pl.col("span_id"),
        forward_thread_id=pl.when(pl.col("forward_id").is_not_null()).then(1),
    )
    kernels = trace.frame("kernels").rename({"span_id": "at"})
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    kinds = span_kinds(spans)
    return Forest(
        spans=spans,
        kinds=kinds,
        operators=operators,
        parent=parent,
        ambiguous=spans["ambiguous"].fill_null(value=False).to_numpy(),
        backward=is_backward(spans, kinds, operators),
        twin=_scatter(spans.height, operators.select("at", "forward_id")),
        captured_in=_scatter(spans.height, kernels.select("at", "captured_in_id")),
        replayed=replayed_work(spans, kinds, kernels, parent),
        orphans=category_indices(spans["attribution"], [str(x) for x in Attribution]),
        allocations=trace.frame("allocations").select(
            pl.col("owner_id").fill_null(-1).alias("owner"), "bytes", "device_id"
        ),
    )


def _scatter(height: int, pairs: pl.DataFrame) -> Ints:
    """A column over all spans from (span, value) pairs; -1 elsewhere."""
    parented = pairs.drop_nulls()
    out = np.full(height, -1, dtype=np.int64)
    out[parented[:, 0].to_numpy()] = parented[:, 1].to_numpy()
    return out
