"""The models that installed distributions add to ours, through an entry point."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from xsp_analyze.work_models.registry import Model, Models, families
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ENTRY_POINTS", "all_models"]

ENTRY_POINTS = "xsp.work_models"
"""The entry point group: each names a callable without arguments that gives an iterable of `Model`."""


@cache
def all_models() -> Models:
    """The models of installed distributions, which go before ours, in order of the entry points' names; and ours."""
    return Models([*_added(), *(model for models in families().values() for model in models)])


def _added() -> Iterator[Model]:
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: (each.name, each.value)):
        function = point.load()
        models = list(function()) if callable(function) else None
        if models is None or not all(isinstance(model, Model) for model in models):
            raise XspError(
                f"the entry point {point.name} of {ENTRY_POINTS} is no callable that gives work models",
                advice="Remove the distribution that has it, or make it give an iterable of"
                " xsp_analyze.work_models.registry.Model",
            )
        yield from models
