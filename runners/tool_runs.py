"""Level processes under NVIDIA's tools: their commands, and the run.json once a tool has left its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xsp_runners import cupti, ncu, nsys
from xsp_runners.ncu_command import Ncu
from xsp_runners.nsys_command import ASSUMED, Nsys
from xsp_runners.run_folder import LEVEL, RUN, RunnerError, put_json, read_json, recorded
from xsp_runners.tool import find_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_runners.planned_run import PlannedRun

__all__ = ["check_tools", "counter_groups", "finish", "forget", "kernels_command", "ncu_command", "on_gpu"]

_CUPTI = (str(Path(cupti.NAME).with_suffix(".parquet")), cupti.NAME)  # the better of the two first
_NSYS = tuple(f"{nsys.NAME}{ending}" for ending in (".sqlite", ".nsys-rep", ".qdstrm"))
_STEP = "step"  # the NVTX range of a recorded step, as level processes mark it


def kernels_command(tool: str, target: Sequence[str], folder: Path, *, device: str) -> list[str]:
    """The level process under `nsys` (the one at hand, else for a recent one), or with CUPTI in its process."""
    if tool == "cupti":
        return cupti.wrapped_command(target, folder)
    return nsys.profile_command(target, folder, nsys=_nsys() or ASSUMED, on_gpu=on_gpu(device))


def ncu_command(target: Sequence[str], folder: Path, metrics: Sequence[str]) -> list[str]:
    """The level process under ncu, which counts in recorded steps only."""
    return ncu.profile_command(target, folder / ncu.LOG, metrics, ncu=_ncu() or "ncu", ranges=[_STEP])


def counter_groups(chip: str | None, groups: str) -> Mapping[str, Sequence[str]]:
    """Counters of the chip (null: of this machine's GPU) by group; RunnerError where the chip is not known."""
    return ncu.plan(chip=chip, groups=[name for name in groups.split(",") if name]).groups


def check_tools(tools: Sequence[str]) -> None:
    """RunnerError with its sentence where one of `nsys` and `ncu` is wanted and not there."""
    if "nsys" in tools:
        Nsys.locate()
    if "ncu" in tools:
        Ncu.locate()


def forget(run: PlannedRun) -> None:
    """Takes away what a tool left of the run before, so that it is not taken for what it records now."""
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        for name in (*_CUPTI, *_NSYS, ncu.LOG):
            (run.folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {run.folder}: {error.strerror}") from error


def finish(run: PlannedRun, status: int) -> None:
    """Makes run.json of what the level process told and the tool recorded; RunnerError where either is missing."""
    description = read_json(run.folder / LEVEL)
    file: dict[str, str | None]
    more: dict[str, object]
    if run.tool == "ncu":
        log = ncu.counted(run.folder / ncu.LOG, status, run.command[-1:])
        file = {"path": log.name, "format": "ncu_csv"}
        more = {"counters": list(run.counters), "step_durations_ns": []}  # of replayed kernels, so no latencies
    else:
        if status:
            raise RunnerError(f"the program under {run.tool} ended with status {status}")
        file, more = _RECORDINGS[run.tool](run.folder)
    if not description:
        raise RunnerError(f"the level process under {run.tool} left no description of its run")
    put_json(
        run.folder / RUN,
        {**description, **more, "files": [file], "runner_level": run.level, "options": recorded(run.options)},
    )
    (run.folder / LEVEL).unlink(missing_ok=True)


def _of_nsys(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    left = nsys.exported(folder, nsys=Nsys.locate())
    if left.path is None:
        raise RunnerError(left.note)
    return {"path": left.path.name, "format": left.format}, {"recorder_note": left.note}


def _of_cupti(folder: Path) -> tuple[dict[str, str | None], dict[str, object]]:
    for name in _CUPTI:
        if (folder / name).is_file():
            return {"path": name, "format": "cupti_dump"}, {}
    raise RunnerError(f"CUPTI left no recording in {folder}: its own messages say why")


_RECORDINGS: dict[str, Callable[[Path], tuple[dict[str, str | None], dict[str, object]]]] = {
    "nsys": _of_nsys,
    "cupti": _of_cupti,
}


def _nsys() -> Nsys | None:
    try:
        return Nsys.locate()
    except RunnerError:
        return None


def _ncu() -> str | None:
    try:
        return Ncu.locate().path
    except RunnerError:
        return None


def on_gpu(device: str) -> bool:
    """Whether the run will be on a GPU; `auto` is where the driver names one."""
    if device != "auto":
        return device == "cuda"
    try:
        find_gpu()
    except RunnerError:
        return False
    return True
