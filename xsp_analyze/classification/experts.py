"""Parts of a mixture of experts, and stages of a prediction, by the names of kernels, modules and ranges."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from xsp_analyze.classification.classify import Matcher, Pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ExpertEntry",
    "ExpertPart",
    "Stage",
    "StageEntry",
    "expert_entries",
    "expert_matcher",
    "module_entries",
    "module_matcher",
    "stage_entries",
    "stage_of",
]


class ExpertPart(StrEnum):
    """The parts of a block, in the order in which its work runs."""

    ROUTING = "routing"  # the router's product, the choice of experts, counts and offsets that follow from it
    DISPATCH = "dispatch"  # rows of tokens to their experts, on the device and to other ranks
    PRODUCTS = "expert products"
    ACTIVATION = "activation"  # between the products, with what is quantised for the second
    COMBINE = "combine"  # rows back, weighted and summed
    SHARED = "shared experts"  # which all tokens go through
    EXCHANGE = "exchange"  # an all-to-all of which it is not clear whether it dispatches or combines
    OTHER = "other"  # of the class mixture of experts, of which nothing tells the part


@dataclass(frozen=True, slots=True)
class ExpertEntry:
    """A pattern, and what has it; experts.toml says what fields mean."""

    pattern: Pattern
    part: ExpertPart | None
    example: str
    source: str
    between: bool = False

    def block(self, path: str) -> str | None:
        """Of an entry of modules: the path of the block around a path that it takes."""
        match = self.pattern.search(path)
        return next(filter(None, match.groupdict().values()), None) if match else None


@cache
def expert_entries() -> tuple[ExpertEntry, ...]:
    """Over kernels' names, in order: the first that is found decides."""
    return _entries("kernel", "(?i)")


@cache
def module_entries() -> tuple[ExpertEntry, ...]:
    """Over paths of layers, likewise."""
    return _entries("module", "")


@cache
def expert_matcher() -> Matcher[ExpertEntry]:
    """The entry of each kernel's name."""
    return Matcher(expert_entries())


@cache
def module_matcher() -> Matcher[ExpertEntry]:
    """The entry of each layer's path."""
    return Matcher(module_entries())


def _entries(table: str, flags: str) -> tuple[ExpertEntry, ...]:
    text = resources.files("xsp_analyze.classification").joinpath("experts.toml").read_text(encoding="utf-8")
    return tuple(
        ExpertEntry(
            Pattern(flags + row["pattern"]),
            ExpertPart(row["part"]) if "part" in row else None,
            row["example"],
            row["source"],
            bool(row.get("between")),
        )
        for row in tomllib.loads(text)[table]
    )


# Which stage of a prediction a named range stands for: pre-process, inference, post-process.


class Stage(StrEnum):
    """The stages in their order."""

    PRE_PROCESS = "pre-process"
    INFERENCE = "inference"
    POST_PROCESS = "post-process"


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One way of naming a stage; stages.toml says what the fields mean."""

    stage: Stage
    pattern: re.Pattern[str]
    examples: Sequence[str]


@cache
def stage_entries() -> tuple[StageEntry, ...]:
    """In order: the first whose pattern is the complete name decides."""
    text = resources.files("xsp_analyze.classification").joinpath("stages.toml").read_text(encoding="utf-8")
    return tuple(
        StageEntry(Stage(row["stage"]), re.compile(row["pattern"], re.IGNORECASE), row["examples"])
        for row in tomllib.loads(text)["entry"]
    )


def stage_of(name: str) -> Stage | None:
    """The stage that the name stands for; None: it names none."""
    return next((entry.stage for entry in stage_entries() if entry.pattern.fullmatch(name.strip())), None)
