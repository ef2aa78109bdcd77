"""Names for the sizes of operands, as users write them: `b... k` is a tensor whose last size is k, and b all others."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.work_models.call import Shape

__all__ = ["ShapeError", "ShapePattern", "shape_pattern"]

_SEVERAL = "..."
_ANY = "_"


class ShapeError(Exception):
    """Why a text is no pattern of a shape, in words that follow it."""


@dataclass(frozen=True, slots=True)
class ShapePattern:
    """The names of the sizes before, in and behind those that stand for any number of sizes, if there are such."""

    first: tuple[str, ...]
    several: str | None
    last: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """What it gives a value to."""
        every = (*self.first, *self.last, *((self.several,) if self.several else ()))
        return frozenset(name for name in every if name != _ANY and not name.isdigit())

    def sizes(self, shape: Shape) -> Mapping[str, int] | None:
        """The value of each name, of several sizes their product; None where the shape is another."""
        between = len(shape) - len(self.first) - len(self.last)
        if between < 0 or (self.several is None and between):
            return None
        rest = shape[len(self.first) : len(self.first) + between]
        pairs = [
            *zip(self.first, shape, strict=False),
            *zip(self.last, shape[len(shape) - len(self.last) :], strict=True),
        ]
        if self.several is not None:
            pairs.append((self.several, prod(rest)))
        return agreed(pairs)


def agreed(pairs: list[tuple[str, int]]) -> dict[str, int] | None:
    """Names with their values; None where one has two, or a number is another."""
    values: dict[str, int] = {}
    for name, size in pairs:
        if name == _ANY:
            continue
        if values.setdefault(name, int(name) if name.isdigit() else size) != size:
            return None
    return {name: size for name, size in values.items() if not name.isdigit()}


def shape_pattern(text: object) -> ShapePattern:
    """The pattern that a text is: names, numbers and `_` apart by spaces, one of them with `...` behind it.

    Raises:
        ShapeError: It is none.
    """
    if not isinstance(text, str):
        raise ShapeError("is no text")
    tokens = text.split()
    several = [number for number, token in enumerate(tokens) if token.endswith(_SEVERAL)]
    if len(several) > 1:
        raise ShapeError("has ... twice")
    names = [token.removesuffix(_SEVERAL) or _ANY for token in tokens]
    for name in names:
        if not (name.isascii() and (name.isidentifier() or name.isdigit())):
            raise ShapeError(f"has {name!r} in it, which is no name of a size, number or _")
    if not several:
        return ShapePattern(tuple(names), None, ())
    at = several[0]
    return ShapePattern(tuple(names[:at]), names[at], tuple(names[at + 1 :]))
