"""Which rows of the large tables a selection can need at all, said in SQL, so that the others are never read.

SQLite still walks over every row, as Nsight's tables have no index by time; what it saves is taking them apart,
carrying them over into columns, and holding them. What is read is then narrowed as for any other format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.formats.nsys.tables.directives import directive_tables
from xsp_ingest.formats.nsys.tables.messages import TABLES as MESSAGES
from xsp_ingest.staging.cuda_enums import RANGE_STYLES
from xsp_ingest.staging.selection import Skipped
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.files.sqlite import Database
    from xsp_ingest.staging.selection import Selection

__all__ = ["Pushdown", "pushdown"]

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
    launched = _launched(file, conditions)
    begin = start
    if start is not None and launched and _has(file, _RUNTIME, "start", "correlationId"):
        first = _single(file, "min(start)", _RUNTIME, launched)
        begin = start if first is None else min(start, first)
    for name in hosts:
        if _has(file, name, "start", "end"):
            again = launched if name == _RUNTIME and _has(file, name, "correlationId") else ""
            conditions[name] = _all(*_of_host(file, name, selection, begin, end, again))
    conditions = {name: text for name, text in conditions.items() if text}
    return Pushdown(conditions, zero, _skipped(file, conditions, spans))


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
        always = " OR ".join(filter(None, (again, f"NOT {_STYLES}" if name == _NVTX and _styled(file) else "")))
        yield f"({_all(*time)}{f' OR {always}' if always else ''})"
    if selection.process_ids and "globalTid" in file.columns(name):
        yield _among(_PROCESS.format("globalTid"), selection.process_ids)


def _styled(file: Database) -> bool:
    return "eventType" in file.columns(_NVTX)


def _launched(file: Database, conditions: Mapping[str, str]) -> str:
    """A condition on calls that holds for all that launched the selected work (and for others of like numbers)."""
    having = [name for name in conditions if "correlationId" in file.columns(name)]
    among = dict.fromkeys(having, "")
    for name in having:
        among[name] = _all(*filter(None, (conditions[name], "correlationId != 0")))
    ends = ("min(correlationId)", "max(correlationId)")
    bounds = [_numbers(file, ends, name, where) for name, where in among.items() if _has(file, name, "start")]
    ids = [value for both in bounds for value in both if value is not None]
    return f"correlationId BETWEEN {min(ids)} AND {max(ids)}" if ids else ""


def _skipped(file: Database, conditions: Mapping[str, str], spans: Mapping[str, str]) -> Skipped:
    counts = {"work": 0, "host": 0}
    duration = 0
    for name, condition in conditions.items():
        outside = _all(*filter(None, (f"({condition}) IS NOT TRUE", "start IS NOT NULL", spans.get(name, ""))))
        sums = ["count(*)", *([_DURATION] if name in _WORK else [])]  # in one go over the table
        count, *durations = (value or 0 for value in _numbers(file, sums, name, outside))
        counts["work" if name in _WORK else "host"] += count
        duration += sum(durations)
    return Skipped(counts["work"], duration, counts["host"])


def _values(file: Database, what: str, tables: Mapping[str, str]) -> list[int]:
    values = [_single(file, what, name, where) for name, where in tables.items() if _has(file, name, "start")]
    return [value for value in values if value is not None]


def _single(file: Database, what: str, name: str, where: str) -> int | None:
    return _numbers(file, (what,), name, where)[0]


def _numbers(file: Database, what: Sequence[str], name: str, where: str) -> list[int | None]:
    return [value if isinstance(value, int) else None for value in file.aggregate(what, name, where)]


def _has(file: Database, name: str, *columns: str) -> bool:
    return set(columns) <= file.columns(name)


def _all(*conditions: str) -> str:
    return " AND ".join(conditions)


def _among(value: str, ids: Sequence[int]) -> str:
    return f"{value} IN ({', '.join(str(int(each)) for each in ids)})"
