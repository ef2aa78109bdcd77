"""Operators that look at their operands in another way, or leave all work to operators inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.work import NOTHING, ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]


def view(_arguments: Arguments) -> ModelledWork:
    """No work of its own: what it launches, if anything, the operators inside it do."""
    return NOTHING


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {"view": view}
