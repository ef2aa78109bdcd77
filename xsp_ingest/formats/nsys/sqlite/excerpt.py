"""Rows of the large tables alone, in the columns that an answer takes of them; see `xsp_ingest.excerpt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.activities import NAMES, graph_traces, memcpy, memset, repeated_rows
from xsp_ingest.formats.nsys.tables.facts import session_ns
from xsp_ingest.formats.nsys.tables.host import closed_duration
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.nvtx import range_facts, range_records
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["read_excerpt"]

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_IDS = {
    "process_id": process_of(pl.col("global")).alias("process_id"),
    "thread_id": thread_of(pl.col("global")).alias("thread_id"),
    "correlation_id": pl.when(pl.col("correlationId") != 0).then("correlationId").alias("correlation_id"),
}
_Rows = tuple[pl.DataFrame, pl.DataFrame]


def read_excerpt(export: Tables, requested: Mapping[str, Collection[str]]) -> dict[str, pl.DataFrame]:
    """Spans of the requested kinds of rows, in these columns and times, and the table of details of each kind."""
    spans: list[pl.DataFrame] = []
    details: dict[str, list[pl.DataFrame]] = {}
    first = 0
    for kind, columns in requested.items():
        for rows, further in _READERS[kind](export, columns):
            spans.append(rows.select("level", "kind", "start_ns", "duration_ns", *columns))
            details.setdefault(kind, []).append(further.with_columns(_numbers(first, further.height)))
            first += rows.height
    all_spans = pl.concat(spans, how="diagonal").with_columns(_numbers(0, first), pl.lit(0, pl.Int64).alias("run_id"))
    return {"spans": all_spans, **{name: pl.concat(parts, how="diagonal") for name, parts in details.items()}}


def _numbers(first: int, count: int) -> pl.Series:
    return pl.int_range(first, first + count, eager=True).alias("span_id")


def _kernels(export: Tables, columns: Collection[str]) -> Iterator[_Rows]:
    """Graphs replayed as a whole are device work as well, though no kernels."""
    rows = _rows_with_start(export, _KERNELS, "globalPid", columns, NAMES[:1] if "name" in columns else ())
    again = repeated_rows(export, _KERNELS, rows)
    rows = rows.filter(~pl.col("rowid").is_in(again)) if again else rows
    if "name" in columns:
        rows = rows.with_columns(_kernel_names(export, rows))
    length = pl.when(pl.col("end") > pl.col("start")).then(pl.col("end") - pl.col("start")).otherwise(0)
    yield _spans(rows, length.alias("duration_ns"), Level.KERNEL, Kind.KERNEL, columns), _nothing(rows.height)
    replays = graph_traces(export).tables["spans"]
    if replays.height:
        yield replays.with_columns(pl.col("level", "kind", "name").cast(pl.Categorical)), _nothing(0)


def _kernel_names(export: Tables, rows: pl.DataFrame) -> pl.Series:
    ids = rows[NAMES[0]]
    if ids.null_count():  # then another spelling may be there
        every = export.integers(_KERNELS, NAMES).filter(pl.col("rowid").is_in(rows["rowid"].implode()))
        ids = every.select(pl.coalesce(NAMES)).to_series()
    return export.strings.of(ids).fill_null("[unnamed kernel]").alias("name")


def _copies(export: Tables, _: Collection[str]) -> Iterator[_Rows]:
    for part in (memcpy(export), memset(export)):
        yield (
            part.tables["spans"].with_columns(pl.col("level", "kind", "name").cast(pl.Categorical)),
            part.tables["copies"].drop("row"),
        )


def _calls(export: Tables, columns: Collection[str]) -> Iterator[_Rows]:
    rows = _rows_with_start(export, _CALLS, "globalTid", columns, ("nameId",) if "name" in columns else ())
    if "name" in columns:
        rows = rows.with_columns(export.strings.of(rows["nameId"]).fill_null("[unnamed call]").alias("name"))
    yield _spans(rows, _host_duration(export), Level.RUNTIME, Kind.CALL, columns), _nothing(rows.height)


def _ranges(export: Tables, columns: Collection[str]) -> Iterator[_Rows]:
    """What a range stands for, which its name says, is left open: each is but a range of the program's."""
    rows, _ = range_records(export)
    spans = rows.with_columns(pl.lit(None, pl.Categorical).alias("name"))
    yield (
        _spans(spans, _host_duration(export), Level.APPLICATION, Kind.RANGE, columns),
        range_facts(rows).drop("row"),
    )


def _rows_with_start(
    export: Tables, table: str, whose: str, columns: Collection[str], further: Collection[str]
) -> pl.DataFrame:
    """The rows that have a start; `global` holds what tells process and thread, where those are requested."""
    ids = [whose] if {"process_id", "thread_id"} & set(columns) else []
    ids += ["correlationId"] if "correlation_id" in columns else []
    rows = export.integers(table, ("start", "end", *ids, *further)).rename({whose: "global"}, strict=False)
    return rows.drop_nulls("start") if rows["start"].null_count() else rows


def _spans(rows: pl.DataFrame, duration: pl.Expr, level: Level, kind: Kind, columns: Collection[str]) -> pl.DataFrame:
    selected = [name if name in rows.columns else _IDS[name] for name in columns]
    return rows.select(
        pl.col("start").alias("start_ns"), duration, *selected, level=_category(level), kind=_category(kind)
    )


def _category(value: str) -> pl.Expr:
    return pl.lit(str(value), pl.Categorical)


def _host_duration(export: Tables) -> pl.Expr:
    """Unknown where it is longer than the whole capture."""
    limit = session_ns(export)
    return (
        closed_duration()
        if limit is None
        else pl.when(closed_duration() <= limit).then(closed_duration()).alias("duration_ns")
    )


def _nothing(height: int) -> pl.DataFrame:
    """Details of so many rows, none of which was requested."""
    return pl.DataFrame({"span_id": pl.int_range(height, eager=True)})


_READERS: Mapping[str, Callable[[Tables, Collection[str]], Iterator[_Rows]]] = {
    "kernels": _kernels,
    "copies": _copies,
    "calls": _calls,
    "ranges": _ranges,
}
