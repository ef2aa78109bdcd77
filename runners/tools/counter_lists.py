"""Which counters ncu and rocprofv3 are asked for on which chip, in groups: read from `data/*_metrics.toml`."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.programs import output_of

__all__ = [
    "Architecture",
    "architecture_of",
    "architectures",
    "chip_here",
    "chip_of",
    "chips",
    "default_groups",
    "groups_of",
    "groups_of_chip",
]

_NCU_DATA = Path(__file__).parents[1] / "data" / "ncu_metrics.toml"


@dataclass(frozen=True)
class Architecture:
    """Chips with the same counters."""

    name: str
    capabilities: tuple[str, ...]
    chips: tuple[str, ...]  # as CUPTI and ncu know them, in capitals
    gpus: tuple[str, ...]  # regular expressions of words in device names
    groups: Mapping[str, tuple[str, ...]]
    passes: Mapping[str, int]  # times that a kernel runs for the group, where known

    def has_name(self, text: str) -> bool:
        """Whether a GPU of this name (`NVIDIA H100 PCIe`), or a chip of it (`gh100`), is of this architecture."""
        return text.upper() in self.chips or any(
            re.search(rf"(?<!\w){gpu}(?!\w)", text, re.IGNORECASE) for gpu in self.gpus
        )


@cache
def architectures() -> tuple[Architecture, ...]:
    """All that counters are known of, oldest first."""
    table = _ncu_table()
    return tuple(_architecture(each, table["lists"]) for each in table["architecture"])


def default_groups() -> tuple[str, ...]:
    """The groups that are collected unless others are asked for."""
    return tuple(_ncu_table()["default"])


@cache
def _ncu_table() -> dict[str, Any]:
    return tomllib.loads(_NCU_DATA.read_text(encoding="utf-8"))


def _architecture(entry: Mapping[str, Any], lists: Mapping[str, Sequence[str]]) -> Architecture:
    groups = {name: _counters(group, lists) for name, group in entry["groups"].items()}
    return Architecture(
        name=entry["name"],
        capabilities=tuple(entry["capabilities"]),
        chips=tuple(entry["chips"]),
        gpus=tuple(entry["gpus"]),
        groups=groups,
        passes=dict(entry.get("passes", {})),
    )


def _counters(group: Mapping[str, Sequence[str]], lists: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return (*(name for part in group.get("lists", ()) for name in lists[part]), *group.get("counters", ()))


def architecture_of(*, device: str | None = None, capability: str | None = None) -> Architecture:
    """The architecture of a GPU by its name or chip and its compute capability, either of which may be unknown.

    RunnerError where nothing is known of it.
    """
    fitting = [each for each in architectures() if capability is None or capability in each.capabilities]
    named = [each for each in fitting if device and each.has_name(device)]
    # A name narrows down a capability that two architectures share; among them the last has all the others have.
    candidates = named[:1] or (fitting[-1:] if capability else [])
    if not candidates:
        what = " ".join(filter(None, [device, f"of compute capability {capability}" if capability else ""]))
        chips = ", ".join(each.chips[0] for each in architectures())
        raise RunnerError(f"no counters are listed for {what or 'an unknown GPU'}: name the chip, one of {chips}")
    return candidates[0]


def groups_of(architecture: Architecture, requested: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """The counters of the groups and sets `requested` (else the default groups), by group, without those it lacks.

    RunnerError for a group that there is not.
    """
    sets: Mapping[str, Sequence[str]] = _ncu_table()["sets"]
    every = {*sets, *(name for each in architectures() for name in each.groups)}
    if unknown := [name for name in requested if name not in every]:
        raise RunnerError(f"{', '.join(unknown)} is no group of counters: choose of {', '.join(sorted(every))}")
    names = dict.fromkeys(name for one in requested or default_groups() for name in sets.get(one, (one,)))
    return {name: architecture.groups[name] for name in names if name in architecture.groups}


_ROCPROF_DATA = Path(__file__).parents[1] / "data" / "rocprof_metrics.toml"
_ENUMERATOR = "rocm_agent_enumerator"  # of ROCm itself; its first line is the CPU, gfx000


@dataclass(frozen=True)
class Chip:
    """Chips with the same counters."""

    name: str  # as AMD's compiler knows it: gfx942
    gpus: tuple[str, ...]  # regular expressions of words in device names
    groups: Mapping[str, tuple[str, ...]]


@cache
def chips() -> tuple[Chip, ...]:
    """All that counters are known of, oldest first."""
    return tuple(Chip(each["name"], tuple(each["gpus"]), _groups(each)) for each in _rocprof_table()["chip"])


def _groups(entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    common = {name: tuple(counters) for name, counters in _rocprof_table()["groups"].items()}
    return {name: (*counters, *entry.get("more", {}).get(name, ())) for name, counters in common.items()}


@cache
def _rocprof_table() -> dict[str, Any]:
    return tomllib.loads(_ROCPROF_DATA.read_text(encoding="utf-8"))


def chip_of(name: str) -> Chip:
    """The chip named (`gfx942:sramecc+`) or in the GPU named (`MI300X`); RunnerError where it has no list."""
    for chip in chips():
        if name.partition(":")[0].lower() == chip.name or any(
            re.search(rf"(?<![A-Za-z0-9]){gpu}(?![A-Za-z0-9])", name, re.IGNORECASE) for gpu in chip.gpus
        ):
            return chip
    names = ", ".join(chip.name for chip in chips())
    raise RunnerError(f"no counters are listed for {name}: only chips of CDNA have them (--chip, one of {names})")


def chip_here() -> str:
    """The first GPU of this machine, as ROCm's own enumerator names it; RunnerError where there is none."""
    tool = shutil.which(_ENUMERATOR) or shutil.which(f"/opt/rocm/bin/{_ENUMERATOR}")
    names: list[str] = re.findall(r"gfx\w+", output_of([tool])[1]) if tool else []
    if gpus := [name for name in names if name != "gfx000"]:
        return gpus[0]
    raise RunnerError("no AMD GPU is known here: name the chip, as --chip gfx942")


def groups_of_chip(chip: Chip, requested: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """The counters of the groups `requested`, else of all, each one run; RunnerError for a group that there is not."""
    if unknown := [name for name in requested if name not in chip.groups]:
        raise RunnerError(f"{', '.join(unknown)} is no group of counters: choose of {', '.join(sorted(chip.groups))}")
    return {name: chip.groups[name] for name in requested or chip.groups}
