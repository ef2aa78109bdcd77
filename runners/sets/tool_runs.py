"""Level processes under NVIDIA's and AMD's tools: their commands, and the run.json once a tool has left its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from xsp_runners import cupti, ncu, nsys, rocprof
from xsp_runners.ncu import Ncu, is_refusal
from xsp_runners.nsys import Nsys
from xsp_runners.rocprof import Rocprof
from xsp_runners.run_folder import LEVEL, RUN, RunnerError, make_room, public_options, put_json, read_json
from xsp_runners.sets.processes import PlannedRun
from xsp_runners.tools.nvtx_ranges import STEP
from xsp_runners.tools.programs import locate_or

__all__ = [
    "check_tools",
    "counter_command",
    "counter_groups",
    "counter_plan",
    "finish",
    "forget",
    "kernels_command",
    "refusals",
]

_CUPTI = (str(Path(cupti.NAME).with_suffix(".parquet")), cupti.NAME)  # the better of the two first
_NSYS = tuple(f"{nsys.NAME}{ending}" for ending in (".sqlite", ".nsys-rep", ".qdstrm"))


def kernels_command(tool: str, target: Sequence[str], folder: Path, *, on_gpu: bool) -> list[str]:
    """The level process under `nsys` or `rocprof` (the one at hand, else for a recent one), or with CUPTI in it."""
    if tool == "cupti":
        return cupti.wrapped_command(target, folder)
    if tool == "rocprof":
        return rocprof.trace_command(target, folder, rocprof=locate_or(Rocprof.locate, rocprof.ASSUMED))
    return nsys.profile_command(target, folder, nsys=locate_or(Nsys.locate, nsys.ASSUMED), on_gpu=on_gpu)


def counter_command(tool: str, target: Sequence[str], folder: Path, metrics: Sequence[str]) -> list[str]:
    """The level process under ncu, which counts in recorded steps only, or under rocprofv3, which counts in all."""
    if tool == "rocprof":
        return rocprof.counter_command(target, folder, metrics, rocprof=locate_or(Rocprof.locate, rocprof.ASSUMED))
    return ncu.profile_command(
        target, folder / ncu.LOG, metrics, ncu=locate_or(lambda: Ncu.locate().path, "ncu"), ranges=[STEP]
    )


def counter_plan(chip: str | None, groups: str, gpu: tuple[str | None, str | None] | None) -> ncu.Plan:
    """Counters of the chip (null: of the GPU) by group; RunnerError where it is not known."""
    return ncu.plan(chip=chip, groups=[name for name in groups.split(",") if name], gpu=gpu)


def counter_groups(
    tool: str, chip: str | None, groups: str, gpu: tuple[str | None, str | None] | None
) -> Mapping[str, Sequence[str]]:
    """Counters of the chip (null: of the GPU) by group; RunnerError where it is not known."""
    if tool == "rocprof":
        return rocprof.counter_groups(chip or (gpu[0] if gpu else None), groups)
    return counter_plan(chip, groups, gpu).groups


def check_tools(tools: Sequence[str], counters: Callable[[], ncu.Plan]) -> None:
    """RunnerError where one of `nsys`, `ncu` and `rocprof` is not there, or ncu may not or cannot count these."""
    if "nsys" in tools:
        Nsys.locate()
    if "ncu" in tools:
        ncu.ready(None, counters())
    if "rocprof" in tools:
        Rocprof.locate()


def forget(run: PlannedRun) -> None:
    """Takes away what a tool left of the run before, so that it is not taken for what it records now."""
    names = (*_CUPTI, *_NSYS, ncu.LOG)
    make_room(run.folder, (*(run.folder / name for name in names), *rocprof.files_in(run.folder)))


def refusals(run: PlannedRun) -> list[str]:
    """Why ncu was refused counters in this run, where that stands in the way of all others, too."""
    problem = ncu.problem_of(run.folder / ncu.LOG) if run.tool == "ncu" else None
    return [problem] if problem and is_refusal(problem) else []


def finish(run: PlannedRun, status: int) -> None:
    """Makes run.json of what the level process told and the tool recorded; RunnerError where either is missing."""
    description = read_json(run.folder / LEVEL)
    beside = description.get("files")  # what the process itself says of its work, as of compiled code
    file: dict[str, str | None]
    more: dict[str, object]
    if run.tool == "ncu":
        log = ncu.counters_file(run.folder / ncu.LOG, status, run.command[-1:])
        file, beside = {"path": log.name, "format": "ncu_csv"}, []
        more = {"counters": list(run.counters), "step_durations_ns": []}  # of replayed kernels, so no latencies
    else:
        if isinstance(problem := description.get(cupti.PROBLEM), str):
            raise RunnerError(problem)
        if status:
            raise RunnerError(f"the program under {run.tool} ended with status {status}")
        file, more = _RECORDINGS[run.tool](run.folder)
        if description.get("deepest_level") == "kernel" and file["format"] == "nsys_sqlite":
            _check_kernels(run.folder / str(file["path"]))
        if run.counters:  # of rocprofv3, under which kernels run one at a time: no latencies either
            (counted, *_) = rocprof.files_with_kernels(run.folder, status, run.command[-1:], counters=True)
            file, beside = {"path": counted.name, "format": "rocprofv3"}, []
            more = {**more, "counters": list(run.counters), "step_durations_ns": []}
    if not description:
        raise RunnerError(f"the level process under {run.tool} left no description of its run")
    files = [file, *(beside if isinstance(beside, list) else [])]
    put_json(
        run.folder / RUN,
        {**description, **more, "files": files, "runner_level": run.level, "options": public_options(run.options)},
    )
    (run.folder / LEVEL).unlink(missing_ok=True)


def _check_kernels(database: Path) -> None:
    """RunnerError where nsys recorded none of a run on a GPU."""
    if nsys.kernel_count(database) == 0:
        raise RunnerError(
            f"nsys recorded no kernel of the GPU: its own messages in {database.with_suffix('.nsys-rep').name} say why "
            "(another profiler in the process, a driver older than this nsys knows, or no right to profile), or the "
            "program ran on the CPU"
        )


def _of_nsys(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    left = nsys.export_recording(folder, nsys=Nsys.locate())
    if left.path is None:
        raise RunnerError(left.note)
    return {"path": left.path.name, "format": left.format}, {"recorder_note": left.note}


def _of_cupti(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    for name in _CUPTI:
        if (folder / name).is_file():
            return {"path": name, "format": "cupti_dump"}, {}
    raise RunnerError(f"CUPTI left no recording in {folder}: its own messages say why")


def _of_rocprof(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    """The largest file with kernels: a process that the work started may have left another one."""
    (largest, *others) = rocprof.files_with_kernels(folder, 0, ())
    note = {"recorder_note": f"{len(others)} other processes used the GPU; their files lie beside"} if others else {}
    return {"path": largest.name, "format": "rocprofv3"}, dict(note)


_RECORDINGS: dict[str, Callable[[Path], tuple[dict[str, str | None], dict[str, object]]]] = {
    "nsys": _of_nsys,
    "cupti": _of_cupti,
    "rocprof": _of_rocprof,
}
