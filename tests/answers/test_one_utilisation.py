"""How much a device was used is one number: on the terminal, on the page, in JSON and in the cohort, and by hand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import xsp
from xsp.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


pytestmark = pytest.mark.real

_SHOWN = 0.1  # of a percent: one digit behind the point for people, and 100.0 only of what is all
_TRIMMED = 2.0  # by hand all steps count, in a mean step neither the slowest nor the fastest of them
_KINETO = (
    "alexnet_cuda_sync", "bert_small.h100", "bert_small.mi300x", "cuda_graphs", "diff_control", "diff_test",
    "event_sync_multi_stream", "graph_pairs/vllm_piecewise.mi300.capture", "graph_pairs/xdit_flux.mi300.capture",
    "graph_pairs/xdit_flux.mi300.replay", "minitoy_train.mi250", "nccl_training",
    "normalization_layers_train.mi300x", "resnet18_train_ddp.mi300x", "resnet50_train_torch18_oldcats",
    "resnet50_train_torch19.v100", "resnet_train.rtx2080ti", "vllm_prefilldecode_piecewise_graph.mi300",
)  # fmt: skip
_STEPLESS = {
    "nsys/cloverleaf.a100.nsys2024_5.sqlite": "nsight_facts.busy_ms",
    "nsys/h100_fsdp_2gpu.nsys2026_2.sqlite": "nsight_facts.busy_ms",
    "nsys/h100_mfu_before_2gpu.nsys2026_2.sqlite": "nsight_facts.busy_ms",
    "nsys/saxpy_mpi.a100.nsys2022_2.sqlite": "nsight_facts.busy_ms",
    "nvprof/nvprof_gputrace.gtx950.csv": "text_facts.nvprof_busy_ms",
    "nvprof/trace.gtx950.csv": "text_facts.nvprof_busy_ms",
    "nvprof/trace_async.gtx950.csv": "text_facts.nvprof_busy_ms",
    "rocprof/dispatches.mi350x.rocprofv3.json.gz": "text_facts.rocprof_busy_ms",
}
_ITERATIONS = {  # by the ends of Optimizer.step: what an iteration begins with, and how many are of ramp-up
    "kineto/resnet18_train_ddp.mi300x.json.gz": ("Optimizer.zero_grad", 2),
    "kineto/resnet_train.rtx2080ti.json.gz": ("enumerate(DataLoader)", 1),
}
_ONE_STEP = "kineto/vllm_prefilldecode_piecewise_graph.mi300.json.gz"  # all of its work is of one step of the engine
_FILES = [f"kineto/{name}.json.gz" for name in _KINETO] + [
    "kineto/dlrm_8rank.v100", *_STEPLESS, "xplane/conv3d_8gpu.mi300x.jax.xplane.pb", "xplane/gemm.mi300x.jax.xplane.pb",
    "xplane/transformer_train_multiworker.v100.tf.xplane.pb",
]  # fmt: skip
_UNKNOWN = (
    "kineto/cpu_only.json.gz", "kineto/simple_cupti_counters.json.gz", "nsys/no_cuda_tables.rtx4090.nsys2023_4.sqlite",
    "nsys/no_kernels.rtx5060ti.nsys2025_1.sqlite", "tf_timeline/anna_cpu.tf1.json", "loadgen/server_with_trace",
)  # fmt: skip


@dataclass(frozen=True)
class Used:
    """What each place states, in percent of the window; one number a device where the place has one for each."""

    json: list[float]
    of_all: float
    of_judged: float
    terminal: list[float]
    page: float | None
    cohort: float | None
    busy_ms: list[float]
    step_count: int


def _run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.stdout


@cache
def _used(path: Path, folder: Path) -> Used:
    folder.mkdir(exist_ok=True)
    trace = xsp.open(path, cache=False)
    trace.save(folder / "trace.xsp")
    bundle = str(folder / "trace.xsp")
    table = json.loads(_run("analyze", "-a", "B03", "-f", "json", bundle))
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) if isinstance(row, list) else row for row in table["rows"]]
    trace.report(folder / "page.html")
    is_whole = table["provenance"]["steps"] == "all"
    return Used(
        json=[100 * row["busy_ns"] / row["window_ns"] for row in rows],
        of_all=100 * sum(row["busy_ns"] for row in rows) / sum(row["window_ns"] for row in rows),
        of_judged=100 * sum(row["busy_ns"] for row in rows) / _judged_ns(rows, is_whole=is_whole),
        terminal=_terminal(_run("analyze", "-a", "B03", bundle)),
        page=_page((folder / "page.html").read_text(encoding="utf-8")),
        cohort=_cohort(_run("cohort", "-f", "json", str(folder))),
        busy_ms=[row["busy_ns"] / 1e6 for row in rows],
        step_count=len(trace.info().summary.steps),
    )


def _terminal(text: str) -> list[float]:
    """The last column of the table: idle time in percent."""
    body = text.partition("──\n")[2].partition("\n\n")[0]
    return [100 - float(line.split()[-1].removeprefix("<")) for line in body.splitlines() if line.strip()]


def _judged_ns(rows: Sequence[Mapping[str, float]], *, is_whole: bool) -> float:
    """The devices' windows; of a trace taken whole without start-up and end."""
    return sum(row["window_ns"] - (row["idle_initialisation_ns"] if is_whole else 0) for row in rows)


