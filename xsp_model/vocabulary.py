"""Closed sets of words that columns hold, and one name, unit and meaning for each hardware counter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AVERAGED",
    "COUNTERS",
    "DEVICE_KINDS",
    "FLOP_COUNTS",
    "GRAPH_CAPTURE",
    "LEVELS",
    "RECORDERS",
    "STALLS",
    "TENSOR_PREFIX",
    "Attribution",
    "AttributionBasis",
    "Counter",
    "Kind",
    "LayerSource",
    "Level",
    "MemoryKind",
    "Phase",
    "Recorder",
    "Severity",
    "formats_by",
]


class Level(StrEnum):
    """Where in the stack a span was taken, outermost first."""

    APPLICATION = "application"
    MODEL = "model"
    LAYER = "layer"
    OPERATOR = "operator"
    LIBRARY = "library"
    RUNTIME = "runtime"
    KERNEL = "kernel"


LEVELS: tuple[Level, ...] = tuple(Level)
"""All levels; a level's rank is its index here."""


class Kind(StrEnum):
    """What a span is, within its level."""

    STEP = "step"  # model: one batch through the model
    MODULE = "module"  # layer: one call of a framework module
    RANGE = "range"  # model, layer or library: a named range (NVTX, annotation)
    OPERATOR = "operator"  # operator: a framework call
    CALL = "call"  # library or runtime: a call into a library or the driver
    SYNC = "sync"  # runtime: a wait of the device or the host, as the device reports it
    KERNEL = "kernel"  # kernel: a function run on a device
    MEMCPY = "memcpy"  # kernel: a copy
    MEMSET = "memset"  # kernel: a fill
    GRAPH = "graph"  # kernel: a whole graph replay, recorded as one activity


DEVICE_KINDS: tuple[Kind, ...] = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.GRAPH)
"""The kinds that occupy a device; their durations are device time."""


class Phase(StrEnum):
    """Which part of a step a span belongs to."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class MemoryKind(StrEnum):
    """What a block of memory is used for."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    INPUTS = "inputs"
    WORKSPACE = "workspace"
    OTHER = "other"  # in use outside of the model's own work
    BEFORE = "from before the recording"  # in use already when the recording began
    UNKNOWN = "unknown"


class Attribution(StrEnum):
    """Where the time of a device activity went; exactly one for each."""

    LAYER = "layer"
    MODEL_ONLY = "model_only"
    GRAPH_REPLAY = "graph_replay"
    ORPHAN_BEFORE_WINDOW = "orphan_before_window"
    ORPHAN_NO_LAUNCH = "orphan_no_launch"
    ORPHAN_NO_CORRELATION = "orphan_no_correlation"
    UNIFIED_MEMORY = "unified_memory"  # migrations, which nobody launches


class AttributionBasis(StrEnum):
    """How the layer of work is known that did not simply run, or was launched, in the layer's call."""

    GRAPH_NODE = "graph_node"  # the file says where the replayed graph's node was captured
    GRAPH_CAPTURE = "graph_capture"  # paired with the launches that were recorded when the graph was captured
    ALIGNED = "aligned"  # paired with the same work of a run without graphs
    ANNOTATION = "annotation"  # the framework wrote it beside the replayed work
    COMPILED_CODE = "compiled_code"  # the compiler says what its generated kernel stands for


GRAPH_CAPTURE = "graph_capture"
"""The role of runs in which graphs were captured: they say what replayed work is, and nothing is timed from them."""


class LayerSource(StrEnum):
    """What the layers of a trace were taken from."""

    MODULE = "module"
    RANGE = "range"
    OPERATOR = "operator"
    NONE = "none"


