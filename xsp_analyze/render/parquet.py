"""Results as Parquet, with their description in the file's metadata."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from xsp_analyze.render.json_text import column_entries, plain

if TYPE_CHECKING:
    from xsp_analyze.core import Result

__all__ = ["METADATA_KEY", "render"]

METADATA_KEY = b"xsp"
"""Key of the file's metadata under which title, columns, ledger and provenance stand as JSON."""


def render(result: Result) -> bytes:
    """The table with the types of its columns; the rest of the result as JSON in the metadata."""
    about = {
        "analysis": result.analysis.id,
        "title": result.analysis.title,
        "columns": column_entries(result),
        "ledger": result.ledger.to_dicts(),
        "provenance": dict(result.provenance),
    }
    table = result.table.with_columns(pl.col(pl.Categorical).cast(pl.String)).to_arrow()
    text = json.dumps(plain(about), ensure_ascii=False, allow_nan=False)
    out = BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: text.encode()}), out, compression="zstd")
    return out.getvalue()