def _page(text: str) -> float | None:
    match = re.search(r'"id":"busy","label":"[^"]*","value":"<?([\d.]+)\s%', text)
    return float(match[1]) if match else None


def _cohort(text: str) -> float | None:
    tables = json.loads(text)
    table = next(one for one in (tables if isinstance(tables, list) else [tables]) if one["analysis"] == "B13")
    names = [column["name"] for column in table["columns"]]
    (row,) = table["rows"]
    row = dict(zip(names, row, strict=True)) if isinstance(row, list) else row
    share = row["gpu_utilisation_share"]
    return None if share is None else 100 * share


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and pages are written."""
    return tmp_path_factory.mktemp("utilisation")


def _folder(scratch: Path, name: str) -> Path:
    return scratch / re.sub(r"\W+", "_", name)


@pytest.mark.parametrize("name", _FILES)
def test_every_place_states_one_utilisation(name: str, real_dir: Path, scratch: Path) -> None:
    used = _used(real_dir / name, _folder(scratch, name))

    assert used.terminal == pytest.approx(used.json, abs=_SHOWN)
    assert used.cohort == pytest.approx(used.of_all, abs=1e-6)
    assert used.page == pytest.approx(used.of_judged, abs=_SHOWN)
    assert max(used.json) <= 100


@pytest.mark.parametrize("name", [name for name in _FILES if not name.startswith("xplane")])
def test_busy_time_is_what_the_script_by_hand_unites(name: str, real_dir: Path, scratch: Path) -> None:
    used = _used(real_dir / name, _folder(scratch, name))

    if name in _STEPLESS:
        assert used.busy_ms == pytest.approx(_by_hand(_STEPLESS[name], real_dir / name), abs=1e-3)
    elif name.endswith("v100"):
        assert used.json == pytest.approx(_by_hand("kineto_facts.rank_busy_percent", real_dir / name), abs=0.01)
    elif name == _ONE_STEP:
        assert used.json == [pytest.approx(_by_hand("kineto_facts.capture_busy_percent", real_dir / name), abs=0.01)]
    elif name in _ITERATIONS:
        by_hand = _by_hand("kineto_facts.iteration_busy_percent", real_dir / name, *_ITERATIONS[name])
        assert used.json == [pytest.approx(by_hand, abs=_SHOWN)]
    elif used.step_count:
        by_hand = _by_hand("kineto_facts.step_busy_percent", real_dir / name)
        assert used.json == [pytest.approx(by_hand, abs=_TRIMMED)]
    else:
        assert used.busy_ms == [pytest.approx(_by_hand("kineto_facts.busy_ms", real_dir / name), abs=1e-3)]


def _by_hand(name: str, path: Path, *settings: object) -> float | list[float]:
    module, function = name.split(".")
    figures: float | list[float] = getattr(import_module(f"tests.answers.by_hand.{module}"), function)(path, *settings)
    return figures


@pytest.mark.parametrize("name", _UNKNOWN)
def test_without_device_work_no_place_states_a_utilisation(name: str, real_dir: Path, scratch: Path) -> None:
    folder = _folder(scratch, name)
    folder.mkdir()
    trace = xsp.open(real_dir / name, cache=False)
    trace.save(folder / "trace.xsp")
    trace.report(folder / "page.html")

    assert "B03" not in trace.analyses().filter(trace.analyses()["answerable"])["id"].to_list()
    assert _page((folder / "page.html").read_text(encoding="utf-8")) is None
    assert _cohort(_run("cohort", "-f", "json", str(folder))) is None
