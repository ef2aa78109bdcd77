"""For device activities, the layers and operators that they were launched under, outermost first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance, numbers_in_order
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.pages.report.span_paths import above
from xsp_model.vocabulary import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints

__all__ = ["LaunchPaths", "launch_paths"]


@dataclass(frozen=True)
class LaunchPaths:
    """One row a distinct path; `layers` and `operators` hold codes into `names`, left-aligned, padded with -1.

    Millions of activities go by a few paths: `duration_ns` and `count` are sums over those of one path.
    """

    layers: Ints
    operators: Ints
    leaf: Ints  # code into `leaves`
    duration_ns: Ints
    count: Ints
    attribution: Sequence[str]
    names: Sequence[str]
    leaves: Sequence[tuple[str, str]]  # name and kind of device work


def launch_paths(view: TraceView) -> LaunchPaths:
    """Layers come from the activity's `layer_id`, so that backward work stands with its forward layer.

    Of a profile, the activities are those of the runs that kernels are taken from.
    Operators are those between the activity and the first layer above it, on whichever thread launched it.
    """
    trace = view.trace
    spans = trace.scan("spans")
    work = (
        view.kernel_runs.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select("span_id", "parent_id", "layer_id", "name", "kind", "attribution", pl.col("duration_ns").fill_null(0))
        .collect()
    )
    parent = _numbers(spans.select("parent_id").collect().to_series())
    is_operator = spans.select(pl.col("level") == str(Level.OPERATOR)).collect().to_series().to_numpy()
    is_layer = _layer_spans(trace, len(parent))
    layers = above(_numbers(work["layer_id"]), parent, is_layer)
    origin = origins(trace, work["span_id"])
    launch = np.where(origin != work["span_id"].to_numpy(), origin, _numbers(work["parent_id"]))
    operators = above(launch, parent, is_operator, stop=is_layer)
    name_codes, names = _name_codes(trace, layers.spans, operators.spans)
    layer, of_layers = layers.paths_by_code(name_codes[: len(layers.spans)])
    operator, of_operators = operators.paths_by_code(name_codes[len(layers.spans) :])
    leaf, leaf_rows = numbers_in_order(*group_ids(work.select("name", "kind"), ordered=True))
    which, first = numbers_by_appearance(*group_ids([*map(pl.Series, (layer, operator, leaf)), work["attribution"]]))
    duration, count = np.zeros(len(first), dtype=np.int64), np.bincount(which, minlength=len(first))
    np.add.at(duration, which, work["duration_ns"].to_numpy())
    return LaunchPaths(
        layers=of_layers[layer[first]],
        operators=of_operators[operator[first]],
        leaf=leaf[first],
        duration_ns=duration,
        count=count,
        attribution=work["attribution"][first].cast(pl.String).to_list(),
        names=names,
        leaves=list(work.select(pl.col("name", "kind"))[leaf_rows].cast(pl.String).iter_rows()),
    )


def _numbers(column: pl.Series) -> Ints:
    return column.fill_null(-1).to_numpy()


def _name_codes(trace: Trace, *spans: Ints) -> tuple[Ints, list[str]]:
    """The names of these spans as codes that sort as the names do, and the name of each code.

    Of modules it is the instance's, of ranges and operators that are layers what all calls share.
    """
    ids = pl.DataFrame({"span_id": np.concatenate(spans)})
    shared = pl.when(pl.col("source").cast(pl.String) == "module").then("layer_name").otherwise("layer_type")
    layers = trace.scan("layers").select("span_id", shared.alias("layer_name"))
    named = ids.lazy().join(layers, on="span_id", how="left", maintain_order="left").collect()
    name = named.select(pl.coalesce("layer_name", column_at(trace, "name", ids["span_id"]))).to_series()
    code, first = numbers_in_order(*group_ids([name], ordered=True))
    return code, name[first].cast(pl.String).to_list()


def _layer_spans(trace: Trace, count: int) -> Bools:
    """Which spans are layers of the source in force in their run."""
    layers = trace.scan("layers").select("span_id", "source").collect()
    runs = trace.frame("runs").select("run_id", "layer_source")
    run = column_at(trace, "run_id", layers["span_id"])
    mask = np.zeros(count, dtype=np.bool_)
    for run_id, source in runs.drop_nulls().iter_rows():
        mask[layers["span_id"].filter((run == run_id) & (layers["source"] == source)).to_numpy()] = True
    return mask
