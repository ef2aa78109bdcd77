"""Moves the identities of a trace's rows, so that those of several traces stay apart in one."""

from __future__ import annotations

import polars as pl

__all__ = ["with_offsets"]

_OF_SPANS = ("span_id", "parent_id", "layer_id", "forward_id", "captured_in_id", "owner_id")


def with_offsets(rows: pl.DataFrame, run: int, span: int) -> pl.DataFrame:
    """The rows with run and span numbers moved up."""
    return rows.with_columns(
        *(pl.col(c) + span for c in _OF_SPANS if c in rows.columns),
        *(pl.col(c) + run for c in ("run_id",) if c in rows.columns),
    )
