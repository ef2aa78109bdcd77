"""A SQLite file whose texts are UTF-16 gives the answers of one in UTF-8."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import xsp

_SOURCE = Path(__file__).parents[3] / "fixtures/nsys_sqlite/inference_2gpu_synthetic/trace.sqlite"


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_an_nsight_export_in_utf16_is_read_alike(tmp_path: Path, encoding: str) -> None:
    copy = tmp_path / "trace.sqlite"
    with closing(sqlite3.connect(_SOURCE)) as source, closing(sqlite3.connect(copy)) as target:
        target.execute(f"PRAGMA encoding = '{encoding}'")
        target.executescript("\n".join(source.iterdump()))
    for table in ("spans", "kernels", "layers", "ledger"):
        one, other = (xsp.open(path, cache=False).trace.table(table) for path in (_SOURCE, copy))
        assert one.equals(other), table
