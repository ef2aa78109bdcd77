"""The ncu runner: its lists against NVIDIA's and against our vocabulary, its command, and what goes wrong."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.runners.async_device import AsyncDevice
from tests.runners.fake_tool import write_tool
from xsp_ingest.convert import convert
from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.counters.ncu_names import CHIPS, PACKED, choose_counters, ncu_table, partial
from xsp_ingest.ingester import Options
from xsp_model.vocabulary import COUNTERS
from xsp_runners import ncu as runner
from xsp_runners.ncu import NO_PERMISSION, Ncu, is_refusal, problem_in, profile_command
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.plan import counter_command
from xsp_runners.tools.counter_lists import Architecture, architecture_of, architectures, default_groups, groups_of

_EACH = pytest.mark.parametrize("architecture", architectures(), ids=lambda each: each.name)
_CHIPS = "ga100, gh100\n"
_QUERY = "Chip gh100\n----\nMetric Name\n----\ndram__bytes_read   Counter\ngpu__time_duration   Counter\n"
_FLOPS = ["flop_count_dp", "flop_count_hp", "flop_count_sp"]
_MEMORY = ["achieved_occupancy", "dram_read_bytes", "dram_write_bytes", "l2_bytes", "replayed_duration_ns"]
_ACTIVITY = [
    "dram_utilization",
    "ipc",
    "l1_bytes",
    "l1_hit_rate",
    "l2_hit_rate",
    "sm_efficiency",
    "tensor_instruction_count",
    "warp_instruction_count",
]


def _in_our_vocabulary(metrics: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """What XSP makes of these counters: names of the vocabulary, and counters that it has no use for."""
    wide = pl.DataFrame({"row": [0], **{metric: [1.0] for metric in metrics}})
    table = ncu_table(metrics)
    counters = canonical(Measured(wide, dict.fromkeys(metrics, "1"), "ncu"), table)
    used = {name for formulas in table.values() for formula in formulas for name in formula.names}
    return sorted(set(counters["metric"].cast(pl.String)) & set(COUNTERS)), [m for m in metrics if m not in used]


def test_every_chip_that_xsp_knows_is_listed_once() -> None:
    listed = [chip for each in architectures() for chip in each.chips]
    assert sorted(listed) == sorted(CHIPS)


@_EACH
def test_every_listed_counter_is_one_that_xsp_understands(architecture: Architecture) -> None:
    expected = {
        "flops": _FLOPS,
        "memory": _MEMORY,
        "activity": _ACTIVITY,
        "throughput": ["compute_utilization", "memory_utilization"],
    }
    for group, metrics in architecture.groups.items():
        names, unused = _in_our_vocabulary(metrics)
        assert unused == []
        assert len(set(metrics)) == len(metrics)
        if group != "tensor":
            assert names == expected[group]


@_EACH
def test_tensor_counters_are_whole_and_none_is_counted_twice(architecture: Architecture) -> None:
    metrics = architecture.groups.get("tensor", ())
    assert not partial(metrics)
    assert sorted(part.name for parts in choose_counters(metrics).values() for part in parts) == sorted(metrics)


def test_chips_with_packed_instructions_count_them() -> None:
    packed = "smsp__sass_thread_inst_executed_op_ffma2_pred_on.sum"
    having = {chip for each in architectures() if packed in each.groups["flops"] for chip in each.chips}
    assert having == set(PACKED)


@pytest.mark.real
@_EACH
def test_nvidia_knows_every_counter_for_every_chip(architecture: Architecture, real_dir: Path) -> None:
    metrics_of_chip: dict[str, set[str]] = {}
    for release in ("12", "13"):
        content = gzip.decompress(
            (real_dir / "reference" / "ncu_metrics" / f"metrics_cu{release}.json.gz").read_bytes()
        )
        for chip, kinds in json.loads(content).items():
            metrics_of_chip.setdefault(chip, set()).update(name for names in kinds.values() for name in names)
    for chip, metrics in itertools.product(architecture.chips, architecture.groups.values()):
        assert [metric for metric in metrics if metric.partition(".")[0] not in metrics_of_chip[chip]] == []


@pytest.mark.real
@pytest.mark.parametrize("capability", ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"])
def test_no_type_that_the_chip_multiplies_is_left_out(capability: str, real_dir: Path) -> None:
    """But the two that no model uses."""
    architecture = architecture_of(capability=capability)
    chip = architecture.chips[0]
    listed: set[str] = set()
    for release in ("12", "13"):
        content = gzip.decompress(
            (real_dir / "reference" / "ncu_metrics" / f"metrics_cu{release}.json.gz").read_bytes()
        )
        listed.update(f"{name}.sum" for name in json.loads(content).get(chip, {}).get("counter", ()))
    assert set(choose_counters(listed)) - set(choose_counters(architecture.groups["tensor"])) <= {"int1", "int4"}


@pytest.mark.parametrize(
    ("device", "capability", "chip"),
    [
        ("Tesla V100-SXM2-16GB", "7.0", "GV100"),
        ("Tesla T4", "7.5", "TU102"),
        ("NVIDIA GeForce GTX 1660 Ti", "7.5", "TU116"),
        ("Some new Turing", "7.5", "TU102"),
        ("NVIDIA A100-SXM4-80GB", None, "GA100"),
        ("NVIDIA A10G", None, "GA102"),
        ("NVIDIA A10", None, "GA102"),
        ("NVIDIA GeForce RTX 4090", "8.9", "AD102"),
        ("NVIDIA L4", None, "AD102"),
        ("NVIDIA L40S", None, "AD102"),
        ("NVIDIA H200", None, "GH100"),
        ("NVIDIA GH200 480GB", "9.0", "GH100"),
        ("NVIDIA B200", "10.0", "GB100"),
        ("NVIDIA B300", None, "GB110"),
        ("NVIDIA GeForce RTX 5090", "12.0", "GB202"),
        (None, "9.0", "GH100"),
        ("gb205", None, "GB202"),
    ],
)
def test_the_gpu_says_which_counters(device: str | None, capability: str | None, chip: str) -> None:
    assert architecture_of(device=device, capability=capability).chips[0] == chip


@pytest.mark.parametrize(("device", "capability"), [("Radeon", None), ("NVIDIA Thor", "11.0"), (None, None)])
def test_a_gpu_that_is_not_listed_is_refused(device: str | None, capability: str | None) -> None:
    with pytest.raises(RunnerError, match=r"no counters are listed for .*: name the chip, one of GV100, "):
        architecture_of(device=device, capability=capability)


def test_groups_are_those_asked_for_or_the_default_ones() -> None:
    hopper = architecture_of(device="GH100")
    assert list(groups_of(hopper)) == list(default_groups()) == ["flops", "memory", "tensor", "activity"]
    assert list(groups_of(hopper, ["throughput"])) == ["throughput"]
    assert list(groups_of(architecture_of(device="TU116"))) == ["flops", "memory", "activity"]  # it has no tensor cores
    with pytest.raises(
        RunnerError, match="flop is no group of counters: choose of activity, flops, memory, roofline, "
    ):
        groups_of(hopper, ["flop"])


def test_a_set_of_groups_is_its_groups_each_a_run_of_its_own() -> None:
    hopper = architecture_of(device="GH100")
    assert list(groups_of(hopper, ["roofline"])) == ["flops", "memory"]
    assert list(groups_of(hopper, ["memory", "roofline"])) == ["memory", "flops"]


@_EACH
def test_what_a_roofline_needs_takes_one_pass_a_run(architecture: Architecture) -> None:
    """A second pass would have memory restored, and find in caches what the first left."""
    assert {name: architecture.passes[name] for name in groups_of(architecture, ["roofline"])} == {
        "flops": 1,
        "memory": 1,
    }


def test_the_command_leaves_clocks_and_caches_alone() -> None:
    command = profile_command(
        ["python", "train.py"],
        Path("out/counters.csv"),
        ["dram__bytes_read.sum", "dram__bytes_write.sum"],
        ranges=["step"],
    )
    assert command == [
        "ncu",
        *("--target-processes", "all", "--clock-control", "none", "--cache-control", "none"),
        *("--nvtx", "--nvtx-include", "step"),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", "dram__bytes_read.sum,dram__bytes_write.sum", "--log-file", "out/counters.csv"),
        *("python", "train.py"),
    ]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "execution", "threads"),
    [
        ("inference", "eager", {"main"}),
        ("training", "eager", {"main", "backward"}),
        ("training", "cudagraph", {"main"}),
    ],
)
def test_ncu_counts_the_kernels_of_a_step_whichever_thread_launched_them(
    tmp_path: Path, mode: str, execution: str, threads: set[str]
) -> None:
    """As many as MLG has of a step, by the range that the command names and the level process marks."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.runners.async_device_torch import simulated  # noqa: PLC0415 (imports torch)
    from xsp_runners import torch_levels  # noqa: PLC0415

    level = ["--level", "MLG", "--workload", "zoo:mlp", "--batch-size", "2", "--mode", mode, "--execution", execution]
    under_ncu = [*level, "--steps", "1", "--recorder", "none", "--annotate", "nvtx", "--out", str(tmp_path / "ncu")]
    with simulated(AsyncDevice()) as device:
        assert torch_levels.main(under_ncu) == 0
    command = counter_command("ncu", ["python"], tmp_path, ["gpu__time_duration.sum"])
    selected = command[command.index("--nvtx-include") + 1]
    counted = [each for each in device.launches if selected in each.ranges]
    with simulated(AsyncDevice()):
        assert torch_levels.main([*level, "--steps", "3", "--out", str(tmp_path / "mlg")]) == 0
    events = json.loads(gzip.decompress((tmp_path / "mlg" / "trace.json.gz").read_bytes()))["traceEvents"]
    assert 3 * len(counted) == sum(event.get("cat") == "kernel" for event in events) > 0
    assert {each.thread for each in counted} == threads