class Recorder(StrEnum):
    """A tool of whose files analyses have to know, where the model's tables do not say it; see `RECORDERS`."""

    TORCH_PROFILER = "torch_profiler"  # may have a capture of graphs beside it, and lines of Python or none
    NSIGHT_SYSTEMS = "nsight_systems"
    KERNEL_COUNTERS = "kernel_counters"  # ran kernels one by one, to count: gaps and shares of time tell nothing
    LOAD_GENERATOR = "load_generator"  # MLPerf's, clients of serving engines: state latencies and rates themselves
    MEMORY_SNAPSHOT = "memory_snapshot"  # its memory is a device's, which it does not number


RECORDERS: Mapping[str, Recorder] = {
    "torch_profiler": Recorder.TORCH_PROFILER,
    "nsys_export": Recorder.NSIGHT_SYSTEMS,
    "nsys_report": Recorder.NSIGHT_SYSTEMS,
    "nsys_sqlite": Recorder.NSIGHT_SYSTEMS,
    "nsys_stats_csv": Recorder.NSIGHT_SYSTEMS,
    "ncu_csv": Recorder.KERNEL_COUNTERS,
    "ncu_report": Recorder.KERNEL_COUNTERS,
    "nvprof_metrics": Recorder.KERNEL_COUNTERS,
    "loadgen": Recorder.LOAD_GENERATOR,
    "serving_load": Recorder.LOAD_GENERATOR,
    "memory_snapshot": Recorder.MEMORY_SNAPSHOT,
}
"""The recorder by the name of a format, as runs have it: here a format says what an analysis may ask of it."""


def formats_by(recorder: Recorder) -> list[str]:
    """The formats of its files."""
    return [name for name, one in RECORDERS.items() if one is recorder]


class Severity(StrEnum):
    """How much a ledger entry should worry its reader."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# The vocabulary of hardware counters: one name, unit and meaning for what each tool calls differently.

TENSOR_PREFIX = "flop_count_tensor_"
"""What the counters of tensor-core work begin with; the rest is the type of the inputs."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter as `metrics` holds it; unit "1" is a plain number or a share of 0..1."""

    name: str
    unit: str
    doc: str


def _tensor(types: str, what: str, unit: str = "flop") -> Counter:
    return Counter(f"{TENSOR_PREFIX}{types}", unit, f"Tensor-core operations on {what} inputs; a multiply-add is two.")


