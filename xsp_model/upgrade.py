"""Brings bundles of earlier schema versions up to date, one pure function a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Tables = Mapping[str, pa.Table]

__all__ = ["UPGRADES", "upgrade"]


def _with_tables_of_2(tables: Tables) -> Tables:
    """Version 2 says how the layer of replayed and compiled work is known; its earliest bundles lacked collectives."""
    added = ("attributions", "collectives", "compiled_kernels")
    return {**{name: TABLES[name].schema.empty_table() for name in added}, **tables}


def _with_columns_of_3(tables: Tables) -> Tables:
    """Version 3 keeps strides of operators' inputs and the lines that called them; earlier ones did not read them."""
    spec = TABLES["operators"].schema
    operators = tables["operators"]
    columns = [
        operators[field.name].cast(field.type)
        if field.name in operators.column_names
        else pa.nulls(operators.num_rows, field.type)
        for field in spec
    ]
    return {**tables, "operators": pa.table(columns, schema=spec)}


def _with_allocations_of_4(tables: Tables) -> Tables:
    """Version 4 keeps each block of memory that was given out or taken back; earlier ones only what was in use."""
    return {"allocations": TABLES["allocations"].schema.empty_table(), **tables}


def _with_more_of_5(tables: Tables) -> Tables:
    """Version 5 keeps more that earlier ones did not read.

    What calls of MPI say of a message, faults and migrations of unified memory; how good a run's results are, and what
    came out of a step.
    """
    names = ("messages", "page_faults", "accuracies", "tensors", "output_distances")
    added = {name: TABLES[name].schema.empty_table() for name in names}
    copies = tables["copies"]
    if "virtual_address" not in copies.column_names:
        copies = copies.append_column("virtual_address", pa.nulls(copies.num_rows, pa.int64()))
    return {**added, **tables, "copies": copies}


UPGRADES: Mapping[int, Callable[[Tables], Tables]] = {
    1: _with_tables_of_2,
    2: _with_columns_of_3,
    3: _with_allocations_of_4,
    4: _with_more_of_5,
}
"""For each version but the present one, the function that turns its tables into the next version's."""


def upgrade(
    tables: Tables, version: int, steps: Mapping[int, Callable[[Tables], Tables]] = UPGRADES, to: int = SCHEMA_VERSION
) -> Tables:
    """The tables of a bundle of `version` as those of version `to`; KeyError where a step is missing."""
    for number in range(version, to):
        tables = steps[number](tables)
    return tables
