"""`xsp schema`: the tables that SQL and Python see."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from xsp.cli.output import print_text

__all__ = ["schema"]

_WIDEST = 120
_GAP = "  "


class SchemaFormats(StrEnum):
    """How the schema is written."""

    TEXT = "text"
    JSON = "json"


def schema(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="A table, or an analysis by its id; without it all tables.", show_default=False
        ),
    ] = None,
    *,
    output_format: Annotated[SchemaFormats, typer.Option("-f", "--output-format", help="How it is written.")] = (
        SchemaFormats.TEXT
    ),
) -> None:
    """Print tables, columns, types and units, for `xsp query` and Python.

    Examples: `xsp schema`, `xsp schema spans`, `xsp schema A10`.
    """
    from xsp_analyze.sql import describe_tables  # noqa: PLC0415 (--help must not wait for polars)

    tables = describe_tables(table)
    if output_format == SchemaFormats.JSON:
        print_text(json.dumps(tables, ensure_ascii=False, indent=1))
        return
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDEST
    lines = _overview(tables, width) if table is None else _columns(tables[0], width)
    print_text("\n".join(lines))


def _overview(tables: list[dict[str, object]], width: int) -> Iterator[str]:
    yield "Tables of every trace (xsp schema TABLE shows the columns):"
    yield ""
    names = [(str(one["name"]), str(one["doc"])) for one in tables]
    yield from _hanging_lines(names, width)
    yield ""
    yield "Analyses are tables too, by their id: `xsp analyses` lists them, `xsp schema A10` shows the columns."


def _columns(table: dict[str, object], width: int) -> Iterator[str]:
    yield f"{table['name']}: {table['doc']}"
    yield ""
    columns = table["columns"]
    assert isinstance(columns, list)  # noqa: S101 (xsp_analyze.sql makes it)
    heads = [
        _GAP.join((f"{one['name']:<{_widest(columns, 'name')}}", f"{one['type']:<{_widest(columns, 'type')}}",
                   f"{one['unit']:<{_widest(columns, 'unit')}}"))
        for one in columns
    ]  # fmt: skip
    yield from _hanging_lines(list(zip(heads, (str(one["doc"]) for one in columns), strict=True)), width)


def _widest(rows: list[dict[str, str]], key: str) -> int:
    return max(len(row[key]) for row in rows)


def _hanging_lines(pairs: list[tuple[str, str]], width: int) -> Iterator[str]:
    """Words, and beside them what they mean, wrapped to the width."""
    left = max(len(term) for term, _ in pairs) + len(_GAP)
    for term, what in pairs:
        first, *rest = textwrap.wrap(what, max(width - left, 24)) or [""]
        yield f"{term:<{left}}{first}".rstrip()
        yield from (" " * left + line for line in rest)
