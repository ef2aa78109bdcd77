"""How a trace comes to be: rows in any order go in, sorted and validated tables come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from xsp_model import integrity, ledger
from xsp_model.arrays import places
from xsp_model.schema import TABLES
from xsp_model.trace import Trace
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_model.arrays import Ints
    from xsp_model.ledger import Finding
    from xsp_model.schema import TableSpec

__all__ = ["TraceBuilder"]

_REFERENCES = {"spans": ("parent_id", "layer_id"), "operators": ("forward_id",), "kernels": ("captured_in_id",)}
_LEVEL_ENUM = pl.Enum([str(level) for level in LEVELS])


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


_TIES = (
    "rank",
    "longest_first",
    "run_id",
    "process_id",
    "thread_id",
    "device_id",
    "stream_id",
    "correlation_id",
    "name",
)


def _renumber(spans: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The spans in their total order with ids that count them, and the ids that they had, in that order."""
    order = _total_order(spans)
    spans = spans[order]
    old = spans["span_id"].to_numpy()
    return spans.with_columns(pl.int_range(spans.height, eager=True).alias("span_id")), old


def _total_order(spans: pl.DataFrame) -> Ints:
    """By start first, which settles nearly all; only spans that start together are compared column by column."""
    start = spans["start_ns"].to_numpy()
    order = np.argsort(start, kind="stable")
    same = np.diff(start[order]) == 0
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    places = order[tied[: len(order)]]
    keys = spans[places].select(
        pl.Series("place", places),
        "start_ns",
        pl.col("level").cast(pl.String).cast(_LEVEL_ENUM).to_physical().alias("rank"),
        (-pl.col("duration_ns")).alias("longest_first"),
        *_TIES[2:],
        "span_id",
    )
    order[tied[: len(order)]] = keys.sort("start_ns", *_TIES, "span_id", nulls_last=True)["place"].to_numpy()
    return order


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
