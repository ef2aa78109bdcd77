"""Parts of a report: rows of some kinds alone (see `xsp_ingest.convert`), or those rows that a selection can need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.activities import NAMES, graph_traces, memcpy, memset, repeated_rows
from xsp_ingest.formats.nsys.tables.host import MESSAGES, closed_duration, directive_tables
from xsp_ingest.formats.nsys.tables.interface import process_of, thread_of
from xsp_ingest.formats.nsys.tables.nvtx import range_facts, range_records
from xsp_ingest.formats.nsys.tables.read import session_ns
from xsp_ingest.staging.cuda_names import RANGE_STYLES
from xsp_ingest.staging.selection import Skipped
from xsp_model import Kind, Level
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from xsp_ingest.files.sqlite import Database
    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.staging.selection import Selection

__all__ = ["Pushdown", "pushdown", "read_excerpt"]

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
            details.setdefault(kind, []).append(further.with_columns(_integer_columns(first, further.height)))
            first += rows.height
    all_spans = pl.concat(spans, how="diagonal").with_columns(
        _integer_columns(0, first), pl.lit(0, pl.Int64).alias("run_id")
    )
    return {"spans": all_spans, **{name: pl.concat(parts, how="diagonal") for name, parts in details.items()}}


def _integer_columns(first: int, count: int) -> pl.Series:
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


# Which rows of the large tables a selection can need at all, said in SQL, so that the others are never read.
#
# SQLite still walks over every row, as Nsight's tables have no index by time; what it saves is taking them apart,
# carrying them over into columns, and holding them. What is read is then narrowed as for any other format.

_KIND = "CUPTI_ACTIVITY_KIND_"
_WORK = tuple(f"{_KIND}{which}" for which in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_RUNTIME = f"{_KIND}RUNTIME"
_NVTX = "NVTX_EVENTS"
_OSRT = "OSRT_API"
_SMALL = (f"{_KIND}SYNCHRONIZATION", "CUDNN_EVENTS", "CUBLAS_EVENTS", *MESSAGES)
_PROCESS = "(({} >> 24) & 16777215)"
_DURATION = 'CAST(total(max("end" - start, 0)) AS INTEGER)'
_STYLES = f"eventType IN ({', '.join(map(str, RANGE_STYLES))})"
_SPANS = {_NVTX: _STYLES, _OSRT: "eventClass = 27"}  # which rows of a table are spans
_SANE = f"start BETWEEN {-LATEST_NS} AND {LATEST_NS}"


@dataclass(frozen=True, slots=True)
class Pushdown:
    """Conditions by table, the start of the first span, and what the conditions leave out."""

    conditions: Mapping[str, str]
    zero_ns: int
    skipped: Skipped


def pushdown(file: Database, selection: Selection, *, os_runtime: bool) -> Pushdown:
    """What to ask the file for, by a few sums over its tables."""
    hosts = (_RUNTIME, _NVTX, *([_OSRT] if os_runtime else []))
    spans = {name: text if _has(file, name, text.partition(" ")[0]) else "" for name, text in _SPANS.items()}
    spans = {name: spans.get(name, "") for name in hosts}
    others = (*_SMALL, *directive_tables(file.tables))
    sane = {name: _all(*filter(None, (_SANE, spans.get(name, "")))) for name in (*_WORK, *others, *hosts)}
    zero = min(_values(file, "min(start)", sane), default=0)
    start, end = (None if at is None else zero + at for at in (selection.from_ns, selection.to_ns))
    conditions = {
        name: _all(*_of_work(file, name, selection, start, end)) for name in _WORK if _has(file, name, "start")
    }
    launched = _launch_condition(file, conditions)
    begin = start
    if start is not None and launched and _has(file, _RUNTIME, "start", "correlationId"):
        first = _single(file, "min(start)", _RUNTIME, launched)
        begin = start if first is None else min(start, first)
    for name in hosts:
        if _has(file, name, "start", "end"):
            again = launched if name == _RUNTIME and _has(file, name, "correlationId") else ""
            conditions[name] = _all(*_of_host(file, name, selection, begin, end, again))
    conditions = {name: text for name, text in conditions.items() if text}
    return Pushdown(conditions, zero, _count_skipped(file, conditions, spans))


def _of_work(file: Database, name: str, selection: Selection, start: int | None, end: int | None) -> Iterator[str]:
    yield from _times(start, end)
    columns = file.columns(name)
    if selection.process_ids and "globalPid" in columns:
        yield _among(_PROCESS.format("globalPid"), selection.process_ids)
    if selection.device_ids and "deviceId" in columns:
        yield _among("deviceId", selection.device_ids)


def _times(start: int | None, end: int | None) -> Iterator[str]:
    if start is not None:
        yield f"start >= {start}"
    if end is not None:
        yield f"start < {end}"


def _of_host(
    file: Database, name: str, selection: Selection, start: int | None, end: int | None, again: str
) -> Iterator[str]:
    """`again`: rows that are selected whenever they are."""
    time = [f"start < {end}"] if end is not None else []
    if start is not None:
        time.append(f'("end" >= {start} OR "end" IS NULL OR "end" < start)')
    if time:
        always = " OR ".join(filter(None, (again, f"NOT {_STYLES}" if name == _NVTX and _has_styles(file) else "")))
        yield f"({_all(*time)}{f' OR {always}' if always else ''})"
    if selection.process_ids and "globalTid" in file.columns(name):
        yield _among(_PROCESS.format("globalTid"), selection.process_ids)


def _has_styles(file: Database) -> bool:
    return "eventType" in file.columns(_NVTX)


def _launch_condition(file: Database, conditions: Mapping[str, str]) -> str:
    """A condition on calls that holds for all that launched the selected work (and for others of like numbers)."""
    having = [name for name in conditions if "correlationId" in file.columns(name)]
    among = dict.fromkeys(having, "")
    for name in having:
        among[name] = _all(*filter(None, (conditions[name], "correlationId != 0")))
    ends = ("min(correlationId)", "max(correlationId)")
    bounds = [_integers_of(file, ends, name, where) for name, where in among.items() if _has(file, name, "start")]
    ids = [value for both in bounds for value in both if value is not None]
    return f"correlationId BETWEEN {min(ids)} AND {max(ids)}" if ids else ""


def _count_skipped(file: Database, conditions: Mapping[str, str], spans: Mapping[str, str]) -> Skipped:
    counts = {"work": 0, "host": 0}
    duration = 0
    for name, condition in conditions.items():
        outside = _all(*filter(None, (f"({condition}) IS NOT TRUE", "start IS NOT NULL", spans.get(name, ""))))
        sums = ["count(*)", *([_DURATION] if name in _WORK else [])]  # in one go over the table
        count, *durations = (value or 0 for value in _integers_of(file, sums, name, outside))
        counts["work" if name in _WORK else "host"] += count
        duration += sum(durations)
    return Skipped(counts["work"], duration, counts["host"])


def _values(file: Database, what: str, tables: Mapping[str, str]) -> list[int]:
    values = [_single(file, what, name, where) for name, where in tables.items() if _has(file, name, "start")]
    return [value for value in values if value is not None]


def _single(file: Database, what: str, name: str, where: str) -> int | None:
    return _integers_of(file, (what,), name, where)[0]


def _integers_of(file: Database, what: Sequence[str], name: str, where: str) -> list[int | None]:
    return [value if isinstance(value, int) else None for value in file.aggregate(what, name, where)]


def _has(file: Database, name: str, *columns: str) -> bool:
    return set(columns) <= file.columns(name)


def _all(*conditions: str) -> str:
    return " AND ".join(conditions)


def _among(value: str, ids: Sequence[int]) -> str:
    return f"{value} IN ({', '.join(str(int(each)) for each in ids)})"
