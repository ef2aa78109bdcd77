"""Which kernels launches are of that do not say it: by what the same operator ran where it was not captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.captured_graphs import UNKNOWN
from xsp_ingest.link.climb import innermost
from xsp_model import Kind, Level
from xsp_model.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.captured_graphs import CapturedGraph, KernelNumbers
    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Ints, Positions

__all__ = ["expected_tokens"]

_KEY = ("operator", "shapes", "nth")
_GENERATED = "triton_"  # Inductor names the operator of a kernel after the kernel


def expected_tokens(
    graphs: Sequence[CapturedGraph], forests: Sequence[Forest], runs: Sequence[int], numbers: KernelNumbers
) -> list[Ints]:
    """The tokens of each graph, with those of unnamed launches where these runs show what the operator launches.

    The n-th launch of a call of an operator, with inputs of these shapes, is of one kernel wherever it was seen.
    """
    seen = pl.concat([_launched_kernels(forests[run], numbers) for run in runs])
    certain = seen.group_by(_KEY).agg(pl.col("token").first(), pl.col("token").n_unique().alias("tokens"))
    unique = certain.filter(pl.col("tokens") == 1).drop("tokens")
    return [_complete_tokens(graph, forests[graph.run], unique, numbers) for graph in graphs]


def _launched_kernels(forest: Forest, numbers: KernelNumbers) -> pl.DataFrame:
    """Kernels that were launched one by one, by operator: the columns of _KEY and the token."""
    at = np.flatnonzero(forest.is_kind(Kind.KERNEL) & ~forest.replayed & (forest.parent >= 0))
    launch = forest.parent[at]
    order = np.argsort(launch, kind="stable")
    tokens = numbers.of(forest.spans["name"].gather(at[order]))
    return _of_operators(forest, launch[order]).with_columns(pl.Series("token", tokens)).drop_nulls("operator")


def _of_operators(forest: Forest, launches: Positions) -> pl.DataFrame:
    """For launches in order: their operator, its shapes, and which of its launches each is."""
    operator = innermost(forest.parent, forest.is_level(Level.OPERATOR))[launches]
    fact = lookup(forest.operators["at"].to_numpy(), operator)
    return pl.DataFrame(
        {
            "at": operator,
            "operator": forest.spans["name"].gather(nullable_index(operator)).cast(pl.String),
            "shapes": forest.operators["input_shapes"].gather(nullable_index(fact)).cast(pl.String).fill_null(""),
        }
    ).select("operator", "shapes", pl.int_range(pl.len()).over("at").alias("nth"))


def _complete_tokens(graph: CapturedGraph, forest: Forest, launched: pl.DataFrame, numbers: KernelNumbers) -> Ints:
    if graph.is_named:
        return graph.tokens
    is_kernel = graph.tokens >= UNKNOWN
    of_operators = _of_operators(forest, graph.launches[is_kernel])
    joined = of_operators.join(launched, on=list(_KEY), how="left", maintain_order="left")
    generated = of_operators["operator"].str.starts_with(_GENERATED).fill_null(value=False)
    own = of_operators.select(pl.when(generated).then("operator")).to_series()
    tokens = np.where(generated.to_numpy(), numbers.of(own), joined["token"].fill_null(UNKNOWN).to_numpy())
    out = graph.tokens.copy()
    out[is_kernel] = np.where(out[is_kernel] == UNKNOWN, tokens, out[is_kernel])
    return out
