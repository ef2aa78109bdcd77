"""Short ways for tests to convert a synthetic trace and to look into the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.synth import KinetoTrace
    from xsp_model import Trace

__all__ = ["converted", "ledger_counts", "named"]


def converted(kineto: KinetoTrace, folder: Path, **options: str) -> Trace:
    """The linked trace of one synthetic file."""
    return convert([kineto.write(folder / "trace.json")], Options(**options))  # type: ignore[arg-type]


def named(trace: Trace) -> dict[str, dict[str, object]]:
    """Each span by its name (names must be unique), with the names of parent and layer instead of their ids."""
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    names = spans["name"].to_list()
    out = {}
    for row in spans.to_dicts():
        for column in ("parent", "layer"):
            at = row[f"{column}_id"]
            row[column] = None if at is None else names[at]
        out[row["name"]] = row
    assert len(out) == spans.height, "names are not unique"
    return out


def ledger_counts(trace: Trace) -> dict[str, int]:
    """Count by kind, summed over entries."""
    ledger = trace.frame("ledger")
    return {row["kind"]: row["count"] for row in ledger.group_by("kind").agg(pl.col("count").sum()).to_dicts()}
