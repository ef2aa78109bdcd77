"""Runs each unit in a process of its own, forked from one that has imported what `xsp` imports."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import time
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fingerprint.command import entry_point, xsp
from tests.fingerprint.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.process import BaseProcess

    from tests.fingerprint.units import Unit

__all__ = ["run_units"]

_MIN_UNITS_TO_IMPORT_AHEAD = 8
_FORK = multiprocessing.get_context("fork")


def run_units(
    pending: Sequence[Unit], work: Path, inputs: Mapping[str, Path], *, keep: Path | None, command: str, jobs: int
) -> tuple[dict[str, str], list[str]]:
    """The digests of all units by item, and the steps that ran."""
    if len(pending) >= _MIN_UNITS_TO_IMPORT_AHEAD:
        _import_ahead(work, inputs)
    queue = list(pending)
    running: dict[object, tuple[Unit, BaseProcess]] = {}
    items: dict[str, str] = {}
    steps: list[str] = []
    while queue or running:
        while queue and len(running) < jobs:
            unit = queue.pop(0)
            process: BaseProcess = _FORK.Process(target=_run, args=(unit, work, inputs, keep, command))
            process.start()
            running[process.sentinel] = (unit, process)
        for sentinel in wait([process.sentinel for _, process in running.values()]):
            unit, process = running.pop(sentinel)
            process.join()
            _collect(unit, process.exitcode, work, items, steps)
    return items, steps


def _import_ahead(work: Path, inputs: Mapping[str, Path]) -> None:
    """Imports what the commands import when they first need it, so that no fork does it again."""
    entry_point()
    names = work / "modules.json"
    process = _FORK.Process(target=_write_modules, args=(names, inputs["fixtures"]))
    process.start()
    process.join()
    for name in json.loads(names.read_text()):
        with suppress(Exception):
            importlib.import_module(name)


def _write_modules(names: Path, fixtures: Path) -> None:
    os.chdir(names.parent)
    trace = str(fixtures / "torch_profiler" / "two_ranks")
    for command in (["convert", trace, "-o", "w.xsp"], ["report", "w.xsp", "-o", "w.html"], ["findings", "w.xsp"]):
        xsp(command)
    xsp(["figure", "w.xsp", "-a", "A10", "-o", "w.svg"])
    xsp(["analyze", "w.xsp", "-f", "csv", "-o", "w"])
    names.write_text(json.dumps([name for name in sys.modules if name != "__main__"]))


def _run(unit: Unit, work: Path, inputs: Mapping[str, Path], keep: Path | None, command: str) -> None:
    folder = _folder(unit, work)
    folder.mkdir()
    for name, target in inputs.items():
        (folder / name).symlink_to(target, target_is_directory=True)
    os.chdir(folder)
    roots = {str(folder): ".", **{str(target): name for name, target in inputs.items()}}
    recorder = Recorder(unit.name, roots, keep, command)
    began = time.process_time()
    unit.run(recorder)
    result = {"items": recorder.items, "steps": recorder.steps, "cpu_s": time.process_time() - began}
    Path("recorded.json").write_text(json.dumps(result))


def _collect(unit: Unit, exit_code: int | None, work: Path, items: dict[str, str], steps: list[str]) -> None:
    """Takes over what a process has recorded; that one died is an item."""
    folder = _folder(unit, work)
    file = folder / "recorded.json"
    if file.exists():
        result = json.loads(file.read_text())
        items |= result["items"]
        steps += result["steps"]
        sys.stderr.write(f"{result['cpu_s']:7.1f} s  {len(result['items']):4} items  {unit.name}\n")
    else:
        items[f"{unit.name}/died"] = f"exit {exit_code}"
    shutil.rmtree(folder, ignore_errors=True)


def _folder(unit: Unit, work: Path) -> Path:
    return work / unit.name.replace("/", "~")
