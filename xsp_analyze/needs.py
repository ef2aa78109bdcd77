"""What a trace may hold: how that is found out, in words, and how to get it; asked by analyses, findings and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.collectives import has_ranks, host_calls_of_collectives
from xsp_analyze.frames.host_ranges import has_library, has_stages
from xsp_analyze.frames.kernels.expert_parts import has_experts
from xsp_analyze.frames.kernels.graphs import has_compiled_kernels, replayed_share, replayed_work
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.frames.kernels.kernel_means import launches_alone
from xsp_analyze.frames.kernels.kernel_waves import has_grids
from xsp_analyze.frames.kernels.roofline import known_peaks
from xsp_analyze.frames.layers.layer_time import layer_calls
from xsp_analyze.frames.model_time import load_tests
from xsp_analyze.frames.operators.operator_calls import MODELLED
from xsp_analyze.frames.pipelines import has_pipeline
from xsp_analyze.frames.samples import device_series, power_series, system_series
from xsp_model import Level
from xsp_model.schema import TABLES
from xsp_model.vocabulary import AVERAGED, LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["CONDITIONS", "AnyOf", "Condition", "Need", "advice_on", "holds", "is_need", "words_of_need"]

_MOSTLY = 0.5  # of device time


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Several things one of which is enough."""

    needs: tuple[str, ...]

    def __init__(self, *needs: str) -> None:
        object.__setattr__(self, "needs", needs)  # it is frozen

    def __str__(self) -> str:
        return " or ".join(self.needs)


Need = str | AnyOf
"""A level, a table that must have rows, or another of CONDITIONS; or several of which one does."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that a trace may hold. Where `holds` is left out, it is a level or a table of that name.

    `what` it is stands behind "needs", `clause` is a sentence of its own, in small letters; `advice` is how to get it.
    """

    what: str = ""
    advice: str = ""
    clause: str = ""
    holds: Callable[[TraceView], bool] | None = None


def holds(view: TraceView, need: Need) -> bool:
    """Whether the trace holds it, found out once."""
    return view.once(_holds, need)


def _holds(view: TraceView, need: Need) -> bool:
    if isinstance(need, AnyOf):
        return any(holds(view, one) for one in need.needs)
    condition = CONDITIONS.get(need)
    if condition is not None and condition.holds is not None:
        return condition.holds(view)
    return view.trace.height(need) > 0 if need in TABLES else view.trace.has_level(need)


def is_need(need: Need) -> bool:
    """Whether every part of it is a level, a table or one of CONDITIONS."""
    parts = need.needs if isinstance(need, AnyOf) else (need,)
    return all(part in {*CONDITIONS, *TABLES, *LEVELS} for part in parts)


def words_of_need(need: Need) -> str:
    """A level, table or other thing that an analysis needs, in words."""
    if isinstance(need, AnyOf):
        return str(need)
    condition = CONDITIONS.get(need, Condition())
    return condition.what or (f"{need} level" if need in LEVELS else need)


def advice_on(need: Need) -> tuple[str, str]:
    """What a trace that lacks it lacks, in words, and how to get it."""
    condition = CONDITIONS.get(str(need), Condition())
    return condition.what or f"the level {need}", condition.advice


_BOUNDS = pl.col("metric").cast(pl.String).is_in(AVERAGED)


def _works(view: TraceView) -> bool:
    """Whether a device did anything in the runs that kernels are taken from."""
    work = view.kernel_runs.scan("spans").filter(pl.col("level") == str(Level.KERNEL))
    return not work.select("run_id").head(1).collect().is_empty()


def _communicates(view: TraceView) -> bool:
    by_name = not communication_names(view.device_work["name"]).is_empty()
    if by_name or not view.all_activities.filter(IS_COMMUNICATION).is_empty():
        return True
    return not view.once(host_calls_of_collectives).is_empty()


def _is_counted(view: TraceView) -> bool:
    rows = view.trace.scan("metrics").filter(~pl.col("source").cast(pl.String).str.starts_with(MODELLED))
    return not rows.select("span_id").head(1).collect().is_empty()


def _has_work(view: TraceView) -> bool:
    """Whether counters were measured, or the shapes of operators recorded, or their work given."""
    if view.trace.height("metrics"):
        return True
    shapes = view.trace.scan("operators").filter(pl.col("input_shapes").is_not_null())
    return not shapes.select("span_id").head(1).collect().is_empty()


def _has_modules(view: TraceView) -> bool:
    modules = view.trace.scan("layers").filter(pl.col("source") == "module")
    return not modules.head(1).collect().is_empty()


def _replays(view: TraceView) -> bool:
    return not view.device_work.is_empty() and bool(replayed_work(view).height)


