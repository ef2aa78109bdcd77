"""The statistics of events that XSP uses, as columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.values import natural
from xsp_ingest.formats.xplane.sweep import STAT
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.arrays import Ints

__all__ = ["AMOUNTS", "NUMBERS", "READ", "TEXTS", "stat_columns", "text_of"]

NUMBERS = (
    "correlation_id",
    "context_id",
    "program_id",
    "run_id",
    "group_id",
    "step_num",
    "graph_id",
    "graph_node_id",
    "cuda_graph_id",
    "cuda_graph_node_id",
    "bytes_allocated",
    "bytes_reserved",
    "allocation_bytes",
    "addr",
    "data_type",
)
"""Statistics read as integers."""
AMOUNTS = ("flops", "model_flops", "bytes_accessed")
"""Statistics read as numbers with a fraction."""
TEXTS = (
    "kernel_details",
    "memcpy_details",
    "memset_details",
    "hlo_op",
    "hlo_module",
    "tf_op",
    "name",
    "shape",
    "allocator_name",
    "region_type",
    "step_name",
)
"""Statistics read as texts."""
READ = frozenset((*NUMBERS, *AMOUNTS, *TEXTS))
"""All of them."""
_DOUBLE, _TEXT, _BYTES, _REFERENCE = 2, 5, 6, 7
_LAST_WHOLE = 1 << 62


def text_of(raw: bytes) -> str:
    return raw.decode(errors="replace")


def stat_columns(stat: Ints, height: int, names: Mapping[int, str], data: memoryview) -> list[pl.Series]:
    columns = dict(zip(STAT, stat, strict=True))
    result = []
    for key in np.unique(columns["metadata_id"]).tolist():
        here = columns["metadata_id"] == key
        rows = {name: values[here] for name, values in columns.items()}
        name = names[key]
        if name in TEXTS:
            result.append(_text_column(name, rows, height, names, data))
        else:
            result.append(_number_column(name, rows, height, names, data))
    return list({series.name: series for series in result}.values())


def _spread(values: pl.Series, rows: Ints, height: int) -> pl.Series:
    """The values at their rows, null elsewhere; of two for one row the last counts."""
    index = np.full(height, -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    return values.gather(nullable_index(index)).alias(values.name)


def _text_column(
    name: str, rows: Mapping[str, Ints], height: int, names: Mapping[int, str], data: memoryview
) -> pl.Series:
    """Texts that stand in the file once and are referred to, or in every event."""
    referred = rows["field"] == _REFERENCE
    keys, inverse = np.unique(np.where(referred, rows["value"], -1), return_inverse=True)
    texts = pl.Series(name, [names.get(key) for key in keys.tolist()], dtype=pl.String).gather(inverse)
    inline = np.flatnonzero((rows["field"] == _TEXT) | (rows["field"] == _BYTES))
    if len(inline):
        spans = zip(rows["value"][inline].tolist(), rows["end"][inline].tolist(), strict=True)
        texts = texts.scatter(inline, [text_of(bytes(data[at:stop])) for at, stop in spans])
    return _spread(texts.cast(pl.Categorical), rows["event"], height).alias(name)


def _number_column(
    name: str, rows: Mapping[str, Ints], height: int, names: Mapping[int, str], data: memoryview
) -> pl.Series:
    """Whole numbers; also those written as a double, or as the digits of a text (`$$5` is 5)."""
    kind = pl.Float64 if name in AMOUNTS else pl.Int64
    values = pl.Series(name, rows["value"]).cast(kind)
    odd = np.flatnonzero((rows["field"] == _DOUBLE) | (rows["field"] >= _TEXT))
    if len(odd):
        fields, raw, ends = (rows[key][odd].tolist() for key in ("field", "value", "end"))
        mended = [_number(f, v, e, names, data) for f, v, e in zip(fields, raw, ends, strict=True)]
        if kind == pl.Int64:
            mended = [None if v is None else int(v) for v in mended]
        values = values.scatter(odd, pl.Series(mended, dtype=kind))
    return _spread(values, rows["event"], height).alias(name)


def _number(field: int, value: int, end: int, names: Mapping[int, str], data: memoryview) -> float | None:
    if field == _DOUBLE:
        number = float(np.int64(value).view(np.float64))
        return number if math.isfinite(number) and abs(number) < _LAST_WHOLE else None
    text = names.get(value, "") if field == _REFERENCE else text_of(bytes(data[value:end]))
    return natural(text.lstrip("$"))
