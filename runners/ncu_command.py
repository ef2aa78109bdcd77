"""What an ncu knows, the command that makes it count, and what its messages mean for the user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import find_tool, output_of, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_runners.ncu_metrics import Architecture

__all__ = ["NO_PERMISSION", "VARIABLE", "Ncu", "is_refusal", "problem_in", "profile_command"]

VARIABLE = "XSP_NCU"
"""The environment variable that names the ncu to use."""

NO_PERMISSION = (
    "the driver lets only administrators read hardware counters (ERR_NVGPUCTRPERM): run as root, or let everybody by "
    "the line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d and a reboot; a "
    "container needs --cap-add=SYS_ADMIN"
)
"""What to do where counters may not be read."""

_NO_DRIVER = "ncu finds no CUDA driver and no GPU"
_BUSY = "another program holds the GPU's counters: end other profilers, and pause dcgm (`dcgmi profiling --pause`)"
_REFUSALS = (NO_PERMISSION, _NO_DRIVER, _BUSY)
_METRIC = re.compile(r"(?m)^([a-z][A-Za-z0-9]*__\w+)\s")
_LISTED_CHIPS = re.compile(r"\b[a-z]{2}\d{2,3}[a-z0-9]\b")
_PROBLEMS = (
    (re.compile(r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters"), NO_PERMISSION),
    (re.compile(r"failed to connect to the CUDA driver|no CUDA-capable device"), _NO_DRIVER),
    (re.compile(r"[Dd]river resource was unavailable|ERR_NVGPUCTRBUSY"), _BUSY),
    (re.compile(r"==ERROR== (Failed to find metric [^\n]*|.*[Ii]nvalid metric[^\n]*)"), None),
    (
        re.compile(r"==ERROR== (unrecognised option[^\n]*|the argument for option[^\n]*|Invalid configuration[^\n]*)"),
        None,
    ),
    (
        re.compile(r"No kernels were profiled"),
        "ncu saw no kernel in the ranges asked for (`step` is a start/end range, `step/` a push/pop range)",
    ),
    (re.compile(r"==ERROR== ([^\n]*)"), None),
)


@dataclass(frozen=True)
class Ncu:
    """An ncu and the chips that it knows."""

    path: str
    version: tuple[int, ...] | None
    chips: frozenset[str]

    @classmethod
    def locate(cls, chosen: str | None = None) -> Ncu:
        """The ncu that is `chosen`, or of $XSP_NCU, or of the PATH; RunnerError where there is none that answers."""
        path = find_tool("ncu", variable=VARIABLE, chosen=chosen)
        status, text = output_of([path, "--list-chips"])
        chips = frozenset(chip.upper() for chip in _LISTED_CHIPS.findall(text))
        if status or not chips:
            raise RunnerError(f"{path} does not answer as ncu does (ncu --list-chips)")
        return cls(path, version_of(output_of([path, "--version"])[1]), chips)

    def unknown(self, metrics: Sequence[str], architecture: Architecture) -> list[str]:
        """Those of the metrics that this ncu does not have for the chips; RunnerError where it knows none of them."""
        chip = next((chip for chip in architecture.chips if chip in self.chips), None)
        if chip is None:
            raise RunnerError(
                f"this ncu is too old for {architecture.chips[0]}: it knows {', '.join(sorted(self.chips))}"
            )
        status, text = output_of([self.path, "--query-metrics", "--chips", chip.lower()])
        names = set(_METRIC.findall(text))
        if status or not names:
            raise RunnerError(f"this ncu does not say which metrics {chip} has (ncu --query-metrics --chips)")
        return [metric for metric in metrics if metric.partition(".")[0] not in names]


def profile_command(
    target: Sequence[str],
    log: Path,
    metrics: Sequence[str],
    *,
    ncu: str = "ncu",
    ranges: Sequence[str] = (),
    capture: str = "none",
) -> list[str]:
    """The command that counts `metrics` of every kernel `target` runs, and leaves the raw page as CSV in `log`.

    `ranges`: NVTX ranges around the kernels to count, as ncu writes them: `step` is a start/end range, of all threads,
    `step/` a push/pop range, of its thread only (`regex:` before a regular expression); none: every kernel. `capture`
    is `cudaProfilerApi` where only what runs between its start and stop counts. Clocks and caches are left as the
    program has them: only so do counts hold for the run without ncu.
    """
    switches = ["--target-processes", "all", "--clock-control", "none", "--cache-control", "none"]
    switches += ["--nvtx"]  # kernels of CUDA graphs one by one is what ncu does by itself
    switches += [part for name in ranges for part in ("--nvtx-include", name)]
    switches += ["--profile-from-start", "off"] if capture != "none" else []
    page = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics), "--log-file", str(log)]
    return [ncu, *switches, *page, *target]


def problem_in(text: str) -> str | None:
    """What ncu's messages say went wrong, as a sentence for the user; None where nothing did."""
    for pattern, sentence in _PROBLEMS:
        if match := pattern.search(text):
            return sentence or f"ncu says: {match[1].strip()}"
    return None


def is_refusal(sentence: str) -> bool:
    """Whether a run failed for a reason that stands in the way of all counters."""
    return any(reason in sentence for reason in _REFUSALS)
