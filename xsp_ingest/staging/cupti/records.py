"""CUPTI's activity records, one table a kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.cupti.fields import KINDS, TYPES

if TYPE_CHECKING:
    from xsp_model import Finding

__all__ = ["Records"]


@dataclass
class Records:
    """A file's records by kind, each with its index in the file as `row`; and what was odd."""

    process_id: int | None
    """The process that was profiled, for records that do not say theirs."""
    kinds: dict[str, pl.DataFrame] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def process(self) -> pl.Expr:
        """The process a record is of: its own, else the file's; as `processId`."""
        return pl.col("processId").fill_null(pl.lit(self.process_id, pl.Int64))

    def of(self, *kinds: str) -> pl.DataFrame:
        """The records of these kinds (which have the same fields), in the order of the file."""
        tables = [self.kinds[kind] for kind in kinds if kind in self.kinds]
        if not tables:
            return pl.DataFrame(schema={"row": pl.Int64, **{name: TYPES[name] for name in KINDS[kinds[0]]}})
        return pl.concat(tables).sort("row") if len(tables) > 1 else tables[0]
