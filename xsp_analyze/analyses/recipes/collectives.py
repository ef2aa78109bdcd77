"""The ranges in which NCCL, or the framework for it, marks its own calls."""

from __future__ import annotations

import polars as pl

from xsp_analyze.analyses.recipes.common import NCCL_DOMAIN

__all__ = ["collective_range"]


def collective_range() -> pl.Expr:
    """Of `closed_ranges`: those of NCCL's domain, which alone nsys looks for, and torch.profiler's annotations."""
    annotated = (pl.col("style") == "Annotation") & pl.col("text").str.starts_with("nccl:")
    return (pl.col("domain") == NCCL_DOMAIN).fill_null(value=False) | annotated
