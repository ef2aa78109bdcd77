"""Work that the user brings: a function that returns a step, or a program that marks its steps. Of any framework."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError
from xsp_runners.steps import AllStepsDone, recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_runners.steps import Recorder

__all__ = ["own_step", "run_script", "zoo_name"]


def zoo_name(workload: str) -> str | None:
    """The model that `zoo:NAME` names; null where the workload is the user's own."""
    kind, mark, name = workload.partition(":")
    if mark and kind != "zoo":
        return None
    return name if mark else workload


def own_step(workload: str, *, batch: int, device: str) -> Callable[[], object]:
    """The step that the user's `module:function` returns when called with batch and device; RunnerError if none."""
    module, _, function = workload.partition(":")
    if not module or not function:
        raise RunnerError(f"{workload!r} is no workload: give zoo:NAME or module:function")
    _look_here_first()
    try:
        build = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise RunnerError(f"the workload {workload} cannot be imported: {error}") from error
    if not callable(build):
        raise RunnerError(f"the workload's module {module} has no function {function}")
    step: Any = build(batch=batch, device=device)
    if not callable(step):
        raise RunnerError(f"the workload {workload} must return a function that runs one step")
    return step  # type: ignore[no-any-return]


def run_script(path: str, arguments: Sequence[str], recorder: Recorder) -> None:
    """Runs the program as Python would, until the recorder has its steps; RunnerError where it ends before that."""
    script = Path(path)
    if not script.is_file():
        raise RunnerError(f"the script {path} is not there")
    before = sys.argv, [*sys.path]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with recording(recorder):
            runpy.run_path(path, run_name="__main__")
    except AllStepsDone:
        return
    except SystemExit as left:
        if left.code not in (None, 0):
            raise RunnerError(f"the script ended itself with {left.code!r} before all steps were recorded") from left
    finally:
        sys.argv, sys.path[:] = before
    raise RunnerError(
        "the script ended before all steps were recorded: mark each step by `with xsp_step():` (xsp_runners.steps),"
        " and ask for no more --warmup and --steps than it runs"
    )


def _look_here_first() -> None:
    """As `python -m` does; a level process that was started by its path has nothing of its own there."""
    here = os.getcwd()  # noqa: PTH109 (text, as sys.path has it)
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
