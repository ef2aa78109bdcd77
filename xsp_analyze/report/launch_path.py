"""For each device activity, the layers and operators it was launched under, outermost first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.roles import roles_of
from xsp_model.vocabulary import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints

__all__ = ["LaunchPaths", "climb", "launch_paths"]


@dataclass(frozen=True)
class LaunchPaths:
    """One row an activity; `layers` and `operators` hold codes into `names`, left-aligned, padded with -1."""

    layers: Ints
    operators: Ints
    leaf: Ints  # code into `leaves`
    duration_ns: Ints
    attribution: NDArray[np.str_]
    names: Sequence[str]
    leaves: Sequence[tuple[str, str]]  # name and kind of device work


def launch_paths(trace: Trace) -> LaunchPaths:
    """Layers come from the activity's `layer_id`, so that backward work stands with its forward layer.

    Of a profile, the activities are those of the runs that kernels are taken from.
    Operators are those between the activity and the first layer above it, on whichever thread launched it.
    """
    spans = trace.frame("spans").select(
        "parent_id", "run_id", "level", "kind", "name", "duration_ns", "layer_id", "attribution"
    )
    parent = _numbers(spans["parent_id"])
    name_codes, names = _coded(_names(trace, spans))
    is_layer = _layer_spans(trace, spans.height)
    is_operator = (spans["level"].cast(pl.String) == str(Level.OPERATOR)).to_numpy()
    counts = spans["attribution"].is_not_null() & spans["run_id"].is_in(list(roles_of(trace).kernels))
    work = np.flatnonzero(counts.to_numpy())
    above = climb(_numbers(spans["layer_id"])[work], parent, is_layer, stop=None)
    operators = climb(parent[work], parent, is_operator, stop=is_layer)
    device = spans[work]
    leaf, leaves = _leaves(device)
    return LaunchPaths(
        layers=_codes_at(name_codes, above),
        operators=_codes_at(name_codes, operators),
        leaf=leaf,
        duration_ns=device["duration_ns"].fill_null(0).to_numpy(),
        attribution=device["attribution"].cast(pl.String).to_numpy().astype(np.str_),
        names=names,
        leaves=leaves,
    )


def _numbers(column: pl.Series) -> Ints:
    return column.fill_null(-1).to_numpy()


def _names(trace: Trace, spans: pl.DataFrame) -> pl.Series:
    """The spans' names; of modules the instance's, of ranges and operators that are layers what all calls share."""
    shared = pl.when(pl.col("source").cast(pl.String) == "module").then("layer_name").otherwise("layer_type")
    layers = (
        trace.scan("layers")
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .select("span_id", shared.alias("layer_name"))
        .collect()
    )
    named = spans.select(pl.int_range(pl.len()).alias("span_id"), pl.col("name").cast(pl.String))
    joined = named.join(layers, on="span_id", how="left", maintain_order="left")
    return joined.select(pl.coalesce("layer_name", "name")).to_series()


def _coded(names: pl.Series) -> tuple[Ints, list[str]]:
    distinct = names.unique(maintain_order=True)
    codes = names.rank("dense").cast(pl.Int64) - 1
    return codes.to_numpy(), distinct.sort().to_list()


def _layer_spans(trace: Trace, count: int) -> Bools:
    """Which spans are layers of the source in force in their run."""
    ids = (
        trace.scan("layers")
        .select("span_id", pl.col("source").cast(pl.String))
        .join(trace.scan("spans").select("span_id", "run_id"), on="span_id")
        .join(trace.scan("runs").select("run_id", pl.col("layer_source").alias("source")), on=["run_id", "source"])
        .select("span_id")
        .collect()["span_id"]
    )
    found = np.zeros(count, dtype=bool)
    found[ids.to_numpy()] = True
    return found


def climb(start: Ints, parent: Ints, wanted: Bools, stop: Bools | None) -> Ints:
    """The wanted spans among each start and those above it, outermost first; (rows, most found) padded with -1.

    The climb of a row ends below the first span for which `stop` holds.
    """
    levels: list[Ints] = []
    length = np.zeros(len(start), dtype=np.int64)
    current = start.copy()
    for _ in range(len(parent) + 1):
        alive = current >= 0
        if stop is not None:
            alive &= ~stop[current]
        if not alive.any():
            break
        hit = alive & wanted[current]
        length += hit
        if hit.any():
            levels.append(np.where(hit, current, -1))
        current = np.where(alive, parent[current], -1)
    return _outermost_first(levels, length)


def _outermost_first(levels: Sequence[Ints], length: Ints) -> Ints:
    found = np.full((len(length), int(length.max(initial=0))), -1, dtype=np.int64)
    place = length - 1
    for hits in levels:
        rows = np.flatnonzero(hits >= 0)
        found[rows, place[rows]] = hits[rows]
        place[rows] -= 1
    return found


def _codes_at(codes: Ints, spans: Ints) -> Ints:
    return np.where(spans >= 0, codes[spans], -1) if codes.size else spans


def _leaves(device: pl.DataFrame) -> tuple[Ints, list[tuple[str, str]]]:
    """What ran: one entry a distinct name and kind."""
    pairs = device.select(pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String))
    distinct = pairs.unique().sort("name", "kind").with_row_index("code")
    codes = pairs.join(distinct, on=["name", "kind"], how="left", maintain_order="left")["code"]
    return codes.cast(pl.Int64).to_numpy(), list(distinct.select("name", "kind").iter_rows())