def _has_unified_memory(view: TraceView) -> bool:
    kinds = view.trace.scan("copies").select(pl.col("copy_kind").unique()).collect().to_series().cast(pl.String)
    return view.trace.height("page_faults") > 0 or bool(kinds.str.starts_with("Unified").any())


def _has_gpu_metrics(view: TraceView) -> bool:
    names = view.own_runs.scan("counters").select(pl.col("counter").unique()).collect().to_series().cast(pl.String)
    return bool(names.str.contains(r"^(SMs? Active|SM Issue|Tensor Active)$").any())


def _has_calls_of(whose: str) -> Callable[[TraceView], bool]:
    return lambda view: has_library(view, whose)


def _has_batch_sizes(view: TraceView) -> bool:
    own = view.timed_runs.table.filter(~pl.col("run_id").is_in(view.counter_runs.ids))
    return own["batch_size"].drop_nulls().n_unique() > 1


def _is_timeline(view: TraceView) -> bool:
    return holds(view, "kernel") and not view.is_one_by_one


def _has_few_replays(view: TraceView) -> bool:
    return view.once(replayed_share) < _MOSTLY


_RECORD_MODULES = (
    "Record modules (with_stack=True), counters with their ranges (ncu --nvtx), or name ranges that are layers with"
    " --layer-range"
)
_RECORD_OPERATORS = "Record with the framework's own profiler, which knows its operators"