_ERROR = "==ERROR== "
_NO_KERNEL = "ncu saw no kernel in the ranges asked for (`step` is a start/end range, `step/` a push/pop range)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{_ERROR}ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            NO_PERMISSION,
        ),
        (f"{_ERROR}Nsight Compute failed to connect to the CUDA driver (stub?)", "ncu finds no CUDA driver and no GPU"),
        (f"{_ERROR}Failed to find metric dram__x.sum", "ncu says: Failed to find metric dram__x.sum"),
        (f"{_ERROR}unrecognised option '--pagex'. Use --help", "ncu says: unrecognised option '--pagex'. Use --help"),
        ("==PROF== x\n==WARNING== No kernels were profiled.", _NO_KERNEL),
        (f"{_ERROR}Something else", "ncu says: Something else"),
        ("==PROF== Connected to process 1\n", None),
    ],
)
def test_what_ncu_says_becomes_a_sentence(text: str, sentence: str | None) -> None:
    assert problem_in(text) == sentence


def test_the_way_out_of_missing_permission_is_said() -> None:
    assert "NVreg_RestrictProfilingToAdminUsers=0" in NO_PERMISSION
    assert "--cap-add=SYS_ADMIN" in NO_PERMISSION


def _fake(tmp_path: Path, log: str, status: int = 0) -> str:
    body = (
        f"if '--list-chips' in arguments: print({_CHIPS!r})\n"
        "elif '--version' in arguments: print('Version 2025.3.0.0 (build 1)')\n"
        f"elif '--query-metrics' in arguments: print({_QUERY!r})\n"
        f"else:\n    log = arguments[arguments.index('--log-file') + 1]\n"
        f"    pathlib.Path(log).write_text({log!r})\n    sys.exit({status})"
    )
    return write_tool(tmp_path / "ncu", body)


