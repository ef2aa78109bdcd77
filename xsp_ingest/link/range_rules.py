"""Which level a named range stands for: a step of the model, a layer, a library's call, or none of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FRAMEWORK_RANGES", "level_of_range", "one_of"]

FRAMEWORK_RANGES = (
    r"^Optimizer\.",
    r"^enumerate\(DataLoader\)",
    r"^PyTorch Profiler",
    r"^DistributedDataParallel\.",
    r"^\[pl\]",
)
"""What PyTorch and Lightning annotate by themselves: no layers, whichever profiler recorded them."""


def one_of(patterns: Sequence[str]) -> str:
    """One regex that matches where any of the patterns does; nothing matches no pattern."""
    return "|".join(f"(?:{p})" for p in patterns) if patterns else r"[^\s\S]"


def level_of_range(
    text: pl.Expr,
    *,
    is_library: pl.Expr,
    model_ranges: Sequence[str],
    layer_ranges: Sequence[str],
    other_ranges: Sequence[str] = (),
) -> pl.Expr:
    """The level of each range as text: library first, then model, then layer; `layer_ranges` empty takes any name.

    Ranges that match `other_ranges`, or that the user's layer patterns leave over, are of the level application.
    """
    is_layer = text.str.contains(one_of(layer_ranges)) if layer_ranges else ~text.str.contains(one_of(other_ranges))
    return (
        pl.when(is_library)
        .then(pl.lit(str(Level.LIBRARY)))
        .when(text.str.contains(one_of(model_ranges)))
        .then(pl.lit(str(Level.MODEL)))
        .when(is_layer)
        .then(pl.lit(str(Level.LAYER)))
        .otherwise(pl.lit(str(Level.APPLICATION)))
    )
