"""Real traces: totals equal an independent reader's to the nanosecond, and no time is lost on any of them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import total
from xsp_analyze.catalog import all_analyses, find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.needs import holds
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real

_KINETO = (
    "alexnet_cuda_sync",
    "bert_small.h100",
    "bert_small.mi300x",
    "cpu_only",
    "cuda_graphs",
    "diff_control",
    "diff_test",
    *(f"dlrm_8rank.worker{n}" for n in range(8)),
    "event_sync_multi_stream",
    "minitoy_train.mi250",
    "nccl_training",
    "normalization_layers_train.mi300x",
    "resnet18_train_ddp.mi300x",
    "resnet50_train_torch18_oldcats",
    "resnet50_train_torch19.v100",
    "resnet_train.rtx2080ti",
    "simple_cupti_counters",
    "vllm_prefilldecode_piecewise_graph.mi300",
)
_NSYS = (
    "cloverleaf.a100.nsys2024_5",
    "h100_fsdp_2gpu.nsys2026_2",
    "h100_mfu_before_2gpu.nsys2026_2",
    "no_cuda_tables.rtx4090.nsys2023_4",
    "no_kernels.rtx5060ti.nsys2025_1",
    "saxpy_mpi.a100.nsys2022_2",
)


def kineto_path(real_dir: Path, name: str) -> Path:
    if not name.startswith("dlrm"):
        return real_dir / "kineto" / f"{name}.json.gz"
    [path] = (real_dir / "kineto" / "dlrm_8rank.v100").glob(f"{name.split('.')[1]}_*")
    return path


@lru_cache(maxsize=32)
def converted(path: Path) -> Trace:
    return convert([path], Options())


def totals(table: pl.DataFrame, key: str, count: str, duration: str) -> dict[str, dict[str, int]]:
    sums = table.group_by(key).agg(pl.col(count).sum(), pl.col(duration).sum()).filter(pl.col(count) > 0)
    return {str(k): {"count": c, "duration_ns": d} for k, c, d in sums.rows()}


def assert_conserved(trace: Trace) -> None:
    """A10 = A11 + what has no layer = A15, exactly over the whole trace, to rounding in a mean step."""
    for steps, slack in (("all", 0.0), (None, 1e-9)):
        view = StepView.of(trace, steps)
        if not holds(view.of_trace, "kernel"):
            continue
        lost = total(coverage.ledger(view).filter(pl.col("kind").str.contains("^orphan_|^model_only$"))["duration_ns"])
        by_name = total(run(find("A10"), view).table["duration_ns"])
        by_model = total(run(find("A15"), view).table["kernel_duration_ns"].drop_nulls())
        assert abs(by_name - by_model) <= slack * by_name
        if holds(view.of_trace, "layer"):
            by_layer = total(run(find("A11"), view).table["kernel_duration_ns"])
            assert abs(by_layer + lost - by_name) <= slack * by_name
        if steps == "all":
            own = trace.frame("spans").filter(pl.col("attribution").is_not_null())
            assert by_name == total(own["duration_ns"])


def _without_replays(own: Mapping[str, Any], reference: Mapping[str, Any]) -> int:
    """How much more the reference gives to modules: it counts replays of graphs as the launching module's own."""
    assert {name: row for name, row in own.items() if name in reference} == own
    differing = {name: row["duration_ns"] for name, row in reference.items() if own.get(name) != row}
    assert len(differing) <= 1
    return sum(time - own.get(name, {"duration_ns": 0})["duration_ns"] for name, time in differing.items())


def _replayed(trace: Trace) -> int:
    """Device time of replays inside modules, which belongs to no layer."""
    kinds = coverage.attribution(StepView.of(trace, "all"))
    rows = kinds.filter(pl.col("kind") == "graph_replay")["duration_ns"].sum()
    return int(rows) if trace.scan("runs").select("layer_source").collect()["layer_source"].item() == "module" else 0


