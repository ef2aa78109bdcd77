"""Tables too large to hold: written piece by piece into Parquet files of a temporary folder, checked on the way."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_model import integrity
from xsp_model.columns import scratch
from xsp_model.columns.arrow import conform, to_arrow, write_parquet
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl
    import pyarrow as pa

    from xsp_model.schema import TableSpec

__all__ = ["Spill"]


class Spill:
    """A folder of finished tables that is gone when nobody holds it any more, or when the process ends."""

    def __init__(self, spans: int) -> None:
        self._spans = spans
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="xsp-", dir=scratch.folder()))
        except OSError as error:
            raise scratch.no_room(error) from error
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def write(self, name: str, pieces: Iterable[pl.DataFrame]) -> Path:
        """The file of a table given in its declared order, ids final; ValueError where it breaks the model's rules."""
        spec = TABLES[name]
        path = self._folder / f"{name}.parquet"
        tables = (_to_declared(piece, spec) for piece in pieces)
        try:
            write_parquet(integrity.check_pieces(tables, spec, self._spans), spec, path)
        except OSError as error:
            raise scratch.no_room(error) from error
        return path


def _to_declared(piece: pl.DataFrame, spec: TableSpec) -> pa.Table:
    table = to_arrow(conform(piece, spec), spec)
    scratch.release()
    return table
