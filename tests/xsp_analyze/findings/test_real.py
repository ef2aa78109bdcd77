"""On which real traces each rule fires, and on which it is silent, with the reason from looking at the files.

Gains that are given were worked out from the raw files by scripts that import nothing of ours. A rule for which the
real traces hold fewer than two cases says so in `_MISSING`, and is shown by made ones (`test_planted.py`,
`test_findings.py`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from xsp_analyze.findings import RULES, advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_analyze.findings import Advice

_SWITCH_MOE = "kineto/switch_moe_cold.a100.json.gz"
_ALEXNET = "kineto/alexnet_cuda_sync.json.gz"
_BERT_H100 = "kineto/bert_small.h100.json.gz"
_BERT_MI300X = "kineto/bert_small.mi300x.json.gz"
_CAPTURE = "kineto/graph_pairs/xdit_flux.mi300.capture.json.gz"
_CLOVERLEAF = "nsys/cloverleaf.a100.nsys2024_5.sqlite"
_CONTROL = "kineto/diff_control.json.gz"
_CONV3D = "xplane/conv3d_8gpu.mi300x.jax.xplane.pb"
_CPU = "tf_timeline/anna_cpu.tf1.json"
_DLRM = "kineto/dlrm_8rank.v100"
_FSDP = "nsys/h100_fsdp_2gpu.nsys2026_2.sqlite"
_GLOO = "kineto/cpu_only.json.gz"
_GRAPHS = "kineto/cuda_graphs.json.gz"
_MFU = "nsys/h100_mfu_before_2gpu.nsys2026_2.sqlite"
_MINITOY = "kineto/minitoy_train.mi250.json.gz"
_NCCL = "kineto/nccl_training.json.gz"
_NCU = "ncu/saxpy.rtx5070.details.csv"
_NORMALISATION = "kineto/normalization_layers_train.mi300x.json.gz"
_RESNET18 = "kineto/resnet18_train_ddp.mi300x.json.gz"
_RESNET50_OLD = "kineto/resnet50_train_torch18_oldcats.json.gz"
_RESNET50_V100 = "kineto/resnet50_train_torch19.v100.json.gz"
_RESNET_2080 = "kineto/resnet_train.rtx2080ti.json.gz"
_PIECEWISE = "kineto/graph_pairs/vllm_piecewise.mi300.capture.json.gz"
_REPLAY = "kineto/graph_pairs/xdit_flux.mi300.replay.json.gz"
_ROCPROF = "rocprof/dispatches.mi350x.rocprofv3.json.gz"
_SAXPY = "nsys/saxpy_mpi.a100.nsys2022_2.sqlite"
_STREAMS = "kineto/event_sync_multi_stream.json.gz"
_TEST = "kineto/diff_test.json.gz"
_VLLM = "kineto/vllm_prefilldecode_piecewise_graph.mi300.json.gz"

_FIRES: Mapping[str, Mapping[str, str]] = {
    "host-dominant": {
        _GLOO: "ten all-reduces of Gloo take nearly all of 1.28 s",
        _CPU: "convolutions take most of 33.7 ms",
    },
    "tail-waste": {
        _RESNET50_V100: "by NVIDIA's occupancy header 60.443 ms of 1,065.664 go to last waves",
        _TEST: "many matrix products of a wave and a bit",
    },
    "small-grids": {
        _BERT_MI300X: "34 of 60 kernels, 214 of 388 us, have fewer blocks than the 304 compute units",
        _SAXPY: "kernels of fewer blocks than the 108 multiprocessors",
    },
    "device-only": {_NCU: "a table of one kernel", _ROCPROF: "43,915 dispatches and nothing of the host"},
    "orphans": {_GRAPHS: "872 activities without a launch, 59.5 of 449.8 ms", _FSDP: "1,632 of 3,442 kernels have one"},
    "unattributed": {
        _CLOVERLEAF: "neither ranges nor modules",
        _SAXPY: "177 of 747 ms are launched in the range saxpy, no more in any",
    },
    "graph-replays": {
        _VLLM: "361 of 423 activities, 149.9 of 156.1 ms, have the correlation of a hipGraphLaunch",
        _GRAPHS: "105.5 of 449.8 ms have that of a cudaGraphLaunch",
    },
    "no-modules": {_NCCL: "operators alone", _RESNET50_V100: "recorded without stacks"},
    "few-steps": {_BERT_H100: "one step", _ALEXNET: "no steps"},
    "steps-left-out": {_MINITOY: "ProfilerStep#2 launched nothing in 0.049 ms"},
    "start-up": {
        _ALEXNET: "30.4 of 43.4 s before the first kernel, then a launch of 3.06 s",
        _SWITCH_MOE: "349 of 593 ms before the first kernel, launches of 139 ms that load code after it",
    },
    "ramp-up": {
        _RESNET50_OLD: "179.4 ms, then 210.9 to 220.6",
        _CONV3D: "the programs end 14.2, 26.3 ms after the one before, then 3.5",
    },
    "straggler": {
        _DLRM: "of 4.742 ms of all_to_all 4.700 are waiting, rank 7 last in 80 % of calls",
        _MFU: "33 kernels a device, 17.17 and 8.23 ms: device 1 is last in 22 of them",
    },
    "data-wait": {_RESNET50_V100: "355.6 ms idle in 6 calls of the loader", _RESNET_2080: "6,664.6 ms in 30 calls"},
    "recompilation": {_CAPTURE: "558 ms of CUDAGraphNode.record, in which the device hardly works"},
    "optimizer-kernels": {
        _RESNET50_V100: "644 of 2 us each, for which the host takes 25 of 178 ms",
        _RESNET50_OLD: "as many, for which the host takes 43 of 213 ms",
    },
    "host-sync": {_CLOVERLEAF: "1,312 waits, after each of which the device is idle for 12 us"},
    "launch-bound": {_BERT_H100: "0.309 of 4.426 ms busy, 60 kernels", _BERT_MI300X: "0.391 of 4.007 ms busy"},
    "gpu-idle": {_ALEXNET: "0.066 of 43.425 s busy", _MINITOY: "0.149 of 9.288 ms busy, 14 kernels"},
    "exposed-communication": {_CONTROL: "alone for 15 of 77 ms", _TEST: "alone for 73 ms in six steps"},
    "uneven-devices": {_CONV3D: "device 0 is busy for 3.996 ms, the others for 3.3 to 3.5"},
    "pageable-copies": {_SAXPY: "15 copies, 284.70 ms", _RESNET_2080: "61 copies, 629.76 ms"},
    "copies-in-step": {_FSDP: "940.49 of 969 ms alone, from pinned memory", _TEST: "96.5 ms alone in 6 steps"},
    "fp32-products": {
        _RESNET50_V100: "369.9 of 603.6 ms in sgemm, scudnn and engines on float",
        _RESNET_2080: "1,672 of 4,734 ms in sgemm and scudnn alone",
    },
    "unfused-chains": {
        _CONTROL: "182 chains a step of kernels named so",
        _MFU: "540 chains, 142 ms",
    },
    "far-from-peak": {_CONTROL: "busy for 84 %; products at a third of their roof"},
    "dominant-kernel": {_VLLM: "24 calls of _matmul_ogs, 83 of 156 ms", _BERT_H100: "17 calls of one GEMM"},
    "dominant-layer": {_MINITOY: "aten::linear, 0.051 of 0.149 ms", _CPU: "Conv2DBackpropFilter, 19.5 of 33.7 ms"},
}
"""Rule to real traces on which it is right to fire, each with what the file says."""

_SILENT: Mapping[str, Mapping[str, str]] = {
    "low-occupancy": {
        _SWITCH_MOE: "90 % of device time is products of 82 to 122 registers a thread, which need few warps",
        _CLOVERLEAF: "of kernels with 58 registers a thread at most half of the warps fit",
    },
    "host-dominant": {_RESNET_2080: "a device worked", _RESNET50_V100: "a device worked"},
    "short-operators": {_CPU: "few operators", _GLOO: "four operators"},
    "work-not-recorded": {_RESNET_2080: "kernels of every step", _RESNET50_V100: "kernels of every step"},
    "impossible-times": {_RESNET_2080: "no overlap on a stream", _RESNET50_V100: "no overlap on a stream"},
    "ranks-missing": {_RESNET_2080: "one file", _DLRM: "all eight ranks"},
    "counted-twice": {_RESNET_2080: "one file", _RESNET50_V100: "one file"},
    "tail-waste": {_BERT_H100: "3.8 us of 4,426", _RESNET18: "registers are not recorded: waves are unknown"},
    "small-grids": {_RESNET50_V100: "8.9 ms of 1,065.664", _NCU: "a table of one kernel has no step"},
    "excess-traffic": {_BERT_H100: "no counters", _NCU: "counters, and no shapes"},
    "device-only": {_BERT_H100: "a timeline", _CLOVERLEAF: "runtime calls are recorded"},
    "orphans": {_BERT_H100: "each activity has its launch", _NCU: "launches are not recorded at all"},
    "unattributed": {_BERT_H100: "all of it is in modules", _RESNET18: "99.9 % is"},
    "graph-replays": {_BERT_H100: "no graphs", _RESNET18: "no graphs"},
    "graph-breaks": {
        _REPLAY: "one region a call, none within it",
        _PIECEWISE: "25 compiled graphs: vLLM splits its graph at attention on purpose",
    },
    "no-modules": {_VLLM: "modules are recorded", _CLOVERLEAF: "no framework, no operators"},
    "profiling-overhead": {_NCCL: "one capture cannot know", _RESNET50_V100: "the same"},
    "few-steps": {_RESNET50_V100: "six steps", _CONTROL: "six steps"},
    "steps-left-out": {_RESNET50_V100: "1,516 launches each", _CONTROL: "1,575 launches each"},
    "start-up": {_RESNET50_V100: "means over steps", _CONTROL: "means over steps"},
    "runs-disagree": {_DLRM: "ranks are no levels of a profile", _NCCL: "one capture"},
    "unmatched": {_DLRM: "ranks are no levels of a profile", _NCCL: "one capture"},
    "ramp-up": {_CONTROL: "75.7 to 81.2 ms, rising", _NCCL: "222.4, 219.8, 225.0 ms"},
    "host-ahead": {_NCCL: "bound by the host", _CONTROL: "host and device agree within 1 ms"},
    "straggler": {_NCCL: "one rank alone", _FSDP: "no collectives"},
    "pipeline-bubble": {_DLRM: "collectives, no pipeline", _CONV3D: "eight devices that pass on nothing"},
    "unbalanced-pipeline": {_DLRM: "collectives, no pipeline", _CONV3D: "eight devices that pass on nothing"},
    "small-collectives": {_DLRM: "eight collectives a step", _ROCPROF: "1,310 calls of 3 ms each"},
    "data-wait": {_NCCL: "no loader recorded", _TEST: "0.155 ms idle in 6 calls of the loader"},
    "recompilation": {_TEST: "CompiledFunction is compiled code that runs", _REPLAY: "the same graph, replayed"},
    "host-sync": {
        _BERT_MI300X: "the only wait is the profiler's, before the first launch",
        _BERT_H100: "one wait of 7.6 us; the other is the profiler's",
    },
    "launch-bound": {_VLLM: "replays of graphs", _REPLAY: "replays of graphs"},
    "gpu-idle": {
        _RESNET50_V100: "waiting for input explains 59.3 of 75 ms",
        _VLLM: "99.8 % busy once the work of before the trace had ended",
        _TEST: "96 % busy",
    },
    "uneven-steps": {_TEST: "114.8 to 123.1 ms on the device", _NCCL: "219.8 to 225.0 ms"},
    "uneven-devices": {_FSDP: "22.39 and 22.44 ms of kernels", _DLRM: "the late rank explains it"},
    "exposed-communication": {_DLRM: "it is waiting for one rank", _RESNET18: "no communication"},
    "pageable-copies": {_TEST: "60 copies of 0.124 ms", _NCCL: "none"},
    "copies-in-step": {_SAXPY: "they are those of pageable memory", _NCCL: "2.3 ms in three steps"},
    "fp32-products": {_BERT_H100: "its products are BF16", _MFU: "BF16 too"},
    "stalled-layer": {_BERT_H100: "no counters", _NCU: "no layers"},
    "unfused-attention": {_BERT_H100: "fused kernels of attention", _MINITOY: "no softmax"},
    "unfused-chains": {_BERT_H100: "few neighbours are elementwise", _VLLM: "products of experts"},
    "below-roof": {_NCCL: "no counters", _BERT_H100: "no counters"},
    "memory-bound": {_BERT_H100: "neither counters nor much traffic in FP32", _NCCL: "bound by the host"},
    "far-from-peak": {_BERT_H100: "busy for 7 %", _RESNET50_V100: "busy for 57 %"},
    "dominant-kernel": {_CONTROL: "the longest is communication", _NCU: "one kernel, chosen to be measured"},
    "dominant-layer": {_GRAPHS: "what AccumulateGrad holds is communication", _RESNET18: "none holds a quarter"},
    "recompute": {_RESNET18: "no checkpoints", _NCCL: "none"},
    "optimizer-kernels": {_CLOVERLEAF: "no training", _NCCL: "1.3 % of device time"},
    "page-migrations": {_RESNET18: "no unified memory", _CLOVERLEAF: "none"},
    "unexplained-idle": {_RESNET18: "launches are known", _CLOVERLEAF: "launches are known"},
    "small-batch": {_DLRM: "one batch size", _RESNET50_V100: "one batch size"},
}
"""Rule to real traces on which it is right to be silent, each with what the file says."""

_MISSING: Mapping[str, str] = {
    "low-occupancy": "registers limit products and attention alone, which keep their tiles there",
    "stalled-layer": "no file with what warps wait for and layers",
    "short-operators": "no capture of the host alone with a thousand operators",
    "work-not-recorded": "one file with launches and no kernel",
    "impossible-times": "no file whose streams overlap by over 1 %, or whose work starts before its launch",
    "counted-twice": "one file each",
    "ranks-missing": "one file each, or all ranks",
    "excess-traffic": "no file with counters and shapes",
    "unfused-attention": "one file with softmax between products, 1.6 % of device time",
    "profiling-overhead": "no profile of several levels",
    "unmatched": "no profile of several levels",
    "runs-disagree": "no profile of several levels",
    "steps-left-out": "one capture whose last step is empty",
    "host-ahead": "no capture in which the queue grows over several steps",
    "unbalanced-pipeline": "no pipeline",
    "pipeline-bubble": "no pipeline",
    "small-collectives": "no file with many small ones",
    "recompilation": "one capture that compiles",
    "graph-breaks": "no capture with a region within another",
    "host-sync": "waits elsewhere are short: the host is late without them too",
    "uneven-steps": "on the device all steps agree but for ramp-up",
    "uneven-devices": "one file with several devices that compute unequally, and no straggler",
    "below-roof": "counters with a device whose peaks are known are of single kernels",
    "memory-bound": "the same",
    "far-from-peak": "one file that is busy, has shapes and a known device",
    "recompute": "no checkpoints",
    "page-migrations": "no file with unified memory",
    "unexplained-idle": "launches are known in most",
    "small-batch": "no sweep",
}
"""Rules that fire on fewer than two of the real traces, and why."""

_GAINS = {
    # rule and file: ns, by hand; of captures without steps exact, else of the mean step within 3 %
    # idle from the first kernel to the last work 12.830 s, less a launch of 3.056, calls of cudaFree of 6.554 with
    # nothing pending, and 1.360 of cudaMalloc with which the process holds more pieces than before
    ("gpu-idle", _ALEXNET): 1_860_338_000,
    ("straggler", _MFU): 13_847_530,
    ("data-wait", _RESNET_2080): 99_333_000,  # of iterations after the first, without the longest and shortest fifth
    # copies less what their bytes take at the peak of PCI Express 3.0 and 4.0
    ("pageable-copies", _RESNET_2080): (629_760_000 - 2_312_140_804 / 15.75) / 30,
    ("pageable-copies", _SAXPY): 284_699_600 - 3_932_160_000 / 31.5,
    ("copies-in-step", _FSDP): 940_490_300,
    ("data-wait", _RESNET50_V100): 59_261_800,
    # products, and seven kinds of Winograd's transforms
    ("fp32-products", _RESNET50_V100): (369_907_000 + 23_644_000) / 6 * (1 - 15.7 / 125),
}

pytestmark = pytest.mark.real


@cache
def _advice(path: Path) -> Sequence[Advice]:
    """The findings on a file, or on the files of a folder together, in order."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return advise(StepView.of(convert(paths, Options())))


