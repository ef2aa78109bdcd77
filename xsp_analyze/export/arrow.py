"""Arrow IPC streams: a file for each table of the trace, with the declared schema, its units and its sentences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from xsp_analyze.export.target import FolderExporter
from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace
    from xsp_model.schema import ColumnSpec, TableSpec

__all__ = ["ARROW"]


def _files(trace: Trace) -> Iterator[tuple[str, Callable[[Sink], None]]]:
    for name, spec in TABLES.items():
        yield f"{name}.arrows", partial(_write, trace, spec)


def _write(trace: Trace, spec: TableSpec, file: Sink) -> None:
    schema = _schema(spec)
    labels = _labels(trace, spec)
    with pa.ipc.new_stream(pa.PythonFile(file, "w"), schema) as stream:
        for piece in trace.pieces(spec.name, schema.names):
            columns = [_column(piece[each.name], each, labels) for each in spec.columns]
            stream.write_batch(pa.record_batch(columns, schema=schema))


def _schema(spec: TableSpec) -> pa.Schema:
    """The declared schema; what a column says and its unit are metadata, which comparing schemas passes over."""
    fields = [f.with_metadata({"doc": c.doc, "unit": c.unit}) for f, c in zip(spec.schema, spec.columns, strict=True)]
    about = {"xsp.table": spec.name, "xsp.schema_version": str(SCHEMA_VERSION), "doc": spec.doc}
    return pa.schema(fields, metadata=about)


def _labels(trace: Trace, spec: TableSpec) -> Mapping[str, pl.Series]:
    """The texts of each column of words: one dictionary for the whole stream, which not every reader can replace."""
    names = [each.name for each in spec.columns if pa.types.is_dictionary(each.type)]
    rows = trace.scan(spec.name)
    return {
        name: rows.select(pl.col(name).cast(pl.String).unique().sort()).collect()[name].drop_nulls() for name in names
    }


def _column(values: pl.Series, spec: ColumnSpec, labels: Mapping[str, pl.Series]) -> pa.Array:
    if spec.name not in labels:
        return values.to_arrow().cast(spec.type)
    texts = labels[spec.name]
    numbers = values.cast(pl.String).cast(pl.Enum(texts)).to_physical().cast(pl.Int32)
    return pa.DictionaryArray.from_arrays(numbers.to_arrow(), texts.to_arrow().cast(pa.string()))


ARROW = FolderExporter("arrow", "Arrow IPC streams, a file a table, for pyarrow, polars, pandas, DuckDB and R", _files)
"""The format, as the registry lists it."""
