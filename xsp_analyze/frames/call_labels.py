"""What people are told about calls of one kind: their tensors, layers and lines in short texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.work_models.call import Tensor, call_of
from xsp_model.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from xsp_analyze.work_models.call import Call
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["case_labels", "place_labels", "tensor_labels"]

_MAX_TENSORS = 6
_MAX_LAYERS = 3


def tensor_labels(kinds: pl.DataFrame) -> pl.DataFrame:
    """The kinds with `shapes` and `dtypes`: `8x128x512, 2048x512` and `bf16` (or one type a tensor); null: unknown."""
    texts = [_texts(*row) for row in kinds.select("input_shapes", "input_dtypes", "kernel_precision").iter_rows()]
    return kinds.hstack(pl.DataFrame(texts, schema={"shapes": pl.String, "dtypes": pl.String}, orient="row"))


def _texts(shapes: str | None, dtypes: str | None, listed: str | None) -> tuple[str | None, str | None]:
    call = call_of("", shapes, dtypes, kernel_precision=listed)
    if call is None:
        return None, None
    parts = _parts(call)
    shown = [shape for shape, _ in parts[:_MAX_TENSORS]]
    more = [f"and {len(parts) - _MAX_TENSORS} more"] if len(parts) > _MAX_TENSORS else []
    types = [kind for _, kind in parts]
    short = types[:1] if len(set(types)) == 1 else [*types[:_MAX_TENSORS], *more]
    return ", ".join([*shown, *more]), ", ".join(short)


def _parts(call: Call) -> list[tuple[str, str]]:
    """Shape and type of each input that is a tensor or a list of them."""
    parts = []
    for each in call.inputs:
        if isinstance(each, Tensor):
            parts.append(("x".join(map(str, each.shape)) or "scalar", each.element_type))
        elif each:
            elements = sum(t.elements for t in each)
            parts.append((f"{len(each)} tensors of {elements} elements", call.kernel_precision or each[0].element_type))
    return parts


def case_labels(cases: pl.DataFrame, group: Ints, count: Ints) -> pl.DataFrame:
    """One row a group of cases, of so many calls each: operator_class, precision, bound (by most time at the roof)."""
    rows = cases.select("operator_class", "precision", "bound", "roof_ns").with_columns(
        pl.Series("group", group), pl.Series("count", count)
    )
    bounds = (
        rows.drop_nulls("bound")
        .group_by("group", "bound")
        .agg((pl.col("roof_ns") * pl.col("count")).sum().alias("time"))
        .sort("group", "time", "bound", descending=[False, True, False])
        .unique("group", keep="first", maintain_order=True)
        .select("group", "bound")
    )
    first = rows.group_by("group", maintain_order=True).agg(pl.col("operator_class", "precision").drop_nulls().first())
    return first.join(bounds, on="group", how="left", maintain_order="left")


def place_labels(trace: Trace, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    """One row a group of calls (span_id): `layers` and `source_lines` that most of them ran in and came from."""
    lines = _text_counts(trace.scan("operators").select("span_id", "source_lines").drop_nulls(), calls, group)
    lines = lines.unique("group", keep="first", maintain_order=True).select("group", "source_lines")
    return _layers(trace, calls, group).join(lines, on="group", how="full", coalesce=True)


def _text_counts(texts: pl.LazyFrame, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    """Each group's texts with how many of its calls have them, most first."""
    rows = texts.collect()
    column = rows.columns[1]
    at = lookup(calls["span_id"].to_numpy(), rows["span_id"].to_numpy())
    inside = np.flatnonzero(at >= 0)
    named = pl.DataFrame({"group": group[at[inside]], column: rows[column].gather(inside)})
    counts = named.group_by("group", column).len().with_columns(pl.col(column).cast(pl.String))
    return counts.sort("group", "len", column, descending=[False, True, False])


def _layers(trace: Trace, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    schema = {"group": pl.Int64, "layers": pl.String}
    layers = trace.scan("layers").select("span_id", "layer_name").collect()
    if layers.is_empty():
        return pl.DataFrame(schema=schema)
    ids = column_at(trace, "layer_id", calls["span_id"]).fill_null(-1).to_numpy()
    names = layers["layer_name"].gather(nullable_index(lookup(layers["span_id"].to_numpy(), ids)))
    named = pl.DataFrame({"group": group, "layer_name": names}).drop_nulls().group_by("group", "layer_name").len()
    ordered = named.with_columns(pl.col("layer_name").cast(pl.String)).sort(
        "group", "len", "layer_name", descending=[False, True, False]
    )
    more = pl.len().cast(pl.Int64) - _MAX_LAYERS
    shown = pl.col("layer_name").head(_MAX_LAYERS).str.join(", ")
    text = pl.when(more > 0).then(pl.format("{} and {} more", shown, more)).otherwise(shown)
    return ordered.group_by("group", maintain_order=True).agg(text.alias("layers")).cast({"group": pl.Int64})
