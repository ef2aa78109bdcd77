"""From Nsight's tables to the rows of a trace, and what the file says of the capture as a whole."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import Among
from xsp_ingest.formats.nsys.tables.activities import activities, devices
from xsp_ingest.formats.nsys.tables.counters import counters, sensors
from xsp_ingest.formats.nsys.tables.host import directives, host_calls, messages, mpi_ranks, os_runtime
from xsp_ingest.formats.nsys.tables.interface import (
    META_TABLES,
    ExportRows,
    Joined,
    Noted,
    later_versions,
    process_of,
    tables_not_read,
)
from xsp_ingest.formats.nsys.tables.nvtx import nvtx_ranges
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options

__all__ = ["capture", "complaints", "read_tables", "run_facts", "session_ns"]

# What the file says of the capture as a whole, and what the profiler itself complained about.

_WARNING = 2
_ERROR = 3

# Messages of nsys. Its text is matched, never repeated: it may hold names of files, users and machines.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        r"(?i)buffer.*(dropped|overflow|full)|dropped.*(event|record|buffer)|(event|record).*(lost|dropped)",
        "events were dropped",
        "Capture a shorter window, or raise the profiler's buffer sizes",
    ),
    (
        r"(?i)not all (CUDA|NVTX|\w+) events might have been collected|events might be missing",
        "not all events may have been collected",
        "Let the program end by itself, and call cudaDeviceReset() before it does",
    ),
    (r"(?i)No (NVTX|CUDA) events collected", "no events of a traced interface were collected", ""),
    (r"(?i)No \w[\w ]* events collected", "no events of a traced interface were collected", ""),
    (
        r"(?i)driver version .*not supported",
        "this build of Nsight Systems does not know the CUDA driver",
        "Capture with a newer Nsight Systems",
    ),
    (r"(?i)CUPTI.*(fail|error)|fail.*CUPTI", "CUPTI failed", "Check that no other profiler ran at the same time"),
    (r"(?i)unable to collect .*(sample|backtrace)", "CPU samples could not be collected", ""),
)
_OTHER = ("a warning or error of another kind", "Look at the diagnostics view of Nsight Systems")


def run_facts(database: Tables) -> RunFacts:
    """Profiler, its version, and Unix time at the file's time 0."""
    version = _meta(database).get("EXPORT_PRODUCT_VERSION", "")
    sound = re.fullmatch(r"[\w.+-]{1,40}", version)
    ranks = mpi_ranks(database)
    distinct = set(ranks.values())
    return RunFacts(
        rows_nest=False,
        profiler=f"Nsight Systems {version}" if sound else "Nsight Systems",
        rank=distinct.pop() if len(distinct) == 1 else None,
        ranks=ranks if len(ranks) > 1 else {},
        epoch_ns=_single(database, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        source_bytes=database.total_bytes,
    )


def session_ns(database: Tables) -> int | None:
    """How long the capture lasted, where the file says."""
    return max(database.integers("ANALYSIS_DETAILS", ("duration",))["duration"].drop_nulls(), default=0) or None


def _meta(database: Tables) -> dict[str, str]:
    for table in META_TABLES:
        if {"name", "value"} <= database.columns(table):
            rows = zip(database.texts(table, "name"), database.texts(table, "value"), strict=True)
            # Two names, not the table: it tells of users and hosts too.
            return {name: value or "" for name, value in rows if name and name.startswith("EXPORT_PRODUCT_")}
    return {}


def _single(database: Tables, table: str, column: str) -> int | None:
    values = database.integers(table, (column,))[column].drop_nulls()
    return int(values[0]) if len(values) else None


def complaints(database: Tables) -> Iterator[Finding]:
    """Warnings and errors among the profiler's diagnostics, each kind once with its count."""
    if not {"severity", "text"} <= database.columns("DIAGNOSTIC_EVENT"):
        return
    bad_ones = Among("severity", (_WARNING, _ERROR))
    severities = database.integers("DIAGNOSTIC_EVENT", ("severity",), where=bad_ones)["severity"]
    texts = database.texts("DIAGNOSTIC_EVENT", "text", where=bad_ones)
    counts = Counter((severity, *_meaning(str(text))) for severity, text in zip(severities, texts, strict=True))
    for (severity, meaning, advice), count in sorted(counts.items(), key=str):
        bad = Severity.ERROR if severity == _ERROR else Severity.WARNING
        yield Finding(LedgerKind.PROFILER_DIAGNOSTIC, f"The profiler reported: {meaning}", count, bad, advice=advice)


def _meaning(text: str) -> tuple[str, str]:
    for pattern, meaning, advice in _MESSAGES:
        if re.search(pattern, text, re.DOTALL):
            return meaning, advice
    return _OTHER


# How long the capture was, and where the profiler's own work held the program up: counters that recipes ask for.
_OVERHEADS = ("CUDA profiling data flush overhead", "CUDA profiling stop overhead", "CUDA profiling overhead")
_NS = pl.lit("ns").alias("unit")


def capture(export: Tables, first: int | None, used: pl.DataFrame) -> Iterator[ExportRows]:
    """`capture_duration_ns` once, and `cuda_profiling_overhead_ns` for each stretch and device of its process.

    `first`: when the first span began, null: there is none; `used`: the devices that each process used.
    """
    duration = session_ns(export)
    if first is None:
        return
    if duration is not None:
        # At the first span: the trace's time begins there.
        values = {"time_ns": [first], "value": [float(duration)], "counter": ["capture_duration_ns"]}
        yield ExportRows({"counters": pl.DataFrame(values).with_columns(_NS)})
    yield _overheads(export, used)


def _overheads(export: Tables, used: pl.DataFrame) -> ExportRows:
    rows = export.integers("PROFILER_OVERHEAD", ("start", "end", "globalTid", "nameId"))
    ids = [string_id for name in _OVERHEADS if (string_id := export.strings.id_of(name)) is not None]
    rows = rows.filter(pl.col("nameId").is_in(ids), pl.col("end") >= pl.col("start"))
    rows = rows.with_columns(process_of(pl.col("globalTid")).alias("process_id"))
    # One thread's overhead holds up every device of its process.
    counted = rows.join(used, on="process_id", maintain_order="left_right").select(
        pl.col("start").alias("time_ns"),
        pl.lit("cuda_profiling_overhead_ns").alias("counter"),
        "device_id",
        (pl.col("end") - pl.col("start")).cast(pl.Float64).alias("value"),
        _NS,
    )
    return ExportRows({"counters": counted})


def read_tables(export: Tables, options: Options) -> RawTrace:
    """The export's rows."""
    export = Noted(export, versions=later_versions(export))
    joined = Joined(session_ns(export))
    for part in _parts(export, options):
        joined.add(part)
        del part  # while the next one is read
    for part in capture(export, joined.first_ns, joined.used):
        joined.add(part)
    findings = (*joined.findings(), *complaints(export), *_unreadable_parts(export))
    facts = run_facts(export)
    return RawTrace(joined.tables(), facts, (*findings, *tables_not_read(export)))


def _parts(export: Tables, options: Options) -> Iterator[ExportRows]:
    yield from activities(export)
    yield from host_calls(export)
    yield from messages(export)
    yield from directives(export)
    yield os_runtime(export, options)
    yield nvtx_ranges(export, options)
    yield devices(export)
    yield from counters(export)
    yield sensors(export)


def _unreadable_parts(export: Tables) -> Iterator[Finding]:
    if export.unreadable_texts:
        yield Finding(
            LedgerKind.NOT_UTF8, "Texts that are not UTF-8; their foreign bytes show as U+FFFD", export.unreadable_texts
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in export.tables:
        yield Finding(LedgerKind.NO_KERNEL_TABLE)
