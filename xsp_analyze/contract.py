"""What every answer keeps: the columns and types that are declared, keys that are unique, and null for unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from xsp_analyze.core import Analysis, Column

__all__ = ["ContractError", "check"]


class ContractError(AssertionError):
    """An analysis answered otherwise than it declares: a bug of ours, whatever the trace."""


def check(analysis: Analysis, table: pl.DataFrame, *, averaged: bool) -> None:
    """ContractError where the table, which has declared columns alone, is not what the analysis declares."""
    missing = [c.name for c in analysis.columns if not c.optional and c.name not in table.columns]
    if missing:
        raise ContractError(f"{analysis.id} answers without {', '.join(missing)}")
    present = [c for c in analysis.columns if c.name in table.columns]
    for column in present:
        _check_values(analysis, column, table[column.name], averaged=averaged)
    _check_keys(analysis, present, table)


def _check_values(analysis: Analysis, column: Column, values: pl.Series, *, averaged: bool) -> None:
    if not column.admits(values.dtype, averaged=averaged):
        declared = column.type_of(averaged=averaged)
        raise ContractError(f"{analysis.id}.{column.name} is {values.dtype}, declared is {declared}")
    if values.dtype.is_float() and values.is_nan().any():
        raise ContractError(f"{analysis.id}.{column.name} holds NaN; what is unknown is null")


def _check_keys(analysis: Analysis, present: Sequence[Column], table: pl.DataFrame) -> None:
    names = analysis.key_of(present)
    if names and table.select(names).is_duplicated().any():
        raise ContractError(f"{analysis.id} has several rows of one {', '.join(names)}")
