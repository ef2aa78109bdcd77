"""What is computed of a view once: frames are plain functions of it, and `once` keeps what each has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Memo", "once_property"]

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound="Memo")


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


class once_property(Generic[V, T]):  # noqa: N801 (as `property`)
    """A method as a property, which `once` keeps: for the few frames that a view itself is made with."""

    def __init__(self, func: Callable[[V], T]) -> None:
        self.func = func
        self.__doc__ = func.__doc__

    @overload
    def __get__(self, view: None, owner: type[Any]) -> once_property[V, T]: ...
    @overload
    def __get__(self, view: V, owner: type[Any]) -> T: ...
    def __get__(self, view: V | None, owner: type[Any]) -> T | once_property[V, T]:
        """What the method answers."""
        return self if view is None else view.once(self.func)
