"""How a trace comes to be: rows in any order go in, sorted and validated tables come out, large ones piece by piece."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import integrity, ledger
from xsp_model.columns.arrays import folder, lookup, no_room, release
from xsp_model.columns.arrow import conform, to_arrow, write_parquet
from xsp_model.columns.tree import total_order
from xsp_model.limits import limits
from xsp_model.schema import REFERENCES, TABLES
from xsp_model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from xsp_model.columns.arrays import Ints
    from xsp_model.ledger import Finding
    from xsp_model.schema import TableSpec

__all__ = ["Spill", "TraceBuilder"]

# Tables too large to hold: written piece by piece into Parquet files of a temporary folder, checked on the way.


class Spill:
    """A folder of finished tables that is gone when nobody holds it any more, or when the process ends."""

    def __init__(self, spans: int) -> None:
        self._spans = spans
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="xsp-", dir=folder()))
        except OSError as error:
            raise no_room(error) from error
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def write(self, name: str, pieces: Iterable[pl.DataFrame]) -> Path:
        """The file of a table given in its declared order, ids final; ValueError where it breaks the model's rules."""
        spec = TABLES[name]
        path = self._folder / f"{name}.parquet"
        tables = (_to_declared(piece, spec) for piece in pieces)
        try:
            write_parquet(integrity.check_pieces(tables, spec, self._spans), spec, path)
        except OSError as error:
            raise no_room(error) from error
        return path


def _to_declared(piece: pl.DataFrame, spec: TableSpec) -> pa.Table:
    table = to_arrow(conform(piece, spec), spec)
    release()
    return table


class TraceBuilder:
    """Collects rows table by table; span ids may be any unique integers until `build` renumbers them."""

    def __init__(self, spilled_spans: int | None = None) -> None:
        """`spilled_spans`: so many spans will come through `add_pieces`, with ids that count them from 0."""
        self._rows: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
        self._findings: list[Finding] = []
        self._spill = None if spilled_spans is None else Spill(spilled_spans)
        self._written: dict[str, Path] = {}

    def add(self, table: str, rows: pl.DataFrame) -> None:
        """Adds rows; columns that are missing are null, columns the table lacks are an error (ValueError)."""
        _check_columns(table, rows)
        self._rows[table].append(rows)

    def add_pieces(self, table: str, height: int, rows: Callable[[int, int], pl.DataFrame]) -> None:
        """Adds `height` rows, which `rows` gives from one place to another; where tables are spilled the whole table.

        Then rows must come in the table's declared order, are written at once, and rows of no other call join them.
        """
        if self._spill is None:
            self.add(table, rows(0, height))
            return
        step = limits().row_group_rows
        pieces = (rows(first, min(first + step, height)) for first in range(0, max(height, 1), step))
        self._written[table] = self._spill.write(table, (_check_columns(table, piece) for piece in pieces))

    def note(self, findings: Iterable[Finding]) -> None:
        """Adds findings to the ledger."""
        self._findings.extend(findings)

    def build(self) -> Trace:
        """The trace, every table in its declared order; raises ValueError where integrity is broken."""
        self._rows["ledger"].append(ledger.to_frame(self._findings))
        if self._spill is not None:
            return self._spilled_trace()
        frames = {name: _gather(TABLES[name], rows) for name, rows in self._rows.items()}
        self._rows = {name: [] for name in TABLES}
        frames["spans"], numbers = _renumber(frames["spans"])
        for name, columns in REFERENCES.items():
            for column in columns:
                frames[name] = _follow(frames[name], column, numbers)
        for name, spec in TABLES.items():
            if name != "spans" and any(c.name == "span_id" for c in spec.columns):
                frames[name] = _follow(frames[name], "span_id", numbers)
            if name != "spans":
                frames[name] = frames[name].sort(spec.order, nulls_last=True, maintain_order=True)
        trace = Trace({name: to_arrow(frame, TABLES[name]) for name, frame in frames.items()})
        integrity.check(trace)
        return trace

    def _spilled_trace(self) -> Trace:
        parts: dict[str, pa.Table | Path] = dict(self._written)
        for name, spec in TABLES.items():
            if name not in parts:
                rows = _gather(spec, self._rows[name]).sort(spec.order, nulls_last=True, maintain_order=True)
                parts[name] = to_arrow(rows, spec)
        return Trace(parts, kept=self._spill)


def _check_columns(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    unknown = set(rows.columns) - {c.name for c in TABLES[table].columns}
    if unknown:
        message = f"table {table} has no column {', '.join(sorted(unknown))}"
        raise ValueError(message)
    return rows


def _gather(spec: TableSpec, rows: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([conform(part, spec) for part in rows] or [conform(pl.DataFrame(), spec).clear()])


def _renumber(spans: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """The spans in their total order with ids that count them, and the ids that they had, in that order."""
    order = total_order(spans)
    spans = spans if order is None else spans[order]
    old = spans["span_id"].to_numpy()
    return spans.with_columns(pl.int_range(spans.height, eager=True).alias("span_id")), old


def _follow(frame: pl.DataFrame, column: str, old: Ints) -> pl.DataFrame:
    """The frame with the column's old span ids replaced by new ones; ValueError where one is of no span."""
    has_reference = frame[column].is_not_null().to_numpy()
    new = lookup(old, frame[column].fill_null(0).to_numpy())
    lost = int((has_reference & (new < 0)).sum())
    if lost:
        message = f"{column} refers to {lost} spans that are not there"
        raise ValueError(message)
    return frame.with_columns(pl.when(pl.lit(pl.Series(has_reference))).then(pl.lit(pl.Series(new))).alias(column))
