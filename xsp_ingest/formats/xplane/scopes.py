"""Calls of a model's layers: operators whose names lie in a layer's scope, one after the other on a thread.

A compiled graph calls no layers, but its operators keep the scopes they were made in: `net/conv1/Conv2D`,
`gradient_tape/net/conv1/Conv2DBackpropFilter`, `jit(step)/transpose(jvp(net))/conv1/dot_general`. Which scopes are
layers is known to whoever ran the model, not to the profile; see `Options.layer_scopes`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.formats.xplane.wide import is_backward, wide
from xsp_ingest.link.nest import nest
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.ingester import LayerScope

__all__ = ["chain_of", "module_rows"]

_THREAD = ("process_id", "thread_id")
_PROGRAM = re.compile(r"\bp?jit\([^()]*\)/?")
_TRANSFORMED = re.compile(r"\b\w+\(([^()]*)\)")  # jvp(net), transpose(net), vmap(net): the scope, transformed


def chain_of(name: str, scopes: Mapping[str, LayerScope]) -> tuple[str, ...]:
    """The scopes of the layers around an operator of this name, the outermost first; empty where there are none.

    The first position in the name where a known scope begins counts, and of those there the longest.
    """
    parts = [part for part in _plain(name).split("/") if part]
    for first in range(len(parts)):
        chain = tuple(
            scope for last in range(first, len(parts)) if (scope := "/".join(parts[first : last + 1])) in scopes
        )
        if chain:
            return chain
    return ()


def _plain(name: str) -> str:
    """The name without what JAX's transformations put around its scopes."""
    while (inner := _TRANSFORMED.sub(r"\1", _PROGRAM.sub("", name))) != name:
        name = inner
    return name


def module_rows(
    operators: pl.DataFrame, ranges: pl.DataFrame, steps: pl.DataFrame, scopes: Mapping[str, LayerScope]
) -> tuple[pl.DataFrame, list[Finding]]:
    """Wide rows of the layers' calls, and how many operators lie in none.

    `operators`, `ranges` and `steps` are wide rows. A call ends where on its thread another layer's operator runs,
    the range around it ends, a step begins, or the backward pass does.
    """
    none = wide(operators.clear(), Level.LAYER, Kind.MODULE)
    if not scopes or operators.is_empty():
        return none, []
    top = _outermost(operators, ranges)
    names = top["name"].unique()
    chains = {name: chain_of(name, scopes) for name in names.to_list()}
    depth = max((len(chain) for chain in chains.values()), default=0)
    placed = _in_steps(top, steps).sort(*_THREAD, "start_ns", "duration_ns")
    calls = [_calls(placed, chains, level) for level in range(depth)]
    loose = top.filter(pl.col("name").is_in([name for name, chain in chains.items() if not chain]))
    frames = [_with_layers(each, scopes) for each in calls]
    rows = wide(pl.concat(frames), Level.LAYER, Kind.MODULE) if frames else none
    return rows, [
        Finding(LedgerKind.OPERATORS_OUTSIDE_LAYERS, count=loose.height, duration_ns=int(loose["duration_ns"].sum()))
    ]


def _outermost(operators: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """The operators that no other one holds, with `held_in`, the number of the range around each (-1: none)."""
    columns = (*_THREAD, "start_ns", "duration_ns", "name")
    both = pl.concat(
        [
            ranges.select(*columns, pl.lit(0, pl.Int64).alias("rank"), pl.lit(value=False).alias("backward")),
            operators.select(*columns, pl.lit(1, pl.Int64).alias("rank"), is_backward().alias("backward")),
        ]
    ).with_columns(pl.col("name").cast(pl.String), pl.col("duration_ns").fill_null(0))
    both = both.sort("start_ns", maintain_order=True)
    thread = both.select(pl.struct(_THREAD).rank("dense").cast(pl.Int32) - 1).to_series().to_numpy()
    start, rank = both["start_ns"].to_numpy(), both["rank"].to_numpy()
    end = start + both["duration_ns"].to_numpy()
    parent = nest(thread, start, end, rank.astype(np.int8), threads=int(thread.max(initial=0)) + 1).parent
    outermost = (rank == 1) & (np.append(rank, 0)[parent] == 0)
    return both.with_columns(pl.Series("held_in", parent)).filter(pl.Series(outermost))


def _in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows with `step`, the number of steps begun by then."""
    starts = steps["start_ns"].sort().to_numpy()
    begun = np.searchsorted(starts, rows["start_ns"].to_numpy(), side="right")
    return rows.with_columns(pl.Series("step", begun, dtype=pl.Int64))


def _calls(rows: pl.DataFrame, chains: Mapping[str, Sequence[str]], depth: int) -> pl.DataFrame:
    """One row around each unbroken series of operators whose layers are the same down to this depth."""
    keys = {name: "\n".join(chain[: depth + 1]) for name, chain in chains.items() if len(chain) > depth}
    key = pl.col("name").replace_strict(keys, default=None, return_dtype=pl.String)
    keyed = rows.with_columns(key=key)
    changed = pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in (*_THREAD, "held_in", "step", "backward", "key")
    )
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    return (
        keyed.with_columns(series=changed.fill_null(value=True).cum_sum())
        .filter(pl.col("key").is_not_null())
        .group_by("series", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in _THREAD),
            (end - pl.col("start_ns").min()).alias("duration_ns"),
            pl.col("start_ns").min(),
            pl.col("key").first().str.split("\n").list.last().alias("scope"),
        )
    )


def _path(scope: str, scopes: Mapping[str, LayerScope]) -> str:
    """The names of the layers from the outermost down to this one, each without what it shares with the one before."""
    names = [scopes[each].name for each in chain_of(f"{scope}/", scopes)]
    return ".".join(name.removeprefix(f"{outer}/") for outer, name in zip(["", *names], names, strict=False))


def _with_layers(calls: pl.DataFrame, scopes: Mapping[str, LayerScope]) -> pl.DataFrame:
    """The calls under their layers' names, with type, path and position among the layers."""
    named = pl.DataFrame(
        [
            (scope, layer.name, layer.type or None, layer.position, _path(scope, scopes))
            for scope, layer in scopes.items()
        ],
        schema={
            "scope": pl.String,
            "name": pl.String,
            "layer_type": pl.String,
            "place": pl.Int64,
            "path": pl.String,
        },
        orient="row",
    )
    return calls.join(named, on="scope", how="left", maintain_order="left").drop("scope")
