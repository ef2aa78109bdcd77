"""The forms of step annotations as forms.toml has them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from xsp_model.step_annotations.annotation import ServingPhase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Form", "Mode", "forms"]


@dataclass(frozen=True, slots=True)
class Mode:
    """What a form's word for the kind of step means; forms.toml says what the fields are."""

    phase: ServingPhase | None = None
    side: str | None = None
    tokens_per_request: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing; forms.toml says what the fields mean."""

    name: str
    tool: str
    pattern: re.Pattern[str]
    batch_key: str
    source: str
    title: str
    examples: tuple[str, ...]
    capture: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, Mode] = field(default_factory=dict)


@cache
def forms() -> tuple[Form, ...]:
    """In the order in which they are tried."""
    text = (resources.files("xsp_model.step_annotations") / "forms.toml").read_text(encoding="utf-8")
    return tuple(_form(entry) for entry in tomllib.loads(text)["form"])


def _form(entry: dict[str, Any]) -> Form:
    modes = {name: _mode(mode) for name, mode in entry.get("modes", {}).items()}
    pattern = re.compile(entry["pattern"], re.ASCII)
    return Form(**{**entry, "pattern": pattern, "examples": tuple(entry["examples"]), "modes": modes})


def _mode(entry: dict[str, Any]) -> Mode:
    return Mode(**{**entry, "phase": ServingPhase(entry["phase"]) if "phase" in entry else None})
