"""`python -m xsp_analyze.work_models docs/work-models.md` makes the page's list of models anew."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_analyze.work_models.registry import families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.work_models.registry import Model

__all__ = ["MADE", "page"]

# The part of docs/work-models.md that is made from the models: the formulas, and what each is used for.

MADE = "## What is modelled, and by which formula"
"""The heading behind which the page is made."""
_INTRODUCTION = "Made from the models by `python -m xsp_analyze.work_models docs/work-models.md`."


def page(text: str) -> str:
    """The page with everything from the heading MADE on made anew."""
    written = text.partition(MADE)[0]
    parts = [line for family, models in families().items() for line in _family(family, models)]
    return "\n".join([f"{written}{MADE}", "", _INTRODUCTION, *parts]) + "\n"


def _family(name: str, models: Sequence[Model]) -> list[str]:
    head = ["| operators | formula | operands | class | source |", "|---|---|---|---|---|"]
    formulas = {_name(model): model for model in models}
    sentences = [f"- **{formula}**: {_sentence(model)}" for formula, model in formulas.items()]
    return ["", f"### {name.capitalize()}", "", *sentences, "", *head, *map(_row, models)]


def _row(model: Model) -> str:
    cells = [_code(model.operators), _name(model), _operands(model), model.operator_class, _cell(model.source)]
    return f"| {' | '.join(cells)} |"


def _name(model: Model) -> str:
    return model.formula.__name__


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _operands(model: Model) -> str:
    return ", ".join(f"{role} {index}" for role, index in model.operands.items())


def _sentence(model: Model) -> str:
    return " ".join(re.sub(r"\s+", " ", inspect.getdoc(model.formula) or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m xsp_analyze.work_models", description="Makes a page's list anew.")
    parser.add_argument("page", type=Path, help="docs/work-models.md")
    path: Path = parser.parse_args().page
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
