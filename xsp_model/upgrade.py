"""Brings bundles of earlier schema versions up to date, one pure function a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    Tables = Mapping[str, pa.Table]

__all__ = ["UPGRADES", "upgrade"]


def _with_tables_of_2(tables: Tables) -> Tables:
    """Version 2 says how the layer of replayed and compiled work is known; its earliest bundles lacked collectives."""
    added = ("attributions", "collectives", "compiled_kernels")
    return {**{name: TABLES[name].schema.empty_table() for name in added}, **tables}


UPGRADES: Mapping[int, Callable[[Tables], Tables]] = {1: _with_tables_of_2}
"""For each version but the present one, the function that turns its tables into the next version's."""


def upgrade(
    tables: Tables, version: int, steps: Mapping[int, Callable[[Tables], Tables]] = UPGRADES, to: int = SCHEMA_VERSION
) -> Tables:
    """The tables of a bundle of `version` as those of version `to`; KeyError where a step is missing."""
    for number in range(version, to):
        tables = steps[number](tables)
    return tables
