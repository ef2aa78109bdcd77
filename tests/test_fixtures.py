"""The contract that every format keeps, checked on every fixture."""

from __future__ import annotations

import gzip
import io
import shutil
import sqlite3
import tomllib
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq
import pytest

from fixtures.make.catalog import CASES
from tests.helpers.fixture_cases import DAMAGED, RUN_SETS, SOUND, FixtureCase, every, facts, golden_text, trace_of
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError, bundle, integrity
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from fixtures.make.case import Case

_MAX_BYTES = 300_000
_OF_FILE_NAMES = {"evaluations/latencies_synthetic": ("model",)}  # dlperf says the model nowhere else
_SYNTHETIC = [case for case in CASES if case.synthetic]


def _named(case: FixtureCase | Case) -> str:
    return case.name if isinstance(case, FixtureCase) else case.path


sound = pytest.mark.parametrize("case", SOUND, ids=_named)
damaged = pytest.mark.parametrize("case", DAMAGED, ids=_named)


@sound
def test_exactly_one_ingester_claims_each_file(case: FixtureCase) -> None:
    format_name = case.name.partition("/")[0]
    for file in case.raw_files:
        expected = case.about.get("formats", {}).get(file.name, format_name)
        assert [i.name for i in claimants_of(Probe(file), all_ingesters())] == [expected], file.name


@every(SOUND)
def test_the_result_does_not_depend_on_file_names(case: FixtureCase, tmp_path: Path) -> None:
    renamed = [shutil.copyfile(file, tmp_path / f"{n}.mp3") for n, file in enumerate(case.raw_files)]
    trace = convert(renamed, Options())
    of_names = ["source_path", *_OF_FILE_NAMES.get(case.name, ())]
    for name in TABLES:
        before, after = (t.frame(name).drop(of_names, strict=False) for t in (trace_of(case), trace))
        assert before.equals(after), name


@every(SOUND)
def test_reading_twice_gives_the_same(case: FixtureCase) -> None:
    again = convert(case.raw_files, Options())
    assert all(trace_of(case).table(name).equals(again.table(name)) for name in TABLES)


@sound
def test_the_trace_is_sound_and_device_time_is_conserved(case: FixtureCase) -> None:
    trace = trace_of(case)
    assert list(integrity.broken_rules(trace)) == []
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    device = spans.filter(pl.col("level") == "kernel")
    assert device["attribution"].null_count() == 0
    assert (device["layer_id"].is_not_null() == (device["attribution"] == "layer")).all()
    assert sum(v for v in facts(trace)["device_ns"].values() if isinstance(v, int)) == device["duration_ns"].sum()


@every(SOUND)
def test_the_bundle_gives_the_trace_back(case: FixtureCase, tmp_path: Path) -> None:
    bundle.write(trace_of(case), tmp_path / "case.xsp")
    after = bundle.read(tmp_path / "case.xsp")
    assert all(after.table(name).equals(trace_of(case).table(name)) for name in TABLES)


@sound
def test_what_is_found_is_what_was_found(case: FixtureCase, request: pytest.FixtureRequest) -> None:
    text = golden_text(facts(trace_of(case)))
    golden = case.folder / "expected.toml"
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8")
    assert tomllib.loads(text) == case.expected


@every(SOUND)
def test_a_file_cut_short_is_refused_in_one_sentence_or_its_ledger_says_so(case: FixtureCase, tmp_path: Path) -> None:
    for file in case.raw_files:
        content = file.read_bytes()
        cut = tmp_path / file.name
        cut.write_bytes(content[: len(content) * 3 // 5])
        with pytest.raises(XspError, match=r"^[^\n]*$"):
            convert([cut], Options(strict_json=True))
        with suppress(XspError):
            trace = convert([cut], Options())
            assert {"cut_off_json", "mended_json"} & set(trace.frame("ledger")["kind"])
            assert list(integrity.broken_rules(trace)) == []


@damaged
def test_a_broken_input_is_refused_or_counted(case: FixtureCase) -> None:
    expected = case.expected
    if "exit_code" in expected:
        with pytest.raises(XspError) as refused:
            trace_of(case)
        assert expected["says"] in str(refused.value)
        assert "\n" not in str(refused.value)
        return
    counted = facts(trace_of(case))
    for table in ("ledger", "attribution"):
        for key, count in expected.get(table, {}).items():
            assert counted[table].get(key) == count, key
    assert list(integrity.broken_rules(trace_of(case))) == []


@pytest.mark.parametrize("case", _SYNTHETIC, ids=_named)
def test_a_synthetic_case_is_what_its_program_makes(case: Case) -> None:
    folder = FixtureCase(case.path).folder
    for name, content in case.files().items():
        assert _unpacked((folder / name).read_bytes()) == _unpacked(content), name


def _unpacked(content: bytes) -> object:
    """Packed bytes differ between versions of zlib, SQLite and Parquet; what is in them may not."""
    if content.startswith(b"SQLite format 3"):
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            return list(database.iterdump())
    if content.startswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(content))
        return table.schema.metadata, table.to_pylist()
    try:
        return gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError):
        return b"cut" if content.startswith(b"\x1f\x8b") else content


@pytest.mark.parametrize("case", SOUND + DAMAGED + RUN_SETS, ids=_named)
def test_a_case_says_how_it_was_made_and_stays_small(case: FixtureCase) -> None:
    assert {"what", "command", "date", "synthetic", "read"} <= set(case.about)
    assert (case.folder / case.about["read"]).exists()
    assert sum(file.stat().st_size for file in case.folder.rglob("*.*")) < _MAX_BYTES


def test_every_case_on_disk_is_in_the_catalog() -> None:
    assert sorted(c.name for c in SOUND + DAMAGED + RUN_SETS) == sorted(c.path for c in CASES)
