"""Gives the layers of one run the identity they have in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.merge.alignment import align
from xsp_analyze.merge.matched import Matched

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["layer_sequence", "match_layers", "with_identities"]

_INSTANCE = r"_\d+$"
_IDENTITY = ("layer_index", "layer_name", "layer_type")


def layer_sequence(trace: Trace) -> pl.DataFrame:
    """One row a layer with own work, in order: layer_index, layer_name, layer_type, kind, shapes (of its first call).

    `kind` is the type as runs are compared by: that of the range `Linear_3` is `Linear`, as the module's of this name.
    """
    return (
        trace.scan("layers")
        .filter(pl.col("layer_index").is_not_null())
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .group_by(_IDENTITY)
        .agg(pl.col("shapes").drop_nulls().first())
        .with_columns(pl.col("layer_type").str.replace(_INSTANCE, "").alias("kind"))
        .sort("layer_index")
        .collect()
    )


def match_layers(reference: Trace, other: Trace) -> tuple[Matched, pl.DataFrame]:
    """How well the layers match by name, type and shapes, and the new identity of each of the other's layers.

    The frame has layer_index and new_index, new_name, new_type; a layer without a counterpart comes after all others
    under its own name. Shapes count only where both runs recorded them.
    """
    ours, theirs = layer_sequence(reference), layer_sequence(other)
    with_shapes = ours["shapes"].is_not_null().any() and theirs["shapes"].is_not_null().any()
    columns = ["layer_name", "kind", *(["shapes"] if with_shapes else [])]
    alignment = align(ours.select(columns).rows(), theirs.select(columns).rows())
    labels = [
        [f"{name} ({kind})" for name, kind in t.select("layer_name", "layer_type").rows()] for t in (ours, theirs)
    ]
    partner = {j: i for i, j in alignment.pairs}
    beyond = int(ours["layer_index"].max() or 0) + 1 if ours.height else 0  # type: ignore[arg-type]
    rows = []
    for j, (index, name, kind) in enumerate(theirs.select(_IDENTITY).iter_rows()):
        identity = ours.row(partner[j])[:3] if j in partner else (beyond + j, name, kind)
        rows.append((index, *identity))
    mapping = pl.DataFrame(
        rows,
        schema={
            "layer_index": pl.Int64,
            "new_index": pl.Int64,
            "new_name": pl.Categorical,
            "new_type": pl.Categorical,
        },
        orient="row",
    )
    return Matched("layers", alignment, labels[0], labels[1]), mapping


def with_identities(layers: pl.DataFrame, mapping: pl.DataFrame) -> pl.DataFrame:
    """The table `layers` with the identities of the mapping; calls without own work keep theirs."""
    new = pl.col("new_index").is_not_null()
    return (
        layers.join(mapping, on="layer_index", how="left", maintain_order="left")
        .with_columns(
            pl.col("new_index").alias("layer_index"),
            pl.when(new).then("new_name").otherwise("layer_name").alias("layer_name"),
            pl.when(new).then("new_type").otherwise("layer_type").alias("layer_type"),
        )
        .drop("new_index", "new_name", "new_type")
    )
