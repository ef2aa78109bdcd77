"""NVTX ranges: every push/pop and start/end range as a span, with the text, domain and number it was recorded under."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.stored_columns import Among
from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.payloads import collectives
from xsp_ingest.formats.nsys.tables.rows import ExportRows, label
from xsp_ingest.link.range_rules import NVTX, classify, is_backward, module_ranges, operator_details, plain_name
from xsp_ingest.staging.cuda_enums import RANGE_STYLES
from xsp_model import Finding, LedgerKind, Level

if TYPE_CHECKING:
    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options

__all__ = ["described", "nvtx_ranges", "recorded"]

_TABLE = "NVTX_EVENTS"
_COLUMNS = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId")
_MARK = 34
_DOMAIN_CREATE = 75
_BACKWARD_THREAD = 1  # emit_nvtx does not say which thread ran the forward pass, only that there was one


def nvtx_ranges(database: Tables, options: Options) -> ExportRows:
    """All ranges of the file, nothing where it has none."""
    ranges, findings = recorded(database)
    messages, unreadable = collectives(database, ranges)
    ranges = ranges.with_columns(plain_name(pl.col("text").fill_null("")).alias("name")).with_columns(
        (pl.col("name") != pl.col("text").fill_null("")).alias("numbered"), pl.col("start").alias("start_ns")
    )
    ranges, layers, unread = module_ranges(ranges)
    ranges = ranges.hstack(classify(ranges, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges))
    tables = {"spans": _spans(ranges), "ranges": described(ranges), "operators": _operators(ranges)}
    tables |= {"collectives": messages, "layers": layers}
    return ExportRows(tables, (*findings, *unreadable, *unread, *_marks(database)))


def recorded(database: Tables) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The rows of ranges in the columns of the file, with row, text, domain, range_id, process_id, thread_id."""
    which = Among("eventType", tuple(RANGE_STYLES)) if "eventType" in database.columns(_TABLE) else None
    rows = database.integers(_TABLE, _COLUMNS, where=which)
    findings = (*host_findings(rows, _TABLE), _unclosed(rows))
    rows = rows.with_columns(_texts(database, rows, which)).filter(pl.col("start").is_not_null())
    rows = rows.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
    )
    rows = _with_domains(database, rows)
    return rows.with_columns(pl.col("rowid").alias("range_id")), tuple(f for f in findings if f.count)


def _texts(database: Tables, rows: pl.DataFrame, which: Among | None) -> pl.Series:
    """The text of each range: the registered string, else the one in place, else null."""
    if rows.is_empty():
        return pl.Series("text", [], dtype=pl.String)
    own = database.texts(_TABLE, "text", where=which)
    if rows["textId"].null_count() == rows.height:
        return own.alias("text")
    registered = database.strings.of(rows["textId"]).cast(pl.String)
    return pl.select(pl.coalesce(registered, own).alias("text")).to_series()


def _with_domains(database: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `domain`; a domain's number holds within its process."""
    which = Among("eventType", (_DOMAIN_CREATE,))
    has_types = "eventType" in database.columns(_TABLE)
    made = database.integers(_TABLE, ("start", "domainId", "globalTid", "textId"), where=which) if has_types else None
    if made is None or made.is_empty():
        return rows.with_columns(pl.lit(None, dtype=pl.String).alias("domain"))
    named = made.with_columns(_texts(database, made, which)).sort("start", "text", nulls_last=True)
    names = named.select(
        process_of(pl.col("globalTid")).alias("process_id"), "domainId", pl.col("text").alias("domain")
    ).unique(["process_id", "domainId"], keep="first")
    return rows.join(names, on=["process_id", "domainId"], how="left", maintain_order="left")


def _spans(ranges: pl.DataFrame) -> pl.DataFrame:
    return ranges.select(
        "row",
        "level",
        "kind",
        pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed range]")).alias("name"),
        pl.col("start").alias("start_ns"),
        closed_duration(),
        "process_id",
        "thread_id",
    )


def described(rows: pl.DataFrame) -> pl.DataFrame:
    """What `ranges` says of the rows of `recorded`."""
    return rows.select(
        "row",
        "range_id",
        "text",
        "domain",
        label(pl.col("eventType"), RANGE_STYLES).alias("style"),
        thread_of(pl.col("endGlobalTid")).alias("end_thread_id"),
    )


def _operators(ranges: pl.DataFrame) -> pl.DataFrame:
    operators = ranges.filter(pl.col("level").cast(pl.String) == Level.OPERATOR)
    backward = pl.when(is_backward(pl.col("name"))).then(pl.lit(_BACKWARD_THREAD))
    return operators.select("row", *operator_details(pl.col("text")), backward.alias("forward_thread_id"))


def _marks(database: Tables) -> tuple[Finding, ...]:
    if "eventType" not in database.columns(_TABLE):
        return ()
    count = database.count(_TABLE, Among("eventType", (_MARK,)))
    what = "NVTX marks, which have no duration, are not spans"
    return (Finding(LedgerKind.NVTX_MARKS_SKIPPED, what, count),) if count else ()


def _unclosed(rows: pl.DataFrame) -> Finding:
    return Finding(LedgerKind.UNCLOSED_RANGE, count=rows["end"].null_count())
