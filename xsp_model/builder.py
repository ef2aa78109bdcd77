"""How a trace comes to be: rows in any order go in, sorted and validated tables come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from xsp_model import integrity, ledger
from xsp_model.arrays import places
from xsp_model.order import total_order
from xsp_model.schema import TABLES
from xsp_model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_model.arrays import Ints
    from xsp_model.ledger import Finding
    from xsp_model.schema import TableSpec

__all__ = ["TraceBuilder"]

_REFERENCES = {"spans": ("parent_id", "layer_id"), "operators": ("forward_id",), "kernels": ("captured_in_id",)}


class TraceBuilder:
    """Collects rows table by table; span ids may be any unique integers until `build` renumbers them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
        self._findings: list[Finding] = []

    def add(self, table: str, rows: pl.DataFrame) -> None:
        """Adds rows; columns that are missing are null, columns the table lacks are an error (ValueError)."""
        spec = TABLES[table]
        unknown = set(rows.columns) - {c.name for c in spec.columns}
        if unknown:
            message = f"table {table} has no column {', '.join(sorted(unknown))}"
            raise ValueError(message)
        self._rows[table].append(rows)

    def note(self, findings: Iterable[Finding]) -> None:
        """Adds findings to the ledger."""
        self._findings.extend(findings)

    def build(self) -> Trace:
        """The trace, every table in its declared order; raises ValueError where integrity is broken."""
        self._rows["ledger"].append(ledger.to_frame(self._findings))
        frames = {name: _gather(TABLES[name], rows) for name, rows in self._rows.items()}
        self._rows = {name: [] for name in TABLES}
        frames["spans"], numbers = _renumber(frames["spans"])
        for name, columns in _REFERENCES.items():
            for column in columns:
                frames[name] = _follow(frames[name], column, numbers)
        for name, spec in TABLES.items():
            if name != "spans" and any(c.name == "span_id" for c in spec.columns):
                frames[name] = _follow(frames[name], "span_id", numbers)
            if name != "spans":
                frames[name] = frames[name].sort(spec.order, nulls_last=True, maintain_order=True)
        trace = Trace({name: _to_arrow(frame, TABLES[name]) for name, frame in frames.items()})
        integrity.check(trace)
        return trace


def _gather(spec: TableSpec, rows: list[pl.DataFrame]) -> pl.DataFrame:
    types = {c.name: _polars_type(c.type) for c in spec.columns}
    parts = [
        part.select(
            (pl.col(name).cast(kind) if name in part.columns else pl.lit(None, dtype=kind).alias(name))
            for name, kind in types.items()
        )
        for part in rows
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=types)


def _polars_type(kind: pa.DataType) -> pl.DataType:
    if pa.types.is_dictionary(kind):
        return pl.Categorical()
    simple: dict[pa.DataType, pl.DataType] = {
        pa.int64(): pl.Int64(),
        pa.float64(): pl.Float64(),
        pa.bool_(): pl.Boolean(),
        pa.string(): pl.String(),
    }
    return simple[kind]


def _renumber(spans: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The spans in their total order with ids that count them, and the ids that they had, in that order."""
    order = total_order(spans)
    spans = spans if order is None else spans[order]
    old = spans["span_id"].to_numpy()
    return spans.with_columns(pl.int_range(spans.height, eager=True).alias("span_id")), old


def _follow(frame: pl.DataFrame, column: str, old: Ints) -> pl.DataFrame:
    """The frame with the column's old span ids replaced by new ones; ValueError where one is of no span."""
    wanted = frame[column].is_not_null().to_numpy()
    found = places(old, frame[column].fill_null(0).to_numpy())
    lost = int((wanted & (found < 0)).sum())
    if lost:
        message = f"{column} refers to {lost} spans that are not there"
        raise ValueError(message)
    return frame.with_columns(pl.when(pl.lit(pl.Series(wanted))).then(pl.lit(pl.Series(found))).alias(column))


def _to_arrow(frame: pl.DataFrame, spec: TableSpec) -> pa.Table:
    return frame.to_arrow().cast(_loose(spec.schema)).cast(spec.schema)


def _loose(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])  # noqa: FBT003 (pyarrow's signature)
