"""Reads a dump into one table a kind of record, in bounded pieces; and which operator each call and activity is of."""

from __future__ import annotations

import io
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_ingest.files.content import cut_off, lines
from xsp_ingest.formats.cupti_dump.header import PARQUET_KEY, PARQUET_MAGIC, parse_header
from xsp_ingest.staging.cupti import END, KINDS, KNOWN_UNUSED, TYPES, Records
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.formats.cupti_dump.header import Header

__all__ = ["is_parquet_dump", "operators_with_threads", "read_dump", "with_issuers"]

_BATCH_ROWS = 1 << 16
_DAMAGED = (pa.ArrowException, OSError, ValueError)


def is_parquet_dump(path: Path) -> bool:
    """Whether the file's metadata says so; a damaged file says nothing."""
    try:
        return PARQUET_KEY in (pq.read_metadata(path).metadata or {})
    except _DAMAGED:
        return False


def _parquet_header(path: Path) -> Header:
    """The header; XspError where the file is damaged or no dump."""
    metadata = _open(path).metadata
    if metadata.num_rows > path.stat().st_size:
        raise XspError("the Parquet file claims more records than it has bytes", path=path)
    text = (metadata.metadata or {}).get(PARQUET_KEY)
    if text is None:
        raise XspError("the Parquet file's metadata does not say that it is a CUPTI dump", path=path)
    return parse_header(text, path)


def _row_groups(path: Path) -> Iterator[pl.DataFrame]:
    """The records in batches, with every field that is read; those the file lacks are null."""
    file = _open(path)
    names = [name for name in file.schema_arrow.names if name in TYPES]
    if "kind" not in names:
        raise XspError("the Parquet file has no column `kind`", path=path)
    try:
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            batch.validate(full=True)  # text that is not UTF-8 would be taken on trust from here on
            yield _with_types(pl.DataFrame(batch))
    except _DAMAGED as error:
        raise XspError("the Parquet file is damaged", path=path, advice="Write or copy it again") from error


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except _DAMAGED as error:
        raise XspError("the Parquet file is damaged or cut off", path=path, advice="Write or copy it again") from error


def _with_types(batch: pl.DataFrame) -> pl.DataFrame:
    columns = []
    for name, kind in TYPES.items():
        stored = batch[name] if name in batch.columns else None
        fits = stored is not None and (stored.dtype.is_integer() if kind.is_integer() else _is_text(stored.dtype))
        column = stored if stored is not None and fits else pl.Series(name, [None] * batch.height, dtype=kind)
        columns.append(column.cast(kind, strict=False))
    return pl.DataFrame(columns)