def test_counters_are_checked_with_the_ncu_that_is_there(tmp_path: Path) -> None:
    ncu = Ncu.locate(_fake(tmp_path, ""))
    assert ncu.version == (2025, 3, 0)
    assert ncu.chips == {"GA100", "GH100"}
    hopper = architecture_of(device="H100")
    assert ncu.unknown(["dram__bytes_read.sum", "made__up.sum"], hopper) == ["made__up.sum"]
    with pytest.raises(RunnerError, match="this ncu has no smsp__"):
        runner.checked_plan(ncu, runner.plan(chip="H100"))
    with pytest.raises(RunnerError, match="this ncu is too old for GB100: it knows GA100, GH100"):
        ncu.unknown([], architecture_of(device="B200"))


_ROWS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","dram__bytes_read.sum","dram__bytes_write.sum"\n'
    '"","","","","","","","","","","","byte","byte"\n'
    '"0","1","python","127.0.0.1","add_kernel(float *)","1","7","(128, 1, 1)","(2, 1, 1)","0","9.0","4,096","512"\n'
)


def test_what_ncu_leaves_is_read_by_xsp(tmp_path: Path) -> None:
    counters = ("dram__bytes_read.sum", "dram__bytes_write.sum")
    plan = runner.Plan(architecture_of(device="H100"), {"some": counters})
    logs = runner.record(["true"], tmp_path / "out", plan, ncu=_fake(tmp_path, f"==PROF== x\n{_ROWS}"))
    assert logs == [tmp_path / "out" / "some" / "counters.csv"]
    metrics = convert(logs, Options()).frame("metrics").with_columns(pl.col("metric").cast(pl.String))
    assert dict(metrics.select("metric", "value").iter_rows())["dram_read_bytes"] == 4096


