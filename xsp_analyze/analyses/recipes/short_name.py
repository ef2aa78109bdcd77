"""The base name of a kernel: its function without type, namespaces, template arguments and parameters."""

from __future__ import annotations

import polars as pl

__all__ = ["base_name", "short_name"]

_OPEN, _CLOSE = "<([{", ">)]}"


def short_name(column: str) -> pl.Expr:
    """The base names of a column of names."""
    return pl.col(column).map_batches(_base_names, return_dtype=pl.String).alias("name")


def _base_names(names: pl.Series) -> pl.Series:
    kinds = names.unique()
    return names.replace_strict(kinds, [base_name(name) if name else name for name in kinds], return_dtype=pl.String)


def base_name(name: str) -> str:
    """The base name as nsys shortens it: `void at::f<(int)4>(int)` is `f`."""
    plain = _outside_brackets(name)
    return plain.rpartition("::")[2].split(" ")[-1].strip("*&") or name


def _outside_brackets(name: str) -> str:
    """What stands in no bracket, up to the parameters."""
    kept: list[str] = []
    depth = 0
    for position, character in enumerate(name):
        if character in _OPEN:
            if character == "(" and depth == 0 and kept and not name.startswith("(anonymous", position):
                break
            depth += 1
        elif character in _CLOSE and depth:
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip()
