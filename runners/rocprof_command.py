"""What a rocprofv3 can, and the commands that make it record a program or count what its kernels do.

Which switches are given follows from what the rocprofv3 found says of itself, not from its version.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import find_tool, output_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ASSUMED", "ENDINGS", "NAME", "VARIABLE", "Rocprof", "counter_command", "trace_command"]

ENDINGS = {"json": ".json", "rocpd": ".db"}
"""The outputs that are asked for, with how the names of their files end."""

NAME = "trace"
"""What the names of the files begin with; the process and `_results` follow."""

VARIABLE = "XSP_ROCPROFV3"
"""The environment variable that names the rocprofv3 to use."""

_USUAL = "/opt/rocm/bin/rocprofv3"  # which few have on their PATH
_SWITCH = re.compile(r"(--[a-z][a-z0-9-]+)")
_FORMATS = re.compile(r"--output-format\s+\{([a-z0-9,]+)\}")
_NEEDED = ("--kernel-trace", "--marker-trace", "--pmc")


@dataclass(frozen=True)
class Rocprof:
    """A rocprofv3 and what it says it can: its switches and its outputs."""

    path: str
    switches: frozenset[str]
    formats: frozenset[str]

    @classmethod
    def locate(cls, chosen: str | None = None) -> Rocprof:
        """The rocprofv3 that is `chosen`, of $XSP_ROCPROFV3, of the PATH or in /opt/rocm; RunnerError without."""
        try:
            path = find_tool("rocprofv3", variable=VARIABLE, chosen=chosen)
        except RunnerError:
            if chosen or shutil.which(_USUAL) is None:
                raise
            path = _USUAL
        status, text = output_of([path, "--help"])
        switches = frozenset(_SWITCH.findall(text))
        if status or not switches.issuperset(_NEEDED):
            raise RunnerError(f"{path} does not answer as rocprofv3 does (rocprofv3 --help): ROCm 6.2 or newer has it")
        formats = _FORMATS.search(text)
        return cls(path, switches, frozenset(formats[1].split(",")) if formats else frozenset({"json"}))


ASSUMED = Rocprof("rocprofv3", frozenset({*_NEEDED, "--hip-runtime-trace", "--rccl-trace"}), frozenset(ENDINGS))
"""What is taken for granted where rocprofv3 is not at hand, as in a dry run: what it has had since ROCm 6.4."""


def trace_command(
    target: Sequence[str],
    out: Path,
    *,
    rocprof: Rocprof = ASSUMED,
    output_format: str = "json",
    hsa: bool = False,
) -> list[str]:
    """The command that runs `target` under rocprofv3 and writes `trace_PID_results.json` (or `.db`) into `out`.

    Kernels, copies, calls of HIP's runtime, roctx ranges and calls to RCCL are recorded, with `hsa` also those of HSA,
    which are many. Each process writes a file of its own.
    """
    hip = "--hip-runtime-trace" if "--hip-runtime-trace" in rocprof.switches else "--hip-trace"
    traces = ["--kernel-trace", "--memory-copy-trace", hip, "--marker-trace"]
    traces += ["--rccl-trace"] if "--rccl-trace" in rocprof.switches else []
    traces += ["--hsa-trace"] if hsa else []
    return [rocprof.path, *traces, *_output(out, rocprof, output_format), "--", *target]


def counter_command(
    target: Sequence[str],
    out: Path,
    metrics: Sequence[str],
    *,
    rocprof: Rocprof = ASSUMED,
    output_format: str = "json",
) -> list[str]:
    """The command that counts `metrics` of every kernel of `target`, in one pass: rocprofv3 replays nothing.

    Calls and roctx ranges are recorded beside them, so that counters have layers. Kernels run one at a time meanwhile.
    """
    traced = trace_command(target, out, rocprof=rocprof, output_format=output_format)
    return [traced[0], "--pmc", *metrics, *traced[1:]]


def _output(out: Path, rocprof: Rocprof, output_format: str) -> list[str]:
    if output_format not in rocprof.formats:
        raise RunnerError(f"this rocprofv3 does not write {output_format}: it has {', '.join(sorted(rocprof.formats))}")
    if "%" in str(out):
        raise RunnerError(f"rocprofv3 takes what stands between % signs for something to fill in: rename {out}")
    return ["--output-format", output_format, "--output-directory", str(out), "--output-file", f"{NAME}_%pid%"]
