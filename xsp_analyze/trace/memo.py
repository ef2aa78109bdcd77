"""What functions of a view have answered, which `once` keeps; what an object has of its own is a `cached_property`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Memo"]

P = ParamSpec("P")
T = TypeVar("T")


class Memo:
    """Keeps answers of functions of itself."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, ...], object] = {}

    def once(self, function: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function answers for this and these arguments, computed when first asked for."""
        key = (function, args, *kwargs.items()) if args or kwargs else (function,)
        if key not in self._answers:
            self._answers[key] = function(self, *args, **kwargs)
        return cast("T", self._answers[key])
