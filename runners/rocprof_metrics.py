"""Which counters rocprofv3 is asked for on which chip, in groups of one pass: read from `data/rocprof_metrics.toml`."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import output_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Chip", "chip_here", "chip_of", "chips", "groups_of"]

_DATA = Path(__file__).parent / "data" / "rocprof_metrics.toml"
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
    return tuple(Chip(each["name"], tuple(each["gpus"]), _groups(each)) for each in _table()["chip"])


def _groups(entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    common = {name: tuple(counters) for name, counters in _table()["groups"].items()}
    return {name: (*counters, *entry.get("more", {}).get(name, ())) for name, counters in common.items()}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))


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


def groups_of(chip: Chip, requested: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """The counters of the groups `requested`, else of all, each one run; RunnerError for a group that there is not."""
    if unknown := [name for name in requested if name not in chip.groups]:
        raise RunnerError(f"{', '.join(unknown)} is no group of counters: choose of {', '.join(sorted(chip.groups))}")
    return {name: chip.groups[name] for name in requested or chip.groups}
