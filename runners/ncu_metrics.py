"""Which counters ncu is asked for on which chip, in groups: read from `data/ncu_metrics.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Architecture", "architecture_of", "architectures", "default_groups", "groups_of"]

_DATA = Path(__file__).parent / "data" / "ncu_metrics.toml"


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
    table = _table()
    return tuple(_architecture(each, table["lists"]) for each in table["architecture"])


def default_groups() -> tuple[str, ...]:
    """The groups that are collected unless others are asked for."""
    return tuple(_table()["default"])


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))


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
    sets: Mapping[str, Sequence[str]] = _table()["sets"]
    every = {*sets, *(name for each in architectures() for name in each.groups)}
    if unknown := [name for name in requested if name not in every]:
        raise RunnerError(f"{', '.join(unknown)} is no group of counters: choose of {', '.join(sorted(every))}")
    names = dict.fromkeys(name for one in requested or default_groups() for name in sets.get(one, (one,)))
    return {name: architecture.groups[name] for name in names if name in architecture.groups}