_FLOPS = (
    Counter("flop_count_sp", "flop", "FP32 operations of threads: adds, multiplies, and multiply-adds twice."),
    Counter(
        "flop_count_hp",
        "flop",
        "FP16 instructions of threads: adds, multiplies, multiply-adds twice; a packed pair counts once.",
    ),
    Counter("flop_count_dp", "flop", "FP64 operations of threads: adds, multiplies, and multiply-adds twice."),
)
_TENSOR = (
    _tensor("fp64", "FP64"),
    _tensor("tf32", "TF32"),
    _tensor("fp16", "FP16"),
    _tensor("bf16", "BF16"),
    _tensor("fp8", "FP8"),
    _tensor("fp4_fp6_fp8", "FP8, FP6 or FP4 (the chip does not tell them apart)"),
    _tensor("fp4_fp6", "FP6 or FP4 (the chip does not tell them apart)"),
    _tensor("fp4", "FP4"),
    _tensor("int8", "INT8", "op"),
    _tensor("int4", "INT4", "op"),
    _tensor("int1", "1-bit", "op"),
)
_MEMORY = (
    Counter("dram_read_bytes", "byte", "Bytes read from device memory."),
    Counter("dram_write_bytes", "byte", "Bytes written to device memory."),
    Counter("dram_bytes", "byte", "Bytes read and written, where the two are only known together."),
    Counter("l2_bytes", "byte", "Bytes that L2 served, in whole sectors."),
    Counter("l1_bytes", "byte", "Bytes that L1 served, in whole sectors."),
    Counter("l2_hit_rate", "1", "Share of L2 sectors found there."),
    Counter("l1_hit_rate", "1", "Share of L1 sectors found there."),
    Counter("nvlink_receive_bytes", "byte", "Bytes received over NVLink."),
    Counter("nvlink_transmit_bytes", "byte", "Bytes sent over NVLink."),
    Counter("pcie_read_bytes", "byte", "Bytes read over PCIe."),
    Counter("pcie_write_bytes", "byte", "Bytes written over PCIe."),
)
_USE = (
    Counter("achieved_occupancy", "1", "Active warps over the most a multiprocessor holds, while it is active."),
    Counter("theoretical_occupancy", "1", "The most active warps that the launch allows, over the most possible."),
    Counter("sm_efficiency", "1", "Share of the time in which multiprocessors had a warp."),
    Counter("ipc", "inst/cycle", "Warp instructions per cycle of an active multiprocessor."),
    Counter("warp_instruction_count", "inst", "Warp instructions executed."),
    Counter("tensor_instruction_count", "inst", "Warp instructions of the tensor pipe."),
    Counter("dram_utilization", "1", "Device memory's throughput as a share of its peak."),
    Counter("l2_utilization", "1", "L2's throughput as a share of its peak."),
    Counter("l1_utilization", "1", "L1's throughput as a share of its peak."),
    Counter("compute_utilization", "1", "The busiest part of the multiprocessors, as a share of its peak."),
    Counter("memory_utilization", "1", "The busiest part of the memory path, as a share of its peak."),
    Counter("tensor_utilization", "1", "Share of the time in which the tensor pipe was busy."),
    Counter("flop_sp_efficiency", "1", "FP32 operations as a share of the peak while profiled."),
    Counter("flop_hp_efficiency", "1", "FP16 operations as a share of the peak while profiled."),
    Counter("flop_dp_efficiency", "1", "FP64 operations as a share of the peak while profiled."),
)
_RUN = (
    Counter("replayed_duration_ns", "ns", "Duration of the kernel alone, replayed and serialised: no latency."),
    Counter("elapsed_cycles", "cycle", "Cycles of the slowest part of the chip."),
    Counter("sm_clock_hz", "Hz", "Clock of the multiprocessors while profiled; profilers often lock it."),
    Counter("dram_clock_hz", "Hz", "Clock of device memory while profiled."),
    Counter("invocations", "1", "Executions that the row's values are the mean of."),
)
STALLS: Mapping[str, str] = {
    # what a warp waits for, as sentences say it
    "memory_dependency_stall_share": "memory dependencies",
    "memory_throttle_stall_share": "full queues of the memory path",
    "shared_memory_dependency_stall_share": "shared memory or special functions",
    "constant_memory_stall_share": "misses of constant memory",
    "execution_dependency_stall_share": "results of its own instructions",
    "pipe_busy_stall_share": "busy compute pipes",
    "tensor_dependency_stall_share": "tensor cores",
    "synchronisation_stall_share": "other warps, at barriers",
    "instruction_fetch_stall_share": "instructions to be fetched",
    "not_selected_stall_share": "its turn, as other warps were ready",
    "other_stall_share": "something else",
}
"""The counters of what warps wait for: shares of the cycles that they are resident; with `issue_share` they are 1."""
_STALLS = (
    *(
        Counter(name, "1", f"Share of the cycles of resident warps in which one waits for {what}.")
        for name, what in STALLS.items()
    ),
    Counter("issue_share", "1", "Share of the cycles of resident warps in which one issues an instruction."),
)
AVERAGED: tuple[str, ...] = ("compute_utilization", "memory_utilization", *STALLS)
"""The counters that say what bounds a kernel, and whose mean by time is a group's."""

COUNTERS: Mapping[str, Counter] = {c.name: c for c in (*_FLOPS, *_TENSOR, *_MEMORY, *_USE, *_STALLS, *_RUN)}
"""Every canonical counter by name, in the order in which tables list them; others keep their tool's name."""
FLOP_COUNTS: tuple[str, ...] = tuple(c.name for c in (*_FLOPS, *_TENSOR) if c.unit == "flop")
"""The counters of floating-point work, which do not overlap: their sum is all of it."""
