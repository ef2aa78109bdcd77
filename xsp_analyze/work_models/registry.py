"""The work models: which operators each holds for, and the formula and operands by which it counts.

The models stand in `models/*.toml`, one file a family; a file is a list of

    [[model]]
    operators = ["aten::mm", "aten::bmm"]   # names as the profiler writes them; `*` stands for anything
    formula = "matrix_product"              # a function of `formulas`
    operands = { left = 0, right = 1 }      # which input of the call is which operand of the formula, from 0
    settings = { transposed = true }        # what else the formula is told
    class = "matrix product"                # a KernelClass
    source = "..."                          # who says what the operator does, and so what it costs

The first model that holds for a name, files in order of name, decides; names without `*` go before those with.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.arguments import Arguments
from xsp_analyze.work_models.formulas import FORMULAS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from xsp_analyze.work_models.call import Call
    from xsp_analyze.work_models.work import ModelledWork

__all__ = ["Model", "Models", "families", "holds", "shipped"]


@dataclass(frozen=True, slots=True)
class Model:
    """How the work of some operators is counted."""

    operators: tuple[str, ...]
    formula: Callable[[Arguments], ModelledWork | None]
    operator_class: KernelClass
    source: str
    operands: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def work(self, call: Call) -> ModelledWork | None:
        """The least work of the call; None where what was recorded does not tell it."""
        return self.formula(Arguments(call, self.operands, self.settings))


class Models:
    """Models by the names of the operators that they hold for."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._by_name: dict[str, Model | None] = {}
        self._patterns: list[tuple[str, Model]] = []
        for model in models:
            for name in model.operators:
                if "*" in name:
                    self._patterns.append((name, model))
                else:
                    self._by_name.setdefault(name, model)

    def of(self, name: str) -> Model | None:
        """The model that holds for operators of this name; None: there is none."""
        if name not in self._by_name:
            self._by_name[name] = next((m for pattern, m in self._patterns if holds(pattern, name)), None)
        return self._by_name[name]


def holds(pattern: str, name: str) -> bool:
    """Whether a model of operators like this holds for those of the name."""
    return fnmatchcase(name, pattern) if "*" in pattern else pattern == name


@cache
def shipped() -> Models:
    """The models of this package."""
    return Models(model for models in families().values() for model in models)


@cache
def families() -> Mapping[str, Sequence[Model]]:
    """The models of this package by their family, in order of name."""
    folder = resources.files("xsp_analyze.work_models").joinpath("models")
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return {file.name.removesuffix(".toml"): tuple(_models(file.read_text(encoding="utf-8"))) for file in files}


def _models(text: str) -> Iterable[Model]:
    for row in tomllib.loads(text)["model"]:
        yield Model(
            tuple(row["operators"]),
            FORMULAS[row["formula"]],
            KernelClass(row["class"]),
            row["source"],
            row.get("operands", {}),
            row.get("settings", {}),
        )
