"""NVIDIA's readers of reports: its Python module, or the user's own Nsight Compute, which prints the raw page."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import PureWindowsPath  # which knows both kinds of paths
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.ncu.csv.pages import ATTRIBUTE, Collected, NvtxRange
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["raw_page", "read_by_module", "uses_module"]

COMMAND_VARIABLE = "XSP_NCU"
_MODULE = "ncu_report"
_TIMEOUT_S = 600
_IMPORT = ("--csv", "--page", "raw", "--print-units", "base")
_LOAD = f"import sys, {_MODULE} as m; r = m.load_report(sys.argv[1]); [len(r.range_by_idx(i)) for i in range(len(r))]"
_SAMPLES = "smsp__pcsamp_sample_count"
_LINE_SAMPLES = "samples at"  # the counter's name goes on with file and line
_MAX_LINES = 5
_LINK = re.compile(r"@(?:url:(?P<label>[^:@]*):[^@]*|section:[^:@]*:(?P<section>[^@]*))@")
_LISTS = ("group:", "breakdown:")  # names of other counters, which the module has among the counters


def raw_page(path: Path) -> str:
    """The report's raw page as CSV; XspError where there is no Nsight Compute, or it cannot read the report."""
    command = _command(path)
    if command is not None:
        return _run_ncu(command, path)
    raise XspError(
        "a report of Nsight Compute, which NVIDIA's package ncu-report reads, and it is not installed",
        path=path,
        advice="pip install ncu-report; or, where Nsight Compute is installed, put the path of ncu into"
        f" {COMMAND_VARIABLE}, or give the page that it prints: ncu --import {path.name} {' '.join(_IMPORT)} >"
        f" {path.stem}.csv",
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


def uses_module() -> bool:
    """Whether NVIDIA's module reads reports: it is here, and the user names no program; it tells more than the page."""
    return not os.environ.get(COMMAND_VARIABLE) and importlib.util.find_spec(_MODULE) is not None


def read_by_module(path: Path) -> Collected:
    """Kernels, ranges and counters; the module is under a licence of its own and only used where it is installed."""
    _load_apart(path)
    module = importlib.import_module(_MODULE)
    try:
        report = module.load_report(str(path))
        out = Collected(decimal_sign=".")
        for number, action in enumerate(_actions(report)):
            _add(out, number, action)
    except (RuntimeError, TypeError, ValueError, OSError) as error:  # TypeError: names that are no text
        raise XspError(f"the module {_MODULE} could not read the report: {error}", path=path) from error
    if not out.kernels["name"]:
        raise XspError("the report holds no kernel's counters", path=path, advice="Write it with `ncu -o FILE PROGRAM`")
    return out


def _load_apart(path: Path) -> None:
    """Loads the report in a process of its own first: the module ends the whole process at some damaged files."""
    command = [sys.executable, "-P", "-c", _LOAD, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)  # noqa: S603 (Python, with a path of the user's)
    except subprocess.TimeoutExpired as error:
        raise XspError(f"the module {_MODULE} did not load the report within {_TIMEOUT_S} s", path=path) from error
    if done.returncode:
        raise XspError(
            f"the module {_MODULE} cannot load the report: it is damaged, or newer than the module",
            path=path,
            advice="Copy it again, or pip install -U ncu-report",
        )


def _actions(report: Any) -> Iterator[Any]:  # noqa: ANN401 (foreign)
    """What was profiled, range by range."""
    return (action for which in range(report.num_ranges()) for action in report.range_by_idx(which))


def _add(out: Collected, number: int, action: Any) -> None:  # noqa: ANN401 (foreign)
    metrics = {name: action.metric_by_name(name) for name in action.metric_names() if not name.startswith(_LISTS)}
    texts = {name: "" if metric.value() is None else str(metric.value()) for name, metric in metrics.items()}
    name = action.name(action.NameBase_DEMANGLED)
    if name is None and not metrics:  # what the module makes of the last one of a report that is cut off
        raise ValueError("a kernel has neither name nor counters: the file is cut off or damaged")
    facts = _facts(number, name or "range", texts)  # of several launches that were replayed as one
    domains = _domains(action.nvtx_state())
    kernel = out.add_kernel(facts, 0, ranges=_ranges(domains))
    out.annotations |= any(domain.start_end_ranges() for domain in domains)
    attributes = out.is_new_device(facts["device"])
    if _SAMPLES in metrics:
        _add_lines(out, kernel, action)
    _add_advice(out, action)
    for name, text in texts.items():
        if text and (attributes or not name.startswith(ATTRIBUTE)):
            out.add(kernel, name, metrics[name].unit() or "", text)


def _add_lines(out: Collected, kernel: int, action: Any) -> None:  # noqa: ANN401 (foreign)
    """The lines of source at which most of the samples of warps are, each with its share of all samples."""
    samples = action.metric_by_name(_SAMPLES)
    addresses = samples.correlation_ids() if samples.num_instances() else None
    if addresses is None:
        return
    by_line: dict[str, int] = {}
    for n in range(samples.num_instances()):
        line = action.source_info(addresses.as_uint64(n))
        if line is not None:  # else the program was built without lines
            name = f"{PureWindowsPath(line.file_name()).name}:{line.line()}"
            by_line[name] = by_line.get(name, 0) + samples.as_uint64(n)
    total = samples.as_double()
    for name, count in sorted(by_line.items(), key=lambda each: (-each[1], each[0]))[:_MAX_LINES]:
        if count and total:
            out.add(kernel, f"{_LINE_SAMPLES} {name}", "1", str(count / total))


def _add_advice(out: Collected, action: Any) -> None:  # noqa: ANN401 (foreign)
    """What the rules of the report's sections say, without their links; of no rule twice for one kernel and title."""
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message", {})
        text = _LINK.sub(lambda link: link["label"] or link["section"], message.get("message", "")).strip()
        if text:
            key = (result.get("name", ""), message.get("title", ""))
            out.advice.setdefault(key, []).append(text)


def _facts(number: int, name: str, texts: Mapping[str, str]) -> dict[str, str | None]:
    """What the page has in columns of its own; a report does not say the process."""

    def of(counter: str) -> str:
        return texts.get(counter, "").removesuffix(".0")  # some are kept as floats

    block, grid = (f"({', '.join(of(f'launch__{what}_dim_{axis}') for axis in 'xyz')})" for what in ("block", "grid"))
    capability = ".".join(of(f"{ATTRIBUTE}compute_capability_{part}") for part in ("major", "minor"))
    ids = {"context": "launch__context_id", "stream": "launch__stream_id", "device": "launch__device_id"}
    return {
        "id": str(number),
        "process": None,
        "name": name,
        "block": block,
        "grid": grid,
        "capability": capability if capability != "." else None,
        **{fact: of(counter) or None for fact, counter in ids.items()},
    }


def _domains(state: Any) -> list[Any]:  # noqa: ANN401 (foreign)
    """The domains of NVTX state; none where it was not recorded."""
    return [] if state is None else [state.domain_by_id(number) for number in state.domains()]


def _ranges(domains: list[Any]) -> list[NvtxRange]:
    """The ranges pushed when the kernel was launched, outermost first in each domain."""
    return [NvtxRange.of(domain.name(), text) for domain in domains for text in domain.push_pop_ranges()]
