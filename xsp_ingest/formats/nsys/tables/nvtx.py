"""NVTX ranges: every push/pop and start/end range as a span, with the text, domain and number it was recorded under."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import Among, int64, natural
from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.interface import ExportRows, label, process_of, thread_of
from xsp_ingest.link.range_rules import NVTX, classify, is_backward, module_ranges, operator_details, plain_name
from xsp_ingest.staging.cuda_names import RANGE_STYLES
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options

__all__ = ["nvtx_ranges", "range_facts", "range_records"]

# What NCCL hands to NVTX beside its ranges: the communicator, the size of the message, how many ranks there are.
#
# Payloads stand in NVTX_EVENTS as JSON (`jsonText`), since 2026 also as they were in memory (`binaryData`), behind a
# header of 32 bytes: domain, schema and sizes. NVTX_PAYLOAD_SCHEMA_ENTRIES says which field is where; its types are
# those of NVTX's payload extension (`nvToolsExtPayload.h`), the names of fields NCCL's (`nvtx_payload_schemas.h`).

_TABLE = "NVTX_EVENTS"
_NAMES = ("NCCL", "RCCL")
_COMMUNICATOR, _BYTES, _RANKS = "NCCL communicator ID", "Message size [bytes]", "No. of ranks"
_HEADER = struct.Struct("<IIIIQQ")
_FORMATS = {5: "<i", 6: "<I", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""Of the types that NCCL uses: int and unsigned, of 32 and of 64 bits, and size_t."""
_OPERATIONS: Mapping[str, str] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
    "Broadcast": "broadcast",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
}
_Fields = dict[str, int]
_Layout = dict[tuple[int, int], list[tuple[str, int, str]]]  # by domain and schema: name, offset and format


