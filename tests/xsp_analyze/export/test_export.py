"""Parts of a trace, and how export files come to be."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.exported import small, with_texts
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_analyze.export import EXPORTERS, Exporter, export, find, part_of
from xsp_model import XspError, integrity
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_chosen_is_the_trace_itself(tmp_path: Path) -> None:
    trace = small(tmp_path)
    assert part_of(trace) is trace


def test_a_step_keeps_its_spans_their_times_and_their_layers(tmp_path: Path) -> None:
    trace = small(tmp_path)
    part = with_texts(part_of(trace, step=1).frame("spans"))
    full = with_texts(trace.frame("spans")).filter(pl.col("step") == 1)
    columns = ["name", "start_ns", "duration_ns", "level", "phase", "attribution"]
    assert part.select(columns).equals(full.select(columns))
    assert part["parent_id"].null_count() == 1


@every(SOUND)
@pytest.mark.parametrize("levels", [["kernel"], ["model", "layer", "kernel"], [str(level) for level in LEVELS]])
def test_a_part_is_a_sound_trace_with_the_same_device_time(case: FixtureCase, levels: list[str]) -> None:
    trace = trace_of(case)
    if not set(levels) & set(trace.levels):
        pytest.skip("the case has none of these levels")
    part = part_of(trace, levels=levels)
    assert list(integrity.broken_rules(part)) == []
    total, kept = (t.frame("spans").filter(pl.col("level") == "kernel")["duration_ns"].sum() for t in (trace, part))
    assert kept == total


def test_a_span_hangs_under_its_nearest_ancestor_that_is_there(tmp_path: Path) -> None:
    spans = with_texts(part_of(small(tmp_path), levels=["layer", "kernel"]).frame("spans"))
    names = spans["name"].to_list()
    parents = {row["name"]: None if row["parent_id"] is None else names[row["parent_id"]] for row in spans.to_dicts()}
    assert parents["gemm<float>"] == "Linear_0"
    assert parents["Linear_0"] == "Net_0"
    assert parents["gemm_backward"] is None


@pytest.mark.parametrize(
    ("step", "levels", "says"),
    [
        (77, (), "the trace has no step 77"),
        (None, ("library",), "the trace has no spans of level library"),
        (2, ("library",), "no spans of level library in step 2"),
        (None, ("kernels",), "there is no level 'kernels'. Levels: application, model"),
    ],
)
def test_an_empty_part_is_refused(step: int | None, levels: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=says):
        part_of(small(tmp_path), step=step, levels=levels)


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(XspError, match="Known formats: jaeger, otlp, chrome, perfetto, speedscope, graphml"):
        find("pdf")


@pytest.mark.parametrize("name", [e.name for e in EXPORTERS if isinstance(e, Exporter)])
def test_a_name_in_gz_is_compressed_the_same_bytes_each_time(name: str, tmp_path: Path) -> None:
    trace = small(tmp_path)
    plain, packed = tmp_path / "deep" / "a.json", tmp_path / "deep" / "a.json.gz"
    export(trace, find(name), plain)
    export(trace, find(name), packed)
    first = packed.read_bytes()
    assert gzip.decompress(first) == plain.read_bytes()
    export(trace, find(name), packed)
    assert packed.read_bytes() == first
    assert sorted(p.name for p in plain.parent.iterdir()) == ["a.json", "a.json.gz"]