@pytest.mark.parametrize("name", _KINETO)
def test_totals_equal_an_independent_reader(real_dir: Path, name: str) -> None:
    trace = converted(kineto_path(real_dir, name))
    expected = json.loads((real_dir / "reference" / "kineto" / f"{name}.json").read_text())
    view = StepView.of(trace, "all")
    if expected["activities"]:
        kernels = run(find("A10"), view).table
        only = kernels.filter(pl.col("kind") == "kernel")
        assert totals(only, "kernel_name", "count", "duration_ns") == expected["kernels_by_name"]
        assert totals(kernels, "kind", "count", "duration_ns") == expected["device_activity"]
        devices = run(find("B03"), view).table
        assert {
            str(d): {"first_ns_to_last_ns": window, "busy_ns": busy}
            for d, window, busy in devices.select("device_id", "active_ns", "busy_ns").rows()
        } == expected["devices"]
    if expected["modules_inclusive"]:
        modules = run(find("B06"), view).table.filter(pl.col("phase").is_in(["forward", "recompute"]))
        inclusive = totals(modules, "module_instance", "activity_count", "device_sum_ns")
        assert inclusive == expected["modules_inclusive"]
        own = totals(modules, "module_instance", "self_activity_count", "self_device_sum_ns")
        assert _without_replays(own, expected["modules_self"]) == _replayed(trace)
    assert_conserved(trace)


@pytest.mark.parametrize("name", _NSYS)
def test_no_time_is_lost_on_nsight_files(real_dir: Path, name: str) -> None:
    assert_conserved(converted(real_dir / "nsys" / f"{name}.sqlite"))


def test_no_time_is_lost_over_eight_ranks(real_dir: Path) -> None:
    trace = converted(real_dir / "kineto" / "dlrm_8rank.v100")
    assert_conserved(trace)
    assert run(find("B03"), StepView.of(trace, "all")).table.height == 8


@pytest.mark.parametrize("name", ["bert_small.h100", "cuda_graphs", "diff_control", "minitoy_train.mi250"])
@pytest.mark.parametrize("steps", ["all", "mean", "each"])
def test_every_analysis_answers_with_unique_keys(real_dir: Path, name: str, steps: str) -> None:
    view = StepView.of(converted(kineto_path(real_dir, name)), steps)
    for analysis in (
        a for a in all_analyses() if a.id[0] in "AB" and all(holds(view.of_trace, need) for need in a.needs)
    ):
        result = run(analysis, view)
        keys = analysis.key_of(result.columns)
        assert not result.table.select(keys).is_duplicated().any(), analysis.id
        assert run(analysis, StepView.of(view.trace, steps)).table.equals(result.table), analysis.id


@pytest.fixture(scope="module")
def leveled(real_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A leveled run set with known answers, from the generator beside the real traces."""
    script = real_dir.parent / "tools" / "leveled-example"
    if not script.exists():
        pytest.skip("no generator of leveled runs beside the real traces")
    out = tmp_path_factory.mktemp("leveled")
    command = [sys.executable, str(script), "--seed", "3", "--steps", "7", "--out", str(out)]
    subprocess.run(command, check=True)
    return out, json.loads((out / "expected.json").read_text())


def test_layer_latency_of_a_layer_run_is_exact(leveled: tuple[Path, dict[str, Any]]) -> None:
    folder, expected = leveled
    view = StepView.of(converted(folder / "ML" / "trace.json.gz"))
    rows = run(find("A02"), view).table.select("layer_index", "layer_name", "layer_type", "latency_ns").rows(named=True)
    assert rows == [{key: row[key] for key in rows[0]} for row in expected["A02"]]
    assert coverage.provenance(view)["layer_latency_basis"] == "host"


def test_kernels_of_a_kernel_run_are_exact(leveled: tuple[Path, dict[str, Any]]) -> None:
    folder, expected = leveled
    view = StepView.of(converted(folder / "MLG" / "trace.json.gz"))
    columns = ("layer_index", "layer_name", "kernel_name", "kind", "duration_ns")
    rows = run(find("A08"), view).table.select(columns).rows(named=True)
    assert rows == [{key: row[key] for key in columns} for row in expected["A08"]]
    by_name = {(r["kernel_name"], r["kind"]): r for r in expected["A10"]}
    for name, kind, count, duration in (
        run(find("A10"), view).table.select("kernel_name", "kind", "count", "duration_ns").rows()
    ):
        answer = by_name.pop((name, kind))
        assert (count, duration) == (answer["count"], pytest.approx(answer["duration_ns"], rel=1e-12))
    assert not by_name
    measured = {r["scope"]: r["measured_ns"] for r in expected["B02"] if r["level"] == "kernel"}
    for row, answer in zip(run(find("A11"), view).table.iter_rows(named=True), expected["A11"], strict=True):
        assert row["kernel_duration_ns"] == pytest.approx(answer["kernel_duration_ns"], rel=1e-12)
        assert row["layer_latency_ns"] == measured[row["layer_name"]]
    assert run(find("A15"), view).table["model_latency_ns"].to_list() == [measured["model"]]
