"""Ranks of one job, each with a leveled set of its own: one profile, on one axis, each over its own steps."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from tests.helpers.run_sets import write_run
from tests.helpers.synth import KinetoTrace
from xsp.opening import load
from xsp.reading import Reading
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.run_set import is_run_set, rank_sets
from xsp_model import bundle

if TYPE_CHECKING:
    from pathlib import Path

_BASE_NS = 1_700_000_000_000_000_000


def _rank(root: Path, rank: int, *, late_ns: int, step_ns: int, kernel_ns: int) -> None:
    """A rank whose profile began so much later; its step, and in a span of 100 us one kernel on its device."""
    described = {"batch_size": 8, "device": {"name": "GPU"}, "rank": rank, "world_size": 2}
    folder = root / f"rank-{rank}"
    write_run(folder / "m", "M", None, **described, step_durations_ns=[step_ns] * 3)
    trace = KinetoTrace(baseTimeNanoseconds=_BASE_NS + late_ns)
    trace.step(1, 0, 100_000)
    trace.module("Linear_0", 0, 100_000)
    trace.operator("aten::linear", 10_000, 80_000)
    trace.launch("gemm", 20_000, 30_000, kernel_ns)
    write_run(folder / "mlg", "MLG", trace, **described)


@pytest.fixture(name="job")
def fixture_job(tmp_path: Path) -> Path:
    _rank(tmp_path, 0, late_ns=0, step_ns=1_000_000, kernel_ns=40_000)
    _rank(tmp_path, 1, late_ns=5_000, step_ns=1_200_000, kernel_ns=20_000)
    return tmp_path


def test_ranks_stand_on_one_axis_by_the_times_they_state(job: Path) -> None:
    profile = load([str(job)], Reading(), lambda _: None)
    runs = profile.frame("runs").select("run_id", "rank", "world_size", "role")
    assert runs.rows() == [(0, 0, 2, "model"), (1, 0, 2, "kernels"), (2, 1, 2, "model"), (3, 1, 2, "kernels")]
    kernels = profile.frame("spans").filter(level="kernel").sort("run_id")
    first, second = kernels["start_ns"].to_list()
    assert second - first == 5_000  # the same place in both traces, and one of them began so much later
    assert kernels["run_id"].to_list() == [1, 3]
    assert kernels["span_id"].n_unique() == 2
    epochs = profile.frame("runs").filter(pl.col("role") == "kernels")["epoch_ns"]
    assert epochs.n_unique() == 1


def test_latency_is_the_mean_of_the_ranks_and_device_time_their_sum(job: Path) -> None:
    frames = StepView.of(load([str(job)], Reading(), lambda _: None))
    assert run(find("A01"), frames).table["latency_ns"].to_list() == [1_100_000]  # of 1.0 and 1.2 ms
    assert run(find("A10"), frames).table["duration_ns"].sum() == 40_000 + 20_000


def test_a_rank_set_is_a_folder_of_run_sets_by_number(job: Path) -> None:
    for name in ("rank-10", "rank-x", "other"):
        write_run(job / name / "m", "M", None, step_durations_ns=[1_000])
    (job / "rank-2").mkdir()  # of a rank that left nothing
    assert [each.name for each in rank_sets(job)] == ["rank-0", "rank-1", "rank-10"]
    assert not is_run_set(job)
    assert rank_sets(job / "rank-0") == []
    assert rank_sets(job / "nothing") == []


@pytest.mark.slow
def test_a_rank_and_its_copy_are_one_rank_and_that_is_said(job: Path) -> None:
    shutil.rmtree(job / "rank-1")
    alone = load([str(job)], Reading(), lambda _: None)
    shutil.copytree(job / "rank-0", job / "rank-1")
    profile = load([str(job)], Reading(), lambda _: None)
    assert profile.frame("spans").equals(alone.frame("spans"))
    assert ledger_counts(profile)["same_content_again"] == 1
    assert "same_rank_again" not in ledger_counts(profile)


@pytest.mark.slow
def test_two_sets_of_one_rank_are_said(job: Path) -> None:
    (job / "rank-0").rename(job / "rank-2")
    _rank(job, 0, late_ns=0, step_ns=1_100_000, kernel_ns=30_000)
    profile = load([str(job)], Reading(), lambda _: None)
    assert profile.frame("runs").height == 6
    assert ledger_counts(profile)["same_rank_again"] == 2


@pytest.mark.slow
def test_a_profile_beside_the_ranks_that_it_is_of_is_said(job: Path) -> None:
    bundle.write(load([str(job)], Reading(), lambda _: None), job / "job.xsp")
    profile = load([str(job)], Reading(), lambda _: None)
    assert profile.frame("runs").height == 4
    assert ledger_counts(profile)["same_content_again"] == 1
    shutil.rmtree(job / "rank-1")
    counts = ledger_counts(load([str(job)], Reading(), lambda _: None))
    assert counts["bundle_not_read"] == 1
    assert "same_content_again" not in counts
