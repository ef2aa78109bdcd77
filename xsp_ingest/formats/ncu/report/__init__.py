"""Nsight Compute's binary reports, read by means of the user's own Nsight Compute."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.ncu.csv import read_text
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NCU_REPORT", "raw_page"]

_MAGIC = b"NVR\0"


class NcuReport(Ingester):
    """The ingester of `.ncu-rep` files."""

    name: str = "ncu_report"
    title: str = "Nsight Compute report (.ncu-rep), read by the user's own ncu or module ncu_report"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file starts as a report does."""
        return Match.exact_if(probe.head.startswith(_MAGIC))

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (no option concerns it)
        """The report's kernels and counters; XspError where nothing here can read it."""
        return read_text(io.StringIO(raw_page(path)), path, "Nsight Compute")


NCU_REPORT = NcuReport()


# The user's own Nsight Compute: its command, else its Python module, both turning a report into the raw page.

COMMAND_VARIABLE = "XSP_NCU"
_MODULE = "ncu_report"
_TIMEOUT_S = 600
_IMPORT = ("--csv", "--page", "raw", "--print-units", "base")
_COLUMNS = ("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")


def raw_page(path: Path) -> str:
    """The report's raw page as CSV; XspError where there is no Nsight Compute, or it cannot read the report."""
    command = _command(path)
    if command is not None:
        return _run_ncu(command, path)
    if find_spec(_MODULE) is not None:
        return _from_module(path)
    raise XspError(
        "a report of Nsight Compute, which only Nsight Compute can read, and there is none here",
        path=path,
        advice=f"Where it is installed: ncu --import {path.name} {' '.join(_IMPORT)} > {path.stem}.csv; or put the"
        f" path of ncu into {COMMAND_VARIABLE}, or pip install ncu-report",
    )


def _command(path: Path) -> str | None:
    named = os.environ.get(COMMAND_VARIABLE)
    program = shutil.which(named or "ncu")
    if named and program is None:
        raise XspError(f"{COMMAND_VARIABLE} names {named!r}, which is no program", path=path)
    return program


def _run_ncu(command: str, path: Path) -> str:
    """What `ncu --import` prints; no shell is involved."""
    arguments = [command, "--import", str(path.absolute()), *_IMPORT]
    try:
        done = subprocess.run(  # noqa: S603 (the user's own program, with a path of the user's)
            arguments,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise XspError(f"ncu did not finish within {_TIMEOUT_S} s", path=path) from error
    except OSError as error:
        raise XspError(f"ncu could not be run ({error.strerror})", path=path) from error
    text = done.stdout.decode("utf-8", errors="replace")
    if done.returncode or "Kernel Name" not in text:
        message = " ".join((done.stderr.decode("utf-8", errors="replace") + text).split())[:200] or "it said nothing"
        raise XspError(
            f"ncu could not read the report: {message}",
            path=path,
            advice="A report needs an ncu at least as new as the one that wrote it",
        )
    return text


def _from_module(path: Path) -> str:
    """The same page from NVIDIA's module, which is under a licence of its own and only used where it is installed."""
    module = import_module(_MODULE)
    try:
        rows = list(_actions(module.load_report(str(path))))
    except (RuntimeError, ValueError, OSError) as error:
        raise XspError(f"the module ncu_report could not read the report: {error}", path=path) from error
    return _csv(rows)


def _actions(context: Any) -> Iterator[tuple[Sequence[str], Mapping[str, tuple[str, str]]]]:  # noqa: ANN401 (foreign)
    number = 0
    for which in range(context.num_ranges()):
        for action in context.range_by_idx(which):
            counters = {name: _metric(action.metric_by_name(name)) for name in action.metric_names()}
            yield _leading(number, action.name(), counters), counters
            number += 1


def _metric(metric: Any) -> tuple[str, str]:  # noqa: ANN401 (foreign)
    value = metric.value()
    return ("" if value is None else str(value)), metric.unit() or ""


def _leading(number: int, name: str, counters: Mapping[str, tuple[str, str]]) -> Sequence[str]:
    """The columns before the counters; a report does not say the process, so it is number 0."""

    def of(counter: str) -> str:
        return counters.get(counter, ("", ""))[0]

    block, grid = (f"({', '.join(of(f'launch__{what}_dim_{axis}') for axis in 'xyz')})" for what in ("block", "grid"))
    capability = ".".join(of(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return (
        str(number),
        "0",
        name,
        of("launch__context_id"),
        of("launch__stream_id"),
        block,
        grid,
        of("launch__device_id"),
        capability,
    )


def _csv(rows: Sequence[tuple[Sequence[str], Mapping[str, tuple[str, str]]]]) -> str:
    names = sorted({name for _, counters in rows for name in counters})
    units = {name: unit for _, counters in rows for name, (_, unit) in counters.items()}
    out = io.StringIO()
    page = csv.writer(out, quoting=csv.QUOTE_ALL)
    page.writerow((*_COLUMNS, *names))
    page.writerow((*[""] * len(_COLUMNS), *(units[name] for name in names)))
    page.writerows((*leading, *(counters.get(name, ("", ""))[0] for name in names)) for leading, counters in rows)
    return out.getvalue()
