"""The bundle: whole or not there, equal after a round trip, refused where it cannot be understood."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.model_sample import sample_trace
from xsp_model import XspError, bundle
from xsp_model.bundle import upgrade
from xsp_model.columns import arrow
from xsp_model.limits import override_limits
from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "sample.xsp"
    bundle.write(sample_trace(), path)
    return path


def _edit_manifest(path: Path, **entries: object) -> None:
    manifest = json.loads((path / bundle.MANIFEST).read_text())
    (path / bundle.MANIFEST).write_text(json.dumps({**manifest, **entries}))


def _as_of_version(path: Path, version: int) -> None:
    """Makes the manifest an earlier one, which had no checksums."""
    manifest = json.loads((path / bundle.MANIFEST).read_text())
    del manifest["files"]
    (path / bundle.MANIFEST).write_text(json.dumps({**manifest, "schema_version": version}))


def test_every_table_survives_the_round_trip(written: Path) -> None:
    before, after = sample_trace(), bundle.read(written)
    for name in TABLES:
        assert after.table(name).equals(before.table(name)), name
    assert after.row_count == before.row_count
    assert after.levels == before.levels


def test_pieces_are_the_table_whether_it_is_on_disk_or_not(written: Path) -> None:
    columns = ["name", "duration_ns", "level", "attribution"]
    table = sample_trace().frame("spans").select(columns)
    with override_limits(row_group_rows=2):
        bundle.write(sample_trace(), written)
    for trace, count in ((sample_trace(), 1), (bundle.read(written), (table.height + 1) // 2)):
        pieces = list(trace.pieces("spans", columns))
        assert len(pieces) == count
        assert pl.concat(pieces).equals(table)
        assert pl.concat(pieces).schema == table.schema


def test_the_same_trace_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.xsp"
    bundle.write(sample_trace(), again)
    names = sorted(file.name for file in written.iterdir())
    assert names == sorted(file.name for file in again.iterdir())
    assert all((written / name).read_bytes() == (again / name).read_bytes() for name in names)


def test_the_manifest_names_schema_sources_tools_and_rows(written: Path) -> None:
    manifest = bundle.read_manifest(written)
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert manifest["sources"] == [
        {"run_id": 0, "source_path": "trace.json", "source_sha256": None, "source_bytes": None, "format": None}
    ]
    assert isinstance(manifest["tools"], dict)
    assert "polars" in manifest["tools"]
    assert isinstance(manifest["rows"], dict)
    assert manifest["rows"]["spans"] == 6


def test_an_older_bundle_is_replaced(written: Path) -> None:
    bundle.write(sample_trace(), written)
    assert bundle.read(written).row_count == 6
    assert [p.name for p in written.parent.iterdir()] == ["sample.xsp"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _break_after_three_tables(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        bundle.write(sample_trace(), tmp_path / "sample.xsp")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_older_bundle(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _break_after_three_tables(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        bundle.write(sample_trace(), written)
    assert [p.name for p in written.parent.iterdir()] == ["sample.xsp"]
    assert bundle.read(written).row_count == 6


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.helpers.model_sample import sample_trace
from xsp_model import bundle
calls = []
def die(*_):
    calls.append(1)
    if len(calls) > 3: os.kill(os.getpid(), signal.SIGKILL)
bundle.write_parquet = die
bundle.write(sample_trace(), Path(sys.argv[1]))
"""


@pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing tells whether a process is alive")
def test_the_next_write_clears_what_a_killed_one_left(written: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(written)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(written.parent.iterdir())) == 2
    (written.parent / ".sample.xsp.mine").mkdir()
    (written.parent / ".sample.xsp.mine" / "notes").write_text("kept", encoding="utf-8")
    bundle.write(sample_trace(), written)
    assert sorted(path.name for path in written.parent.iterdir()) == [".sample.xsp.mine", "sample.xsp"]


def _break_after_three_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = arrow.write_parquet, []

    def write_table(*args: Any) -> None:  # noqa: ANN401
        calls.append(args)
        if len(calls) > 3:
            raise KeyboardInterrupt
        real(*args)

    monkeypatch.setattr(bundle, "write_parquet", write_table)


