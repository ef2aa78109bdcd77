"""A trace is the same whether held in memory or worked out piece by piece, its columns and tables on disk."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from benchmarks import generate
from tests.helpers.fixture_cases import SOUND, every, trace_of
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.link import link
from xsp_model import XspError, bundle, integrity
from xsp_model.columns import arrays
from xsp_model.limits import override_limits
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helpers.fixture_cases import FixtureCase
    from xsp_model import Trace

_ON_DISK = [case for case in SOUND if case.name.startswith(("torch_profiler/", "nsys_sqlite/"))]


@contextmanager
def _out_of_core(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Within, everything is large, and whatever is written is written into the folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with override_limits(
        mapped_column_min_bytes=0,
        spilled_min_spans=0,
        pass_rows=64,
        row_group_rows=1000,
        nsys_staged_min_rows=0,
        nsys_staged_piece_rows=50,
        trace_piece_rows=700,
        compiled_min_bytes=0,
        compiled_compile_min_bytes=0,
    ):
        yield


def _same(actual: Trace, expected: Trace) -> None:
    for name in TABLES:
        ours, theirs = (
            each.frame(name).with_columns(pl.col(pl.Categorical).cast(pl.String)) for each in (actual, expected)
        )
        assert ours.equals(theirs), name


@every(_ON_DISK)
def test_fixtures_are_the_same_piece_by_piece(
    case: FixtureCase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = trace_of(case)
    with _out_of_core(monkeypatch, tmp_path):
        converted = convert(case.raw_files, Options())
        _same(converted, expected)
        assert list(integrity.broken_rules(converted)) == []


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grown") / "trace.json"
    generate.grow(path, 4_000_000)
    return path


@pytest.mark.slow
def test_a_grown_trace_and_its_answers_are_the_same(
    grown: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = convert([grown], Options())
    (tmp_path / "scratch").mkdir()
    with _out_of_core(monkeypatch, tmp_path / "scratch"):
        converted = convert([grown], Options())
        _same(converted, expected)
        bundle.write(converted, tmp_path / "found.xsp")
        opened = bundle.read(tmp_path / "found.xsp")
        for identity in ("A01", "A02", "A08", "A10", "A11", "A15", "B01", "B03"):
            ours, theirs = (run(find(identity), StepView.of(trace)).table for trace in (opened, expected))
            assert ours.equals(theirs), identity


@pytest.mark.slow
def test_nothing_is_left_in_the_scratch_folder(grown: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with _out_of_core(monkeypatch, tmp_path):
        trace = convert([grown], Options())
    assert [path.name[:4] for path in tmp_path.iterdir()] == ["xsp-"]  # the tables; columns have no names
    del trace
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_conversion_leaves_nothing(grown: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(link, "_add_moments", interrupt)
    with _out_of_core(monkeypatch, tmp_path), pytest.raises(KeyboardInterrupt):
        convert([grown], Options())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with override_limits(mapped_column_min_bytes=0), pytest.raises(XspError, match="no room is left"):
        arrays.empty(10, np.int64)


@override_limits(mapped_column_min_bytes=100)
def test_a_column_grows_from_memory_into_a_file() -> None:
    column = arrays.Growing(np.int64)
    for first in range(0, 100, 7):
        column.add(np.arange(first, min(first + 7, 100)))
    values = column.column()
    arrays.release()
    assert values.tolist() == list(range(100))


def test_rows_gathered_on_disk_keep_nulls_and_words() -> None:
    frame = pl.DataFrame({"n": [1, None, 3], "w": ["a", "b", None]}, schema_overrides={"w": pl.Categorical})
    rows = np.array([2, 1, 1, 0])
    expected = frame[rows]
    with override_limits(mapped_column_min_bytes=0):
        assert arrays.gather_rows(frame, rows).equals(expected)
