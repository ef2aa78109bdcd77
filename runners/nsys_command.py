"""What an nsys can, and the commands that make it record a program and export the recording.

Which switches are given follows from what the nsys found says of itself, not from its version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import find_tool, output_of, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ASSUMED", "CAPTURES", "GRAPHS", "NAME", "VARIABLE", "Nsys", "export_command", "profile_command"]

GRAPHS = ("node", "graph")
"""What of a CUDA graph is recorded: each of its kernels, or the launch as a whole at the least overhead."""

CAPTURES = ("none", "cudaProfilerApi")
"""What is recorded: everything, or what runs between cudaProfilerStart and cudaProfilerStop."""

NAME = "trace"
"""The name of the files, without what nsys adds."""

VARIABLE = "XSP_NSYS"
"""The environment variable that names the nsys to use."""

_ON_GPU = ("cuda", "nvtx", "cudnn", "cublas")
_ON_CPU = ("nvtx",)
_OS_CALLS = "osrt"
_SWITCH = re.compile(r"(?m)^\s*(?:-\w, )?(--[a-z][a-z-]+)")
_TRACES = re.compile(r"(?s)--trace=\s.*?Possible values are(.*?)\.\s*\n")
_PYTORCH = re.compile(r"(?s)--pytorch=\s.*?Possible values are(.*?)\.\s*\n")
_QUOTED = re.compile(r"'([a-z0-9-]+)'")


@dataclass(frozen=True)
class Nsys:
    """An nsys and what it says it can: its switches, what it traces, its modes for PyTorch."""

    path: str
    version: tuple[int, ...] | None
    switches: frozenset[str]
    traces: frozenset[str]
    pytorch: frozenset[str] = frozenset()

    @classmethod
    def locate(cls, chosen: str | None = None) -> Nsys:
        """The nsys that is `chosen`, or of $XSP_NSYS, or of the PATH; RunnerError where there is none that answers."""
        path = find_tool("nsys", variable=VARIABLE, chosen=chosen)
        status, text = output_of([path, "profile", "--help"])
        switches = frozenset(_SWITCH.findall(text))
        if status or "--trace" not in switches:
            raise RunnerError(f"{path} does not answer as nsys does (nsys profile --help)")
        return cls(
            path,
            version_of(output_of([path, "--version"])[1]),
            switches,
            _listed_values(_TRACES, text),
            _listed_values(_PYTORCH, text),
        )


def _listed_values(values: re.Pattern[str], text: str) -> frozenset[str]:
    match = values.search(text)
    return frozenset(_QUOTED.findall(match[1])) if match else frozenset()


ASSUMED = Nsys(
    "nsys",
    None,
    frozenset({"--cuda-graph-trace", "--cuda-memory-usage", "--capture-range-end"}),
    frozenset({*_ON_GPU, _OS_CALLS}),
)
"""What is taken for granted where nsys is not at hand, as in a dry run: what it has had since 2022."""


def profile_command(
    target: Sequence[str],
    out: Path,
    *,
    nsys: Nsys = ASSUMED,
    on_gpu: bool = True,
    graph: str = "node",
    memory: bool = False,
    capture: str = "none",
    operators: bool = False,
    os_calls: bool = False,
) -> list[str]:
    """The command that runs `target` under nsys and writes `trace.nsys-rep` into the folder `out`.

    Samples of the CPU and context switches are off: they cost time and say nothing of layers. `memory` records
    allocations, `operators` lets nsys annotate PyTorch's operators where it can. `os_calls` records calls of the
    operating system's runtime, which doubles the time that Python takes to start; XSP leaves them out unless asked.
    """
    traces = [*(_ON_GPU if on_gpu else _ON_CPU), *([_OS_CALLS] if os_calls else [])]
    traced = [name for name in traces if not nsys.traces or name in nsys.traces]
    switches = [f"--trace={','.join(traced)}", "--sample=none", "--cpuctxsw=none"]
    if on_gpu:
        switches += _if_known(nsys, "--cuda-graph-trace", graph)
        switches += _if_known(nsys, "--cuda-memory-usage", "true") if memory else []
    if capture != "none":
        # The default ends the program with the range, before it has written what it knows.
        switches += [f"--capture-range={capture}", *_if_known(nsys, "--capture-range-end", "stop")]
    switches += _annotation_switches(nsys) if operators else []
    output = str(out / NAME).replace("%", "%%")  # nsys replaces %p, %h and so on
    return [nsys.path, "profile", *switches, "--force-overwrite=true", f"--output={output}", *target]


def _if_known(nsys: Nsys, switch: str, value: str) -> list[str]:
    return [f"{switch}={value}"] if switch in nsys.switches else []


def _annotation_switches(nsys: Nsys) -> list[str]:
    modes = [mode for mode in ("autograd-shapes-nvtx", "autograd-nvtx") if mode in nsys.pytorch]
    if not modes:
        raise RunnerError("this nsys cannot annotate PyTorch's operators: nsys 2024.5 or newer can (--pytorch)")
    return [f"--pytorch={modes[0]}"]


def export_command(report: Path, *, nsys: Nsys = ASSUMED) -> list[str]:
    """The command that writes the report's SQLite beside it."""
    database = report.with_suffix(".sqlite")
    return [nsys.path, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
