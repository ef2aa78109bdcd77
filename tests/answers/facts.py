"""The table of facts: `facts.toml`, read and typed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tests.answers.questions import OF_PATH, OverSteps

if TYPE_CHECKING:
    from xsp import OpenTrace

__all__ = ["Fact", "Value", "facts"]

Value: TypeAlias = "bool | str | float | list[Value]"

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fact:
    """One row of the table; facts.toml says what each key is."""

    id: str
    file: str
    says: str
    why: str
    hand: str
    value: Value
    ask: str
    tolerance: float = 0.0
    tolerance_answer: float | None = None
    answer: Value | None = None
    differs: str = ""
    options: dict[str, object] = field(default_factory=dict)
    of: dict[str, object] = field(default_factory=dict)

    @property
    def is_real(self) -> bool:
        return self.file.startswith("real/")

    @property
    def expected(self) -> Value:
        """What XSP is to answer."""
        return self.value if self.answer is None else self.answer

    def worked_out(self, path: Path) -> object:
        """What the script by hand makes of the file."""
        module, function = self.hand.split(".")
        return getattr(import_module(f"tests.answers.by_hand.{module}"), function)(path, **self.options)

    @property
    def asks_path(self) -> bool:
        """Whether XSP is asked of the path: the file is refused, or two files are compared."""
        return self.ask in OF_PATH

    def answered(self, trace: OpenTrace | Path) -> object:
        """What XSP says."""
        of = dict(self.of)
        if steps := of.pop("steps", None):
            trace = OverSteps(trace, steps)  # type: ignore[assignment, arg-type]
        return getattr(import_module("tests.answers.questions"), self.ask)(trace, **of)


@cache
def facts() -> tuple[Fact, ...]:
    """Every fact, in the order of the table."""
    rows = tomllib.loads((_HERE / "facts.toml").read_text(encoding="utf-8"))["fact"]
    return tuple(Fact(options=row.pop("with", {}), **row) for row in rows)