def collectives(database: Tables, ranges: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The staging table `collectives` of the ranges (see `range_records`) that have a payload of NCCL's."""
    calls = ranges.filter(pl.col("domain").is_in(_NAMES)).select("row", "rowid", "text").sort("rowid")
    columns = [c for c in ("jsonText", "jsonTextId", "binaryData") if c in database.columns(_TABLE)]
    if calls.is_empty() or not columns:
        return frame_of("collectives"), ()
    layout = _layout(database)
    cells = database.cells(_TABLE, columns, calls["rowid"].to_list())
    payloads = [_payload(dict(zip(columns, row, strict=True)), database, layout) for row in cells]
    sizes = {p[_COMMUNICATOR]: p[_RANKS] for p in payloads if p and _COMMUNICATOR in p and _RANKS in p}
    pairs = zip(calls.select("row", "text").iter_rows(), payloads, strict=True)
    rows = [_row(row, text or "", fields, sizes) for (row, text), fields in pairs if fields]
    unreadable = sum(fields is None for fields in payloads)
    findings = (Finding(LedgerKind.PAYLOAD_UNREADABLE, count=unreadable),) if unreadable else ()
    return frame_of("collectives", pl.DataFrame(rows, infer_schema_length=None)), findings


def _row(row: int, text: str, fields: _Fields, sizes: Mapping[int, int]) -> dict[str, object]:
    """NCCL's message is one rank's part: what it hands over, but of a reduce-scatter what it receives."""
    operation = _OPERATIONS.get(text.removeprefix("nccl").removeprefix("rccl"))
    group, size = fields.get(_COMMUNICATOR), fields.get(_BYTES)
    ranks = sizes.get(group) if group is not None else None
    total = size * ranks if size is not None and ranks is not None else None
    sent, received = {"all_gather": (size, total), "reduce_scatter": (total, size), "recv": (None, size)}.get(
        operation or "", (size, size)
    )
    return {
        "row": row,
        "operation": operation,
        "group_name": None if group is None else f"{group:#x}",
        "group_size": int64(ranks),
        "input_bytes": int64(sent) if operation else None,
        "output_bytes": int64(received) if operation else None,
    }


def _payload(cells: Mapping[str, object], database: Tables, layout: _Layout) -> _Fields | None:
    """The fields; none where the range has no payload, None where it cannot be read."""
    text, number, data = (cells.get(c) for c in ("jsonText", "jsonTextId", "binaryData"))
    if text is None and isinstance(number, int):
        text = database.strings.of(pl.Series([number], dtype=pl.Int64)).cast(pl.String)[0]
    if isinstance(text, str) and text:
        return _of_json(text)
    return _of_bytes(data, layout) if isinstance(data, bytes) and data else {}


def _of_json(text: str) -> _Fields | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    numbers = ((key, _integer(document.get(key))) for key in (_COMMUNICATOR, _BYTES, _RANKS))
    return {key: number for key, number in numbers if number is not None}


def _integer(value: object) -> int | None:
    """An integer, also one written with commas between thousands; communicators take all 64 bits."""
    if isinstance(value, str):
        return natural(value.replace(",", ""), bits=64)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _of_bytes(data: bytes, layout: _Layout) -> _Fields | None:
    if len(data) < _HEADER.size:
        return None
    domain, _, schema, _, payload_bytes, total_bytes = _HEADER.unpack_from(data)
    entries = layout.get((domain, schema))
    if entries is None or total_bytes != len(data) or payload_bytes != len(data) - _HEADER.size:
        return None
    ends = [offset + struct.calcsize(kind) for _, offset, kind in entries]
    if any(offset < 0 for _, offset, _ in entries) or max(ends, default=0) > payload_bytes:
        return None
    return {name: struct.unpack_from(kind, data, _HEADER.size + offset)[0] for name, offset, kind in entries}


def _layout(database: Tables) -> _Layout:
    table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
    numbers = database.integers(table, ("domainId", "schemaId", "type", "offset"))
    names: Sequence[str | None] = database.texts(table, "name").to_list() if numbers.height else []
    out: _Layout = {}
    for (domain, schema, kind, offset), name in zip(
        numbers.select("domainId", "schemaId", "type", "offset").iter_rows(), names, strict=True
    ):
        if name in {_COMMUNICATOR, _BYTES, _RANKS} and kind in _FORMATS:
            entry = (name, offset or 0, _FORMATS[kind])
            fields = out.setdefault((domain, schema), [])
            if entry not in fields:  # each process lists its own
                fields.append(entry)
    return out


_COLUMNS = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId")
_MARK = 34
_DOMAIN_CREATE = 75
_IS_NAMELESS = pl.col("text").str.contains(r"^\[?0x[0-9a-fA-F]+\]?$") | (
    pl.col("text").is_null() & pl.col("textId").is_not_null()
)
_BACKWARD_THREAD = 1  # emit_nvtx does not say which thread ran the forward pass, only that there was one


def nvtx_ranges(database: Tables, options: Options) -> ExportRows:
    """All ranges of the file, nothing where it has none."""
    ranges, findings = range_records(database)
    messages, unreadable = collectives(database, ranges)
    ranges = ranges.with_columns(plain_name(pl.col("text").fill_null("")).alias("name")).with_columns(
        (pl.col("name") != pl.col("text").fill_null("")).alias("numbered"), pl.col("start").alias("start_ns")
    )
    ranges, layers, unread = module_ranges(ranges)
    ranges = ranges.hstack(classify(ranges, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges))
    tables = {"spans": _spans(ranges), "ranges": range_facts(ranges), "operators": _operators(ranges)}
    tables |= {"collectives": messages, "layers": layers}
    return ExportRows(tables, (*findings, *unreadable, *unread, *_marks(database)))


def range_records(database: Tables) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The rows of ranges in the columns of the file, with row, text, domain, range_id, process_id, thread_id."""
    which = Among("eventType", tuple(RANGE_STYLES)) if "eventType" in database.columns(_TABLE) else None
    rows = database.integers(_TABLE, _COLUMNS, where=which)
    findings = (*host_findings(rows, _TABLE), _unclosed_ranges(rows))
    rows = rows.with_columns(_texts(database, rows, which)).filter(pl.col("start").is_not_null())
    rows = rows.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
    )
    findings = (*findings, Finding(LedgerKind.RANGE_WITHOUT_NAME, count=rows.select(_IS_NAMELESS.sum()).item()))
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


def range_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What `ranges` says of the rows of `range_records`."""
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


def _unclosed_ranges(rows: pl.DataFrame) -> Finding:
    return Finding(LedgerKind.UNCLOSED_RANGE, count=rows["end"].null_count())
