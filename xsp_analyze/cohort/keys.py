"""What rows of a cohort are told apart by, and how its tables become results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["FRAMEWORK", "KEYS", "MODEL", "SYSTEM", "result_of"]

MODEL = Column("model", pl.String(), "The model, as its traces name it.", role=Role.KEY)
SYSTEM = Column("system", pl.String(), "The devices it ran on; null: no file names them.", role=Role.KEY)
FRAMEWORK = Column("framework", pl.String(), "Framework and version; null: no file names it.", role=Role.KEY)
KEYS = (MODEL, SYSTEM, FRAMEWORK)


def result_of(identity: str, title: str, columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> Result:
    """The rows as an answer that every renderer takes."""
    table = pl.DataFrame(list(rows), schema={c.name: c.type_of(averaged=True) for c in columns}, orient="row")
    ledger = pl.DataFrame(schema=pl.Schema(TABLES["ledger"].schema))
    return Result(Analysis(identity, title, (), columns, _of_many), table, columns, lambda: ledger)


def _of_many(frames: StepView) -> pl.LazyFrame:
    raise XspError(f"this analysis is of many traces, not of {frames.trace.origin}", advice="Use xsp cohort")
