"""What the host did: calls into CUDA, marked ranges, operators of the framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.module_ranges import module_ranges
from xsp_ingest.link.operator_text import is_backward, plain_name
from xsp_ingest.link.range_rules import NVTX, classify
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.cupti.records import Records

__all__ = ["Host", "calls", "markers", "operator_facts", "operators"]

_MARK, _STARTS, _ENDS = 1, 2, 4  # bits of CUpti_ActivityFlag for markers
_LEVELS = {
    "application": (Level.APPLICATION, Kind.RANGE),
    "model": (Level.MODEL, Kind.STEP),
    "layer": (Level.LAYER, Kind.MODULE),
    "operator": (Level.OPERATOR, Kind.OPERATOR),
    "library": (Level.LIBRARY, Kind.CALL),
}

Host = tuple[pl.DataFrame, list[Finding]]
"""Spans, and what was odd about their records."""


def calls(records: Records) -> Host:
    """Runtime and driver calls; one whose name is not given is named by its callback id."""
    parts = []
    findings: list[Finding] = []
    for kind in ("RUNTIME", "DRIVER"):
        rows, odd = with_times(records.of(kind), f"{kind.lower()} calls", device=False, zeros_unknown=True)
        findings += odd
        unnamed = pl.format("[" + kind.lower() + " call {}]", pl.col("cbid").cast(pl.String).fill_null("?"))
        spans = rows.select(
            "row",
            pl.lit(str(Level.RUNTIME)).alias("level"),
            pl.lit(str(Kind.CALL)).alias("kind"),
            pl.coalesce("name", unnamed).alias("name"),
            *_common(records),
            pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
        )
        parts.append(frame_of("spans", spans))
    return pl.concat(parts), findings


def _common(records: Records) -> list[pl.Expr]:
    return [
        pl.col("start_ns"),
        pl.col("duration_ns"),
        records.process.alias("process_id"),
        pl.col("threadId").alias("thread_id"),
    ]


def operators(records: Records, rows: pl.DataFrame) -> Host:
    """Spans of the framework: operators, and where the writer says so layers, steps or library calls."""
    rows, findings = with_times(rows, "framework operators", device=False, zeros_unknown=True)
    level_name = pl.col("level").fill_null("operator")
    unknown = rows.filter(~level_name.is_in(list(_LEVELS))).height
    findings.append(
        Finding(LedgerKind.UNKNOWN_LEVEL, "framework operators of no known level; taken for operators", unknown)
    )
    level, kind = (
        level_name.replace_strict({name: str(pair[n]) for name, pair in _LEVELS.items()}, default=str(default))
        for n, default in enumerate((Level.OPERATOR, Kind.OPERATOR))
    )
    spans = rows.select(
        "row",
        level.alias("level"),
        kind.alias("kind"),
        pl.col("name").fill_null("[unnamed operator]"),
        *_common(records),
    )
    return frame_of("spans", spans), findings


def operator_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What the framework said of its operators."""
    return frame_of(
        "operators",
        rows.filter(pl.col("level").fill_null("operator") == "operator").select(
            "row",
            pl.col("sequenceNumber").alias("sequence_number"),
            pl.when(is_backward(pl.col("name"))).then(1).alias("forward_thread_id"),
            pl.col("externalId").alias("external_id"),
            pl.col("inputShapes").alias("input_shapes"),
            pl.col("inputTypes").alias("input_dtypes"),
        ),
    )


def markers(records: Records, options: Options) -> tuple[dict[str, pl.DataFrame], list[Finding]]:
    """Spans, `ranges` and `layers` of markers: a start and an end with one id, in one process."""
    rows = records.of("MARKER").with_columns(records.process)
    flags = pl.col("flags").fill_null(0)
    begun = rows.filter((flags & _STARTS) > 0)
    ended = rows.filter((flags & _ENDS) > 0).unique(["processId", "id"], keep="first", maintain_order=True)
    ended = ended.select("processId", "id", pl.col("timestamp").alias("end"), pl.col("threadId").alias("end_thread"))
    pairs = begun.join(ended, on=["processId", "id"], how="left", maintain_order="left")
    pairs, findings = with_times(pairs.rename({"timestamp": "start"}), "markers", device=False, zeros_unknown=True)
    marks = rows.filter((flags & _MARK) > 0).height
    findings.append(Finding(LedgerKind.NVTX_MARKS_SKIPPED, count=marks))
    pairs = pairs.with_columns(plain_name(pl.col("name").fill_null("")), pl.col("name").alias("text"))
    pairs = pairs.with_columns((pl.col("name") != pl.col("text")).fill_null(value=False).alias("numbered"))
    pairs, layers, unread = module_ranges(pairs.with_columns(_common(records)))
    pairs = pairs.hstack(classify(pairs, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges))
    name = pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed range]")).alias("name")
    spans = pairs.with_columns(name)
    elsewhere = pl.when(pl.col("end_thread") != pl.col("threadId")).then(pl.col("end_thread"))
    facts = pairs.select("row", pl.col("id").alias("range_id"), "text", "domain", elsewhere.alias("end_thread_id"))
    tables = {"spans": spans, "ranges": facts, "layers": layers}
    return {table: frame_of(table, rows) for table, rows in tables.items()}, [*findings, *unread]