def _is_text(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


# The Parquet form above has its header in the file's metadata, its records a row each; below, both forms.

_MAX_BAD_LINES = 1_000
_SCHEMA = dict(TYPES)


def read_dump(path: Path) -> tuple[Header, Records]:
    """The file's header and records; XspError where it is cut off, or no dump."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    if is_parquet:
        header = _parquet_header(path)
        records = Records(header.pid)
        _gather(records, _row_groups(path), path)
        _note_dropped(records, header.dropped or 0)
        return header, records
    blocks = lines(path)
    head, _, rest = next(blocks, b"").lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    header = parse_header(head, path)
    records = Records(header.pid)
    bad: list[int] = []
    _gather(records, _frames_of_lines([rest], blocks, bad, path), path)
    _check_end(records, bad)
    return header, records


def _frames_of_lines(
    first: Iterable[bytes], blocks: Iterator[bytes], bad: list[int], path: Path
) -> Iterator[pl.DataFrame]:
    for block in chain(first, blocks):
        yield from _frames(block, bad, path)


def _frames(block: bytes, bad: list[int], path: Path) -> Iterator[pl.DataFrame]:
    """The block's records; a part that cannot be parsed is halved until the lines at fault are alone."""
    if not block.strip():
        return
    try:
        yield pl.read_ndjson(io.BytesIO(block), schema=_SCHEMA, ignore_errors=True)
    except pl.exceptions.PolarsError:
        text = block.decode("utf-8", errors="replace").encode()
        if text != block:
            yield from _frames(text, bad, path)
            return
        rows = block.splitlines(keepends=True)
        if len(rows) > 1:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                yield from _frames(b"".join(half), bad, path)
            return
        if not block.endswith(b"\n"):
            raise cut_off(path, "its last line is no whole record") from None
        bad.append(1)
        if len(bad) > _MAX_BAD_LINES:
            raise XspError(f"more than {_MAX_BAD_LINES} lines of the CUPTI dump are no records", path=path) from None


def _gather(records: Records, frames: Iterable[pl.DataFrame], path: Path) -> None:
    parts: dict[str, list[pl.DataFrame]] = {}
    others: dict[str, int] = {}
    first = nameless = 0
    for frame in frames:
        numbered = frame.with_columns(row=pl.int_range(first, first + frame.height, dtype=pl.Int64))
        first += frame.height
        for (kind,), rows in numbered.partition_by("kind", as_dict=True, maintain_order=True).items():
            if kind in KINDS:
                parts.setdefault(str(kind), []).append(rows.select("row", *KINDS[str(kind)]))
            elif kind is None:
                nameless += rows.height
            elif kind not in KNOWN_UNUSED:
                others[str(kind)] = others.get(str(kind), 0) + rows.height
    if not parts:
        raise XspError("the CUPTI dump holds no records", path=path)
    records.kinds = {kind: pl.concat(rows) for kind, rows in parts.items()}
    records.findings += [
        Finding(LedgerKind.UNKNOWN_RECORD, count=sum(others.values())),
        Finding(LedgerKind.RECORD_WITHOUT_KIND, count=nameless),
    ]


def _check_end(records: Records, bad: Sequence[int]) -> None:
    """What the closing record says against what was found."""
    end = records.of(END)
    records.findings.append(Finding(LedgerKind.BAD_LINE, "lines that are no records", len(bad)))
    if end.is_empty():
        detail = "the dump has no closing record: what wrote it was stopped, and records may be missing"
        records.findings.append(Finding(LedgerKind.NO_END, detail))
        return
    _note_dropped(records, end["dropped"].fill_null(0).max())


def _note_dropped(records: Records, count: object) -> None:
    detail = "records that CUPTI dropped: its buffers were full"
    dropped = count if isinstance(count, int) and count > 0 else 0
    records.findings.append(Finding(LedgerKind.DROPPED_RECORDS, detail, dropped))


# External correlation: which operator of the framework each call and each device activity belongs to.

_KEY = ("processId", "externalKind", "externalId")


def operators_with_threads(records: Records) -> tuple[pl.DataFrame, list[Finding]]:
    """The operators, each on the thread of its launches, and with their extent where it has no times of its own.

    The thread ids of a framework and of CUPTI may be of different kinds; the launches say which is which.
    """
    operators = _with_process(records, "FRAMEWORK_OPERATOR")
    launches = _launches(records).join(operators.select(*_KEY, "row"), on=_KEY, how="inner", nulls_equal=True)
    extent = launches.group_by("row").agg(
        pl.col("start").min().alias("first"),
        pl.col("end").max().alias("last"),
        pl.col("threadId").mode().min().alias("launched_on"),
    )
    extended = operators.join(extent, on="row", how="left", maintain_order="left")
    threads = _translation(extended)
    extended = extended.join(threads, on=["processId", "threadId"], how="left", maintain_order="left").with_columns(
        pl.coalesce("start", "first").alias("start"),
        pl.coalesce("end", "last").alias("end"),
        pl.coalesce("is_thread", "threadId", "launched_on").alias("threadId"),
    )
    ids = _with_process(records, "EXTERNAL_CORRELATION")
    unnamed = ids.join(operators, on=_KEY, how="anti", nulls_equal=True)["externalId"].n_unique()
    detail = "external ids that no operator of the dump has"
    return extended, [Finding(LedgerKind.UNNAMED_EXTERNAL_ID, detail, unnamed)]


def _translation(operators: pl.DataFrame) -> pl.DataFrame:
    """The thread of CUPTI for a thread of the framework, where all launches of its operators are on that one."""
    return (
        operators.drop_nulls(["threadId", "launched_on"])
        .group_by("processId", "threadId")
        .agg(pl.col("launched_on").unique().sort().alias("seen"))
        .filter(pl.col("seen").list.len() == 1)
        .select("processId", "threadId", pl.col("seen").list.first().alias("is_thread"))
    )


def with_issuers(records: Records, work: pl.DataFrame) -> pl.DataFrame:
    """The device work with `issued_by_row`: its operator, of several the one that began last; null where unknown.

    Linking uses it only where the launch itself is not in the dump.
    """
    operators = _with_process(records, "FRAMEWORK_OPERATOR").select(*_KEY, "start", pl.col("row").alias("operator"))
    ties = (
        _with_process(records, "EXTERNAL_CORRELATION")
        .drop_nulls(["correlationId", "externalId"])
        .join(operators, on=_KEY, how="inner", nulls_equal=True)
        .sort("start", "operator", nulls_last=False)
        .unique(["processId", "correlationId"], keep="last", maintain_order=True)
        .select(pl.col("processId").alias("process_id"), pl.col("correlationId").alias("correlation_id"), "operator")
    )
    tied = work.drop("issued_by_row").join(ties, on=["process_id", "correlation_id"], how="left", maintain_order="left")
    return tied.rename({"operator": "issued_by_row"}).select(work.columns)


def _launches(records: Records) -> pl.DataFrame:
    """Calls with the external ids that were pushed around them."""
    calls = pl.concat([_with_process(records, kind) for kind in ("RUNTIME", "DRIVER")], how="diagonal")
    ids = _with_process(records, "EXTERNAL_CORRELATION").drop_nulls(["correlationId", "externalId"]).drop("row")
    return calls.drop_nulls(["correlationId", "start"]).drop("row").join(ids, on=["processId", "correlationId"])


def _with_process(records: Records, kind: str) -> pl.DataFrame:
    return records.of(kind).with_columns(records.process)
