"""The work models, ours and installed ones: which operators each holds for, and by which formula it counts."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.call import Arguments
from xsp_analyze.work_models.formulas import FORMULAS
from xsp_model import XspError
from xsp_model.errors import plug_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.work_models.call import Call, ModelledWork

__all__ = ["ENTRY_POINTS", "Model", "Models", "all_models", "families", "holds", "shipped_models"]


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
def shipped_models() -> Models:
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


# The models that installed distributions add to ours, through an entry point.

ENTRY_POINTS = "xsp.work_models"
"""The entry point group: each names a callable without arguments that gives an iterable of `Model`."""


@cache
def all_models() -> Models:
    """The models of installed distributions, which go before ours, in order of the entry points' names; and ours."""
    return Models([*_installed_models(), *(model for models in families().values() for model in models)])


def _installed_models() -> Iterator[Model]:
    for point, function in plug_ins(ENTRY_POINTS):
        models = list(function()) if callable(function) else None
        if models is None or not all(isinstance(model, Model) for model in models):
            raise XspError(
                f"the entry point {point} of {ENTRY_POINTS} is no callable that gives work models",
                advice="Remove the distribution that has it, or make it give an iterable of"
                " xsp_analyze.work_models.registry.Model",
            )
        yield from models