@pytest.mark.parametrize("name", ["notes", "data.json"])
def test_what_is_no_bundle_is_not_overwritten(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    if target.suffix:
        target.write_text("precious")
    else:
        target.mkdir()
        (target / "precious.txt").write_text("precious")
    with pytest.raises(XspError, match="exists and is not a bundle"):
        bundle.write(sample_trace(), target)
    assert target.read_text() == "precious" if target.suffix else (target / "precious.txt").exists()


def test_a_folder_of_others_with_a_manifest_is_not_replaced(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / bundle.MANIFEST).write_text('{"name": "a web page"}')
    (project / "precious.txt").write_text("precious")
    with pytest.raises(XspError, match="which is no bundle's"):
        bundle.write(sample_trace(), project)
    (project / "precious.txt").unlink()
    with pytest.raises(XspError, match=r"holds manifest\.json"):
        bundle.write(sample_trace(), project)
    assert [file.name for file in project.iterdir()] == [bundle.MANIFEST]


def test_what_others_put_into_a_bundle_is_not_lost(written: Path) -> None:
    (written / "notes.txt").write_text("precious")
    with pytest.raises(XspError, match=r"holds notes\.txt"):
        bundle.write(sample_trace(), written)
    assert (written / "notes.txt").read_text() == "precious"


def test_a_newer_version_is_refused_with_advice(written: Path) -> None:
    _edit_manifest(written, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(XspError, match=r"written by a newer XSP\. Install that version"):
        bundle.read(written)


def test_a_manifest_of_something_else_is_refused(written: Path) -> None:
    _edit_manifest(written, format="holiday pictures")
    with pytest.raises(XspError, match="not of an XSP bundle"):
        bundle.read(written)


def test_a_broken_manifest_is_refused(written: Path) -> None:
    (written / bundle.MANIFEST).write_text("{")
    with pytest.raises(XspError, match="manifest cannot be read"):
        bundle.read(written)


def test_a_missing_table_is_named(written: Path) -> None:
    (written / "kernels.parquet").unlink()
    with pytest.raises(XspError, match="lacks its table kernels"):
        bundle.read(written)


def test_a_cut_off_table_is_refused(written: Path) -> None:
    table = written / "spans.parquet"
    table.write_bytes(table.read_bytes()[:100])
    with pytest.raises(XspError, match=r"spans\.parquet is not what was written"):
        bundle.read(written)


def test_an_earlier_version_is_upgraded_in_memory(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pq.read_table(written / "kernels.parquet").rename_columns(
        ["registers" if name == "registers_per_thread" else name for name in TABLES["kernels"].schema.names]
    )
    pq.write_table(kernels, written / "kernels.parquet")
    _as_of_version(written, SCHEMA_VERSION - 1)

    def rename(tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        names = ["registers_per_thread" if name == "registers" else name for name in tables["kernels"].schema.names]
        return {**tables, "kernels": tables["kernels"].rename_columns(names)}

    monkeypatch.setattr(bundle, "UPGRADES", {SCHEMA_VERSION - 1: rename})
    after = bundle.read(written)
    assert after.table("kernels").schema.names == TABLES["kernels"].schema.names
    assert after.table("spans").equals(sample_trace().table("spans"))


def test_a_version_nobody_can_upgrade_is_refused(written: Path) -> None:
    _as_of_version(written, -3)
    with pytest.raises(XspError, match="Convert the source files again"):
        bundle.read(written)


def test_upgrades_run_one_version_after_the_other() -> None:
    def step(label: str) -> pa.Table:
        return pa.table({label: [1]})

    steps = {3: lambda t: {**t, "b": step("b")}, 4: lambda t: {**t, "c": step("c")}}
    assert list(upgrade({"a": step("a")}, 3, steps, to=5)) == ["a", "b", "c"]
    with pytest.raises(KeyError):
        upgrade({}, 2, steps, to=5)


def test_a_bundle_of_before_messages_were_kept_has_none(written: Path) -> None:
    for name in ("messages", "page_faults"):
        (written / f"{name}.parquet").unlink()
    copies = pl.read_parquet(written / "copies.parquet").drop("virtual_address")
    copies.write_parquet(written / "copies.parquet")
    _as_of_version(written, 4)
    after = bundle.read(written)
    assert after.height("messages") == after.height("page_faults") == 0
    assert after.frame("copies")["virtual_address"].null_count() == copies.height


def test_a_bundle_of_before_allocations_were_kept_has_none(written: Path) -> None:
    (written / "allocations.parquet").unlink()
    _as_of_version(written, 3)
    after = bundle.read(written)
    assert after.height("allocations") == 0
    assert after.table("allocations").schema == TABLES["allocations"].schema


def test_a_bundle_of_before_results_were_kept_has_none(written: Path) -> None:
    added = ("accuracies", "tensors", "output_distances")
    _as_of_version(written, 4)
    for name in added:
        (written / f"{name}.parquet").unlink()
    trace = bundle.read(written)
    assert [trace.table(name).num_rows for name in added] == [0, 0, 0]