CONDITIONS: Mapping[str, Condition] = {
    "kernel": Condition(
        advice="Record device work: ProfilerActivity.CUDA in torch.profiler, or nsys profile, rocprofv3 --sys-trace",
        clause="device work is recorded",
        holds=_works,
    ),
    "timeline": Condition(
        clause="the trace is a timeline of host and device; not kernels replayed one by one for counters",
        holds=_is_timeline,
    ),
    "host alone": Condition(
        "a run on the host alone",
        "Where devices worked, B42 says what their time is made of",
        clause="no device work was recorded",
        holds=lambda view: not holds(view, "kernel"),
    ),
    "launches": Condition(
        clause="launches are recorded",
        holds=lambda view: bool(view.all_activities["call_start_ns"].is_not_null().any()),
    ),
    "few replays": Condition(
        clause="less than half of the device time is replays of graphs",
        holds=_has_few_replays,
    ),
    "timed layers": Condition(
        clause="layers are recorded, and less than half of the device time is replays of graphs",
        holds=lambda view: holds(view, "few replays") and not view.is_one_by_one,
    ),
    "steps": Condition(clause="steps are marked", holds=lambda view: not view.all_steps.is_empty()),
    "several devices": Condition(
        clause="several ranks, or several devices, are in the trace",
        holds=lambda view: view.all_activities.select("run_id", "device_id").n_unique() > 1,
    ),
    "peak rates": Condition(
        clause="peak rates of the device are known",
        holds=lambda view: bool(view.once(known_peaks)),
    ),
    "metrics": Condition(
        "hardware counters",
        "Measure them in a run of their own (ncu --csv) and join it with xsp merge",
        holds=_is_counted,
    ),
    "work": Condition(
        "hardware counters or shapes of operators",
        "Record shapes (record_shapes=True), or measure counters in a run of their own and join it with xsp merge",
        holds=_has_work,
    ),
    "communication": Condition(
        "communication (kernels of NCCL or RCCL, ranges of Gloo)",
        "Only work of several devices or processes has it",
        clause="devices or processes communicate",
        holds=_communicates,
    ),
    "ranks": Condition(
        "several ranks",
        "Read the traces of all ranks together, such as a folder that holds them",
        clause="several ranks are in the trace",
        holds=has_ranks,
    ),
    "pipeline": Condition(
        "stages of a pipeline that pass work on to each other",
        "Read the traces of all ranks together; name micro-batches, or record who sends to whom (PyTorch 2.5)",
        "stages of a pipeline pass work on to each other",
        holds=has_pipeline,
    ),
    "graph replay": Condition(
        "replays of device graphs (cudaGraphLaunch, hipGraphLaunch)",
        "Only programs that replay graphs have them",
        holds=_replays,
    ),
    "grids": Condition(
        "the grids of kernels",
        "Record how kernels are launched, as torch.profiler, nsys, ncu and rocprofv3 do",
        holds=lambda view: has_grids(view.trace),
    ),
    "experts": Condition(
        "kernels of a mixture of experts", "Only models with a mixture of experts have them", holds=has_experts
    ),
    "compiled code": Condition(
        "kernels that a compiler generated (torch.compile)",
        "Only programs under torch.compile have them",
        holds=has_compiled_kernels,
    ),
    "allocations": Condition(
        "allocations of memory",
        "Record memory (profile_memory=True), a memory snapshot, or with nsys --cuda-memory-usage=true",
    ),
    "batch sizes": Condition(
        "runs at several batch sizes",
        "Collect a sweep (xsp collect --sweep), and join it with xsp merge",
        holds=_has_batch_sizes,
    ),
    "stages": Condition(
        "ranges named as pre-processing or post-processing",
        "Mark them as preprocess, inference and postprocess with NVTX ranges or record_function",
        holds=has_stages,
    ),
    "leveled": Condition("runs at several levels", "Join them with xsp merge", holds=lambda view: view.is_leveled),
    "MPI": Condition("calls of MPI", "Record them: nsys profile --trace=mpi", holds=_has_calls_of("MPI")),
    "UCX": Condition("calls of UCX", "Record them: nsys profile --trace=ucx", holds=_has_calls_of("UCX")),
    "unified memory": Condition(
        "migrations or page faults of unified memory",
        "Record them: nsys profile --cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true",
        holds=_has_unified_memory,
    ),
    "GPU metrics": Condition(
        "samples of GPU metrics (SM Active, SM Issue, Tensor Active)",
        "Record them: nsys profile --gpu-metrics-devices=all",
        holds=_has_gpu_metrics,
    ),
    "OpenMP": Condition("events of OpenMP", "Record them: nsys profile --trace=openmp", holds=_has_calls_of("OpenMP")),
    "OpenACC": Condition(
        "events of OpenACC", "Record them: nsys profile --trace=openacc", holds=_has_calls_of("OpenACC")
    ),
    "OS runtime": Condition(
        "calls of the operating system's runtime",
        "Record them (nsys profile --trace=osrt), and have them read with --os-runtime",
        holds=_has_calls_of("OS runtime"),
    ),
    "serving": Condition(
        "steps that a serving engine named",
        "Record them as docs/serving-steps.md says; torch.profiler's annotations and NVTX ranges both do",
        holds=lambda view: not view.serving_steps.is_empty(),
    ),
    "load test": Condition(
        "a load generator's test",
        "Give its result: docs/serving.md says what is read of MLPerf LoadGen, vLLM, SGLang, aiperf and genai-perf",
        holds=lambda view: bool(view.once(load_tests)),
    ),
    "results": Condition(
        "accuracies or checksums of outputs",
        "Record them in run.json (docs/run-set.md), as xsp collect does of what comes out of a step",
        holds=lambda view: any(map(view.trace.height, ("accuracies", "tensors", "output_distances"))),
    ),
    "system": Condition(
        "samples of the machine",
        "Record them beside the run (the system_samples runner), and name their file in the run's run.json",
        holds=lambda view: bool(system_series(view.own_runs.frame("counters"))),
    ),
    "counted kernels": Condition(
        "the level kernel, or counters of kernels on their launches",
        "Record device work: ProfilerActivity.CUDA in torch.profiler, or nsys profile, rocprofv3 --sys-trace",
        holds=lambda view: view.trace.has_level(Level.KERNEL) or not view.once(launches_alone).is_empty(),
    ),
    "bounds": Condition(
        "counters of utilisation or of what warps wait for",
        "Measure them: ncu --set full, or --section SpeedOfLight --section WarpStateStats --section Occupancy",
        holds=lambda view: not view.trace.scan("metrics").filter(_BOUNDS).head(1).collect().is_empty(),
    ),
    "device samples": Condition(
        "samples of counters of a device",
        "Record them: nsys profile --gpu-metrics-devices=all, or the nvml runner beside the run",
        holds=lambda view: any(True for _ in device_series(view.own_runs.frame("counters"))),
    ),
    "power": Condition(
        "samples of power",
        "Record them beside the run (the nvml runner), and name their file in the run's run.json",
        holds=lambda view: bool(power_series(view.own_runs.frame("counters"))),
    ),
    "module": Condition(advice="Record modules: with_stack=True in torch.profiler", holds=_has_modules),
    "layer": Condition(
        advice=_RECORD_MODULES,
        holds=lambda view: not view.once(layer_calls).is_empty() or view.trace.height("attributions") > 0,
    ),
    "layers": Condition(advice=_RECORD_MODULES),
    "operator": Condition(advice=_RECORD_OPERATORS),
    "operators": Condition(advice=_RECORD_OPERATORS),
    "library": Condition(advice="Record calls of libraries: nsys profile --trace=cuda,nvtx,cudnn,cublas"),
    "runtime": Condition(advice="Record runtime and driver calls over the whole window"),
    "counters": Condition(advice="Record memory: profile_memory=True in torch.profiler"),
}
"""What an analysis or a finding may need besides other levels and tables."""
