"""The formulas that work models count by, each by its name: the families' own tables together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.formulas import attention, elementwise, embedding, generated, products

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.call import Arguments, ModelledWork

__all__ = ["FORMULAS"]

_FAMILIES = (
    attention.FORMULAS,
    elementwise.FORMULAS,
    elementwise.POOLING,
    embedding.FORMULAS,
    embedding.EXPERTS,
    generated.FORMULAS,
    generated.COLLECTIVES,
    products.FORMULAS,
)

FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    name: formula for family in _FAMILIES for name, formula in family.items()
}
"""Each takes a call's inputs by their roles and gives its least work, None where they do not tell it."""
