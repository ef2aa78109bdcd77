"""What callers pass to the API, held to the types that are declared."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from xsp.reading import as_declared

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["takes"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def takes(**kinds: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:  # noqa: ANN401 (types, and unions of them)
    """Decorates a function that gets these parameters as `as_declared` makes them of what was passed.

    Their annotations are for type checkers alone: most name what is not imported when the program runs.
    """

    def wrap(function: Callable[_P, _T]) -> Callable[_P, _T]:
        signature = inspect.signature(function)

        @wraps(function)
        def with_arguments_declared(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            passed = signature.bind(*args, **kwargs)
            for name in kinds.keys() & passed.arguments.keys():
                passed.arguments[name] = as_declared(kinds[name], name, passed.arguments[name])
            return function(*passed.args, **passed.kwargs)

        return with_arguments_declared

    return wrap
