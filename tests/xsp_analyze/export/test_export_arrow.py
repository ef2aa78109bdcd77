"""Arrow streams of every table, read back by pyarrow and polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

from tests.helpers.exported import small
from tests.helpers.fixture_cases import SOUND, FixtureCase, trace_of
from xsp_analyze.export import export, find
from xsp_model import XspError, bundle
from xsp_model.limits import override_limits
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _plain(table: pa.Table) -> pa.Table:
    """Words as texts: the numbers that stand for them are the writer's own."""
    kinds = [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(kinds))


def _check(trace: Trace, folder: Path) -> None:
    for name, spec in TABLES.items():
        with pa.ipc.open_stream(folder / f"{name}.arrows") as stream:
            table = stream.read_all()
        assert table.schema.equals(spec.schema)
        assert _plain(table).equals(_plain(trace.table(name).cast(spec.schema)))
    assert {file.name for file in folder.iterdir()} == {f"{name}.arrows" for name in TABLES}


def test_every_table_comes_back_exactly(tmp_path: Path) -> None:
    trace = small(tmp_path)
    export(trace, find("arrow"), tmp_path / "tables")
    _check(trace, tmp_path / "tables")


@pytest.mark.slow
@pytest.mark.parametrize("case", list({c.name.split("/")[0]: c for c in SOUND}.values()), ids=lambda case: case.name)
def test_every_table_of_any_format_comes_back_exactly(case: FixtureCase, tmp_path: Path) -> None:
    export(trace_of(case), find("arrow"), tmp_path / "tables")
    _check(trace_of(case), tmp_path / "tables")


def test_pieces_of_a_bundle_share_one_dictionary(tmp_path: Path) -> None:
    trace = small(tmp_path)
    with override_limits(row_group_rows=4):
        bundle.write(trace, tmp_path / "small.xsp")
    opened = bundle.read(tmp_path / "small.xsp")
    assert len(list(opened.pieces("spans", ["name"]))) > 2
    export(opened, find("arrow"), tmp_path / "tables")
    _check(trace, tmp_path / "tables")
    with pa.ipc.open_stream(tmp_path / "tables" / "spans.arrows") as stream:
        assert len({str(batch["name"].dictionary) for batch in stream}) == 1


def test_polars_reads_the_streams(tmp_path: Path) -> None:
    trace = small(tmp_path)
    export(trace, find("arrow"), tmp_path / "tables")
    spans = pl.read_ipc_stream(tmp_path / "tables" / "spans.arrows")
    assert spans["duration_ns"].equals(trace.frame("spans")["duration_ns"])
    assert spans["name"].cast(pl.String).equals(trace.frame("spans")["name"].cast(pl.String))


def test_columns_say_their_unit_and_what_they_are(tmp_path: Path) -> None:
    export(small(tmp_path), find("arrow"), tmp_path / "tables")
    with pa.ipc.open_stream(tmp_path / "tables" / "spans.arrows") as stream:
        schema = stream.schema
    assert schema.field("start_ns").metadata == {b"doc": b"Start, from the start of the trace.", b"unit": b"ns"}
    assert schema.metadata[b"xsp.table"] == b"spans"


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    trace = small(tmp_path)
    with pytest.raises(XspError, match=r"is no folder, and arrow writes several files\. Name a folder"):
        export(trace, find("arrow"), tmp_path / "small.json")
