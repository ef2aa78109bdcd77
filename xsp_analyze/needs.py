"""What an analysis may need of a trace, in words."""

from __future__ import annotations

from dataclasses import dataclass

from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

__all__ = ["AnyOf", "Need", "advice_on", "is_need", "words_of_need"]

_NEEDS = {  # what is no level: in words, and how to get it
    "metrics": ("hardware counters", "Measure them in a run of their own (ncu --csv) and join it with xsp merge"),
    "communication": ("communication kernels (NCCL, RCCL)", ""),
    "graph replay": ("replays of device graphs (cudaGraphLaunch, hipGraphLaunch)", ""),
    "experts": ("kernels of a mixture of experts", ""),
    "compiled code": ("kernels that a compiler generated (torch.compile)", ""),
    "leveled": ("runs at several levels", "Join them with xsp merge"),
    "serving": (
        "steps that a serving engine named",
        "Record them as docs/serving-steps.md says; torch.profiler's annotations and NVTX ranges both do",
    ),
    "power": (
        "samples of power",
        "Record them beside the run (the nvml runner), and name their file in the run's run.json",
    ),
}
_WITHOUT_WORDS = frozenset({"module"})  # beside levels and tables


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Several things one of which is enough."""

    needs: tuple[str, ...]

    def __init__(self, *needs: str) -> None:
        object.__setattr__(self, "needs", needs)  # it is frozen

    def __str__(self) -> str:
        return " or ".join(self.needs)


Need = str | AnyOf
"""A level, a table that must have rows, or another of the things that `holds` knows; or several of which one does."""


def is_need(need: Need) -> bool:
    """Whether every part of it is a level, a table or something that has words of its own."""
    parts = need.needs if isinstance(need, AnyOf) else (need,)
    return all(part in {*_NEEDS, *_WITHOUT_WORDS, *TABLES, *LEVELS} for part in parts)


def words_of_need(need: Need) -> str:
    """A level, table or other thing that an analysis needs, in words."""
    if isinstance(need, AnyOf):
        return str(need)
    return _NEEDS[need][0] if need in _NEEDS else f"{need} level" if need in LEVELS else need


def advice_on(need: Need) -> tuple[str, str]:
    """What a trace that lacks it lacks, in words, and how to get it."""
    return _NEEDS.get(str(need), (f"the level {need}", ""))
