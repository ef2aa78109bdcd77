"""Which stage of a prediction a named range stands for: pre-process, inference, post-process."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Stage", "StageEntry", "stage_entries", "stage_of"]


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
