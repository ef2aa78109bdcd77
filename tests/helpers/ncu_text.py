"""Pages of Nsight Compute built from literals, and short ways to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.ncu.csv import NCU_CSV
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

__all__ = ["DETAILS_HEAD", "RAW_HEAD", "count_of", "details", "line", "metrics", "raw_page", "read_text"]

RAW_HEAD = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
DETAILS_HEAD = (*RAW_HEAD, "Section Name", "Metric Name", "Metric Unit", "Metric Value")


def line(*cells: object) -> str:
    """One record, every cell in quotes."""
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells)


def _facts(number: int, name: str, capability: str) -> tuple[object, ...]:
    return (number, 11, "python", "host", name, 1, 7, "(128, 2, 1)", "(64, 8, 3)", 0, capability)


def raw_page(
    counters: Mapping[str, tuple[str, Sequence[str]]],
    *,
    names: Sequence[str] = ("gemm",),
    ids: Sequence[int] | None = None,
    capability: str = "9.0",
) -> str:
    """The raw page: for each counter its unit and one text a kernel."""
    rows = [
        line(*_facts(number, name, capability), *(texts[at] for _, texts in counters.values()))
        for at, (number, name) in enumerate(zip(ids or range(len(names)), names, strict=True))
    ]
    units = line(*[""] * len(RAW_HEAD), *(unit for unit, _ in counters.values()))
    return "\n".join((line(*RAW_HEAD, *counters), units, *rows)) + "\n"


def details(*rows: tuple[str, str, str], name: str = "gemm", capability: str = "9.0") -> str:
    """The details page of one kernel: rows of (label or counter, unit, value)."""
    body = [line(*_facts(0, name, capability), "Section", *row) for row in rows]
    return "\n".join((line(*DETAILS_HEAD), *body)) + "\n"


def read_text(text: str | bytes, folder: Path) -> RawTrace:
    """The page as the reader stages it."""
    path = folder / "ncu.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return NCU_CSV.read(path, Options())


def metrics(raw: RawTrace, row: int = 0) -> dict[str, float]:
    """A kernel's counters by name."""
    rows = raw.tables["metrics"].filter(pl.col("row") == row)
    return dict(rows.select(pl.col("metric").cast(pl.String), "value").iter_rows())


def count_of(raw: RawTrace, kind: str) -> int:
    """How much the findings of a kind count."""
    return sum(f.count for f in raw.findings if f.kind == kind)