def _findings(path: Path) -> Mapping[str, Advice]:
    return {one.rule.id: one for one in _advice(path)}


def _cases(table: Mapping[str, Mapping[str, str]]) -> Sequence[tuple[str, str]]:
    return [(rule, name) for rule, files in table.items() for name in files]


@pytest.mark.parametrize(("rule", "name"), _cases(_FIRES))
def test_a_rule_fires_where_it_should(real_dir: Path, rule: str, name: str) -> None:
    assert rule in _findings(real_dir / name), _FIRES[rule][name]


@pytest.mark.parametrize(("rule", "name"), _cases(_SILENT))
def test_a_rule_is_silent_where_it_should_be(real_dir: Path, rule: str, name: str) -> None:
    assert rule not in _findings(real_dir / name), _SILENT[rule][name]


@pytest.mark.parametrize(("rule", "name"), list(_GAINS))
def test_a_gain_is_the_one_worked_out_by_hand(real_dir: Path, rule: str, name: str) -> None:
    assert _findings(real_dir / name)[rule].gain_ns == pytest.approx(_GAINS[rule, name], rel=0.03)


def test_every_rule_is_shown_on_two_real_traces_or_says_why_not() -> None:
    rules = {rule.id for rule in RULES}
    assert {rule for rule in rules if len(_FIRES.get(rule, ())) < 2} == set(_MISSING)
    assert {rule for rule in rules if len(_SILENT.get(rule, ())) < 2} == set()