@pytest.mark.parametrize(
    ("log", "status", "sentence"),
    [
        (f"{_ERROR}ERR_NVGPUCTRPERM - The user\n", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        (
            "==WARNING== No kernels were profiled.\n",
            1,
            r"saw no kernel in the ranges asked for .*; it ended with status 1",
        ),
        ("==PROF== Connected\n", 0, "ncu left no counters"),
        (_ROWS, 3, "true under ncu ended with status 3"),
    ],
)
def test_a_run_without_counters_is_refused(tmp_path: Path, log: str, status: int, sentence: str) -> None:
    plan = runner.Plan(architecture_of(device="H100"), {"some": ("dram__bytes_read.sum",)})
    with pytest.raises(RunnerError, match=sentence):
        runner.record(["true"], tmp_path / "out", plan, ncu=_fake(tmp_path, log, status))


def test_without_ncu_and_without_a_gpu_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("XSP_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner.main(["-o", str(tmp_path / "out"), "--", sys.executable, "-V"]) == 2
    assert "ncu: no GPU is known here, as nvidia-smi is not there: name the chip (--chip)\n" in capsys.readouterr().err
    assert runner.main(["--chip", "H100", "-o", str(tmp_path / "out"), "--", sys.executable, "-V"]) == 2
    assert "ncu: ncu is not on the PATH: install it, or say where it is with $XSP_NCU\n" in capsys.readouterr().err
    assert runner.main(["--chip", "H100", "--dry-run", "-o", "out", "--", sys.executable, "-V"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert not (tmp_path / "out").exists()


def test_counters_that_may_not_be_read_are_asked_for_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "refusal", lambda: NO_PERMISSION)
    monkeypatch.setattr(runner, "checked_plan", lambda _, requested: requested)
    monkeypatch.setenv("XSP_NCU", _fake(tmp_path, _ROWS))
    assert runner.main(["--chip", "H100", "-o", str(tmp_path / "out"), "--", sys.executable, "-V"]) == 2
    assert capsys.readouterr() == ("", f"ncu: {NO_PERMISSION}\n")
    assert not (tmp_path / "out").exists()


def test_after_a_refused_group_no_other_is_tried(tmp_path: Path) -> None:
    plan = runner.Plan(architecture_of(device="H100"), {"flops": ("a.sum",), "memory": ("b.sum",)})
    with pytest.raises(RunnerError) as refused:
        runner.record(
            ["true"], tmp_path / "out", plan, ncu=_fake(tmp_path, f"{_ERROR}ERR_NVGPUCTRPERM - The user\n", 1)
        )
    assert is_refusal(str(refused.value))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["flops"]


def test_the_gpu_of_the_machine_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tool(tmp_path / "nvidia-smi", "print('NVIDIA H200, 9.0')")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner.plan().architecture.chips == ("GH100",)
    write_tool(tmp_path / "nvidia-smi", "if 'compute_cap' in arguments[0]: sys.exit(2)\nprint('Tesla V100-SXM2-16GB')")
    assert runner.plan().architecture.chips == ("GV100",)


def test_replays_are_told_where_they_are_known() -> None:
    assert runner.plan(chip="H100").passes == 10
    unlisted = replace(architecture_of(device="H100"), passes={"flops": 1})
    assert runner.Plan(unlisted, {"flops": ()}).passes == 1
    assert runner.Plan(unlisted, {"flops": (), "tensor": ()}).passes is None


@pytest.fixture(scope="module")
def real_ncu() -> Ncu:
    """The ncu to test with."""
    path = os.environ.get("XSP_NCU") or shutil.which("ncu")
    if path is None:
        pytest.skip("NVIDIA's ncu is not here: put it on PATH or set XSP_NCU")
    return Ncu.locate(path)


@pytest.mark.nsys
@_EACH
def test_the_real_ncu_knows_every_counter(architecture: Architecture, real_ncu: Ncu) -> None:
    if not set(architecture.chips) & real_ncu.chips:
        pytest.skip(f"this ncu is older than {architecture.name}")
    for metrics in architecture.groups.values():
        assert real_ncu.unknown(metrics, architecture) == []
    assert real_ncu.unknown(["dram__made_up.sum"], architecture) == ["dram__made_up.sum"]


def _planners() -> list[Path]:
    """NVIDIA's planner of passes in each release that is here: of ncu, and of the CUPTI beside cupti-python."""
    ncu = os.environ.get("XSP_NCU") or shutil.which("ncu")
    python = os.environ.get("XSP_CUPTI_PYTHON")
    folders = []
    if ncu:
        folder = Path(ncu).resolve().parent
        folders += [folder, folder.parent / "x86_64-linux-gnu" / "nsight-compute"]  # NVIDIA's package, Debian's
    if python:
        folders.append(Path(python).parents[1] / "lib")
    return [path for folder in folders for path in sorted(folder.rglob("libnvperf_host.so"))]


@pytest.mark.nsys
@pytest.mark.parametrize("which", [0, 1])
def test_passes_are_those_that_nvidia_plans(which: int) -> None:
    """CUPTI 12.9's `cuptiProfilerHostGetNumOfPasses` gave the table; releases differ in what several passes hold."""
    planners = _planners()
    if len(planners) <= which:
        pytest.skip(f"{len(planners)} of ncu and CUPTI are here: set XSP_NCU and XSP_CUPTI_PYTHON")
    keys = [(each, chip, group) for each in architectures() for chip in each.chips for group in each.groups]
    requests = [[chip, each.groups[group]] for each, chip, group in keys]
    command = [sys.executable, "-m", "tests.helpers.nvperf_passes", str(planners[which])]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, check=True, text=True)
    planned = {
        (chip, group): (passes, each.passes[group])
        for (each, chip, group), passes in zip(keys, json.loads(done.stdout), strict=True)
        if passes is not None
    }
    assert {chip for chip, _ in planned} >= {"GA100", "GH100"}
    exact = {key: each for key, each in planned.items() if key[1] in ("flops", "memory", "tensor")}
    assert {key: each for key, each in exact.items() if each[0] != each[1]} == {}
    assert all(abs(passes - listed) <= 1 for passes, listed in planned.values())


def _output_of(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.nsys
@pytest.mark.parametrize(
    "ranges", [(), ("step",), ("step/",), ("step", "step/"), ("xsp@step",), ("regex:step [0-9]+/",)]
)
@pytest.mark.parametrize("capture", ["none", "cudaProfilerApi"])
def test_the_real_ncu_takes_every_variant(
    tmp_path: Path, real_ncu: Ncu, *, ranges: tuple[str, ...], capture: str
) -> None:
    """Without a GPU it takes its arguments, and only then misses the driver."""
    plan = runner.plan(chip="H100", groups=["roofline", "tensor", "activity", "throughput"])
    metrics = [metric for group in plan.groups.values() for metric in group]
    command = profile_command(
        ["true"], tmp_path / "log.csv", metrics, ncu=real_ncu.path, ranges=ranges, capture=capture
    )
    output = _output_of(command) + (tmp_path / "log.csv").read_text()
    assert "failed to connect to the CUDA driver" in output or "No kernels were profiled" in output
    assert not [
        complaint
        for complaint in ("unrecognised", "is invalid", "Invalid", "Failed to find metric")
        if complaint in output
    ]


@pytest.mark.nsys
@pytest.mark.parametrize("wrong", [["--page", "row"], ["--clock-controls", "none"], ["--nvtx-include", "@/x[]//"]])
def test_the_real_ncu_refuses_what_it_does_not_know(tmp_path: Path, real_ncu: Ncu, wrong: list[str]) -> None:
    """So that the test above can fail."""
    command = profile_command(["true"], tmp_path / "log.csv", ["gpu__time_duration.sum"], ncu=real_ncu.path)
    output = _output_of([command[0], *wrong, *command[1:]])
    log = tmp_path / "log.csv"
    output += log.read_text() if log.exists() else ""
    assert [complaint for complaint in ("unrecognised", "is invalid", "Invalid") if complaint in output]
