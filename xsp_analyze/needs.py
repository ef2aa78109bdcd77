"""What an analysis may need of a trace, in words."""

from __future__ import annotations

from dataclasses import dataclass

from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

__all__ = ["AnyOf", "Need", "advice_on", "is_need", "words_of_need"]

_NEEDS = {  # what is no level: in words, and how to get it
    "metrics": ("hardware counters", "Measure them in a run of their own (ncu --csv) and join it with xsp merge"),
    "work": (
        "hardware counters or shapes of operators",
        "Record shapes (record_shapes=True), or measure counters in a run of their own and join it with xsp merge",
    ),
    "communication": ("communication kernels (NCCL, RCCL)", ""),
    "ranks": ("several ranks", "Read the traces of all ranks together, such as a folder that holds them"),
    "graph replay": ("replays of device graphs (cudaGraphLaunch, hipGraphLaunch)", ""),
    "grids": ("the grids of kernels", "Record how kernels are launched, as torch.profiler, nsys, ncu and rocprofv3 do"),
    "experts": ("kernels of a mixture of experts", ""),
    "compiled code": ("kernels that a compiler generated (torch.compile)", ""),
    "allocations": (
        "allocations of memory",
        "Record memory (profile_memory=True), a memory snapshot, or with nsys --cuda-memory-usage=true",
    ),
    "batch sizes": ("runs at several batch sizes", "Collect a sweep (xsp collect --sweep), and join it with xsp merge"),
    "stages": (
        "ranges named as pre-processing or post-processing",
        "Mark them as preprocess, inference and postprocess with NVTX ranges or record_function",
    ),
    "leveled": ("runs at several levels", "Join them with xsp merge"),
    "MPI": ("calls of MPI", "Record them: nsys profile --trace=mpi"),
    "UCX": ("calls of UCX", "Record them: nsys profile --trace=ucx"),
    "unified memory": (
        "migrations or page faults of unified memory",
        "Record them: nsys profile --cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true",
    ),
    "GPU metrics": (
        "samples of GPU metrics (SM Active, SM Issue, Tensor Active)",
        "Record them: nsys profile --gpu-metrics-devices=all",
    ),
    "OpenMP": ("events of OpenMP", "Record them: nsys profile --trace=openmp"),
    "OpenACC": ("events of OpenACC", "Record them: nsys profile --trace=openacc"),
    "OS runtime": (
        "calls of the operating system's runtime",
        "Record them (nsys profile --trace=osrt), and have them read with --os-runtime",
    ),
    "serving": (
        "steps that a serving engine named",
        "Record them as docs/serving-steps.md says; torch.profiler's annotations and NVTX ranges both do",
    ),
    "results": (
        "accuracies or checksums of outputs",
        "Record them in run.json (docs/run-set.md), as xsp collect does of what comes out of a step",
    ),
    "system": (
        "samples of the machine",
        "Record them beside the run (the system_samples runner), and name their file in the run's run.json",
    ),
    "power": (
        "samples of power",
        "Record them beside the run (the nvml runner), and name their file in the run's run.json",
    ),
}
_HOW = {  # to get a level or a table
    "kernel": "Record device work: ProfilerActivity.CUDA in torch.profiler, or nsys profile, rocprofv3 --sys-trace",
    "module": "Record modules: with_stack=True in torch.profiler",
    "layer": "Record modules (with_stack=True), or name ranges that are layers with --layer-range",
    "layers": "Record modules (with_stack=True), or name ranges that are layers with --layer-range",
    "operators": "Record with the framework's own profiler, which knows its operators",
    "operator": "Record with the framework's own profiler, which knows its operators",
    "library": "Record calls of libraries: nsys profile --trace=cuda,nvtx,cudnn,cublas",
    "runtime": "Record runtime and driver calls over the whole window",
    "counters": "Record memory: profile_memory=True in torch.profiler",
    "communication": "Only work of several devices has them",
    "graph replay": "Only programs that replay graphs have them",
    "experts": "Only models with a mixture of experts have them",
    "compiled code": "Only programs under torch.compile have them",
}
_WITHOUT_WORDS = frozenset({"module"})  # beside levels and tables


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Several things one of which is enough."""

    needs: tuple[str, ...]

    def __init__(self, *needs: str) -> None:
        object.__setattr__(self, "needs", needs)  # it is frozen

    def __str__(self) -> str:
        return " or ".join(self.needs)


Need = str | AnyOf
"""A level, a table that must have rows, or another of the things that `holds` knows; or several of which one does."""


def is_need(need: Need) -> bool:
    """Whether every part of it is a level, a table or something that has words of its own."""
    parts = need.needs if isinstance(need, AnyOf) else (need,)
    return all(part in {*_NEEDS, *_WITHOUT_WORDS, *TABLES, *LEVELS} for part in parts)


def words_of_need(need: Need) -> str:
    """A level, table or other thing that an analysis needs, in words."""
    if isinstance(need, AnyOf):
        return str(need)
    return _NEEDS[need][0] if need in _NEEDS else f"{need} level" if need in LEVELS else need


def advice_on(need: Need) -> tuple[str, str]:
    """What a trace that lacks it lacks, in words, and how to get it."""
    what, advice = _NEEDS.get(str(need), (f"the level {need}", ""))
    return what, advice or _HOW.get(str(need), "")
