"""Reads a dump's records into one table a kind, in bounded pieces."""

from __future__ import annotations

import io
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import cut_off, lines
from xsp_ingest.formats.cupti_dump.header import parse_header
from xsp_ingest.formats.cupti_dump.parquet import read_parquet_header, read_row_groups
from xsp_ingest.staging.cupti_fields import END, KINDS, KNOWN_UNUSED, TYPES, Records
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.formats.cupti_dump.header import Header

__all__ = ["read_dump"]

_PARQUET_MAGIC = b"PAR1"
_MAX_BAD_LINES = 1_000
_SCHEMA = dict(TYPES)


def read_dump(path: Path) -> tuple[Header, Records]:
    """The file's header and records; XspError where it is cut off, or no dump."""
    with path.open("rb") as file:
        is_parquet = file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    if is_parquet:
        header = read_parquet_header(path)
        records = Records(header.pid)
        _gather(records, read_row_groups(path), path)
        _note_dropped(records, header.dropped or 0)
        return header, records
    blocks = lines(path)
    head, _, rest = next(blocks, b"").lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    header = parse_header(head, path)
    records = Records(header.pid)
    bad: list[int] = []
    _gather(records, _parsed([rest], blocks, bad, path), path)
    _check_end(records, bad)
    return header, records


def _parsed(first: Iterable[bytes], blocks: Iterator[bytes], bad: list[int], path: Path) -> Iterator[pl.DataFrame]:
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
