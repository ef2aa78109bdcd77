"""Layers of replayed kernels, as PyTorch's annotations of a graph's nodes name them.

`torch.cuda._annotate_cuda_graph_trace` (2.12 and later) writes into the arguments of replayed work what `mark_kernels`
said when its node was captured: a text as `str` or under keys of the program's own, of which `module_fqn` is the path
of a module. A replay calls no layers, so each has a call without a length in the graph launch that replayed it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import characters
from xsp_ingest.staging.raw import frame_of
from xsp_model import AttributionBasis, Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANNOTATED", "annotated_work", "with_layers"]

ANNOTATED = {"row": pl.Int64(), "annotation": pl.Categorical()}
"""Columns of replayed work that is annotated."""

_LAUNCH = ("process_id", "correlation_id")
_ENOUGH = 0.5  # of device time: less does not make annotations the layers of a trace without modules


def annotated_work(work: pl.DataFrame) -> pl.DataFrame:
    """The rows of ANNOTATED: device work that a graph replayed and that is annotated."""
    return work.filter(pl.col("graph_node_id") > 0, pl.col("annotation").is_not_null()).select(list(ANNOTATED))


def with_layers(tables: Mapping[str, pl.DataFrame], noted: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The staging tables `spans`, `layers` and `attributions` that follow from `noted`, of ANNOTATED; none of nothing.

    Annotations are modules where the trace has modules or they hold half of its device time, and ranges otherwise.
    """
    spans = tables["spans"]
    work = _with_launch_and_text(spans, noted)
    if work.is_empty():
        return {}
    calls = _calls(work, spans)
    kind = Kind.MODULE if _are_layers(spans, work) else Kind.RANGE
    layers = calls.select(
        pl.col("layer_row").alias("row"), "process_id", "start_ns",
        duration_ns=pl.lit(0, pl.Int64), name="annotation", level=pl.lit(str(Level.LAYER)), kind=pl.lit(str(kind)),
    )  # fmt: skip
    shares = work.join(calls, on=[*_LAUNCH, "annotation"], how="inner", nulls_equal=True, maintain_order="left").select(
        "row", "layer_row", weight=pl.lit(1.0), basis=pl.lit(str(AttributionBasis.ANNOTATION))
    )
    first = work.group_by("annotation").agg(pl.col("start_ns").min()).sort("start_ns", "annotation")
    positions = first.select("annotation", sequence_index=pl.int_range(pl.len(), dtype=pl.Int64))
    facts = calls.join(positions, on="annotation", how="left", maintain_order="left").select(
        pl.col("layer_row").alias("row"), "sequence_index", layer_type=_layer_type(), path=pl.col("annotation")
    )
    return {
        "spans": _with(spans, frame_of("spans", layers)),
        "layers": frame_of("layers", facts),
        "attributions": frame_of("attributions", shares),
    }


def _with_launch_and_text(spans: pl.DataFrame, noted: pl.DataFrame) -> pl.DataFrame:
    """The annotated work with its launch, times and annotation as text; an empty annotation is none."""
    texts = {text: _text(text) for text in noted["annotation"].cast(pl.String).unique()}
    named = noted.with_columns(pl.col("annotation").cast(pl.String).replace_strict(texts, return_dtype=pl.String))
    columns = spans.select("row", *_LAUNCH, "start_ns", "duration_ns")
    return named.filter(pl.col("annotation") != "").join(columns, on="row", how="inner", maintain_order="left")


def _text(annotation: str) -> str:
    """What stands in JSON: a text, nothing for null, or anything else as JSON writes it."""
    value = json.loads(annotation)
    return "" if value is None else characters(value.strip()) if isinstance(value, str) else annotation


def _calls(work: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """One row a graph launch and annotation, from its start; where the launch is not in the file, its first work's."""
    launches = (
        spans.filter(pl.col("level") == str(Level.RUNTIME), pl.col("kind") == str(Kind.CALL))
        .select(*_LAUNCH, pl.col("start_ns").alias("launched_ns"))
        .drop_nulls()
        .group_by(_LAUNCH)
        .agg(pl.col("launched_ns").min())
    )
    calls = work.group_by(*_LAUNCH, "annotation").agg(pl.col("start_ns").min()).sort("start_ns", "annotation", *_LAUNCH)
    first_row = int(spans["row"].to_numpy().max(initial=0)) + 1
    return (
        calls.join(launches, on=list(_LAUNCH), how="left", maintain_order="left")
        .with_columns(pl.coalesce("launched_ns", "start_ns").alias("start_ns"))
        .with_columns(layer_row=pl.int_range(pl.len(), dtype=pl.Int64) + first_row)
    )


def _are_layers(spans: pl.DataFrame, work: pl.DataFrame) -> bool:
    if (spans["kind"] == str(Kind.MODULE)).any():
        return True
    every = spans.filter(pl.col("level") == str(Level.KERNEL))
    total, part = (float(rows["duration_ns"].fill_null(0).sum()) for rows in (every, work))
    return part >= _ENOUGH * total


def _layer_type() -> pl.Expr:
    """The last part of a path that is no number: `layers.3.mlp` is an `mlp`, `layers.3` one of `layers`."""
    last = pl.col("annotation").str.replace(r"(?:\.\d+)+$", "").str.extract(r"([^.]+)$")
    return pl.coalesce(last, "annotation")


def _with(rows: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
    """Both; large tables have other types of texts than small ones."""
    texts = [name for name, kind in rows.schema.items() if kind != added.schema[name]]
    return pl.concat([rows.with_columns(pl.col(texts).cast(pl.String).cast(pl.Categorical)), added])