def test_the_straggler_of_eight_ranks_is_the_first_finding(real_dir: Path) -> None:
    findings = _advice(real_dir / _DLRM)
    assert findings[0].rule.id == "straggler"
    assert findings[0].observation.sentence.startswith("Rank 7 comes last to 80.0\u202f% of the calls of all_to_all")


def test_input_explains_the_idle_device_so_that_one_finding_is_told(real_dir: Path) -> None:
    findings = _advice(real_dir / _RESNET50_V100)
    assert findings[0].rule.id == "data-wait"
    assert "gpu-idle" not in {one.rule.id for one in findings}


def test_a_v100_is_told_neither_of_tf32_nor_of_bf16(real_dir: Path) -> None:
    one = _findings(real_dir / _RESNET50_V100)["fp32-products"]
    assert "autocast to FP16" in one.do
    assert not any(name in one.do + one.observation.sentence for name in ("TF32", "BF16"))


def test_replays_of_graphs_are_told_neither_to_record_modules_nor_to_use_graphs(real_dir: Path) -> None:
    advised = " ".join(one.do for one in _findings(real_dir / _VLLM).values())
    assert "with_stack" not in advised
    assert "torch.cuda.graph" not in advised
    assert "--graph-capture PATH" in advised


def test_replays_whose_capture_is_given_have_layers(real_dir: Path) -> None:
    options = Options(graph_captures=[real_dir / _PIECEWISE])
    rules = {one.rule.id for one in advise(StepView.of(convert([real_dir / _VLLM], options)))}
    assert not rules & {"graph-replays", "unattributed"}


def test_communication_of_an_inference_is_not_taken_for_gradients(real_dir: Path) -> None:
    advised = [one for one in _advice(real_dir / _MFU) if one.rule.id in {"exposed-communication", "straggler"}]
    assert advised
    assert not any("gradients go out" in one.do for one in advised)


@pytest.mark.parametrize("name", sorted({name for _, name in _cases(_FIRES)}))
def test_no_finding_is_worth_less_than_a_hundredth_of_the_step_or_more_than_it(real_dir: Path, name: str) -> None:
    shares = [one.gain_share for one in _findings(real_dir / name).values() if one.gain_share is not None]
    assert all(0.01 <= share <= 1 for share in shares)
