"""Which formulas an analysis reaches through the functions that it calls, each with its own words and source."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING

from xsp_analyze import formulas
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.core import Analysis

__all__ = ["formulas_of", "modules_of"]


def formulas_of(analysis: Analysis) -> list[tuple[str, str]]:
    """Name and docstring of every formula it reaches, in the order in which `formulas.py` has them."""
    reached = {f.__name__ for f in _functions_reached(analysis) if f.__module__ == formulas.__name__}
    return [(name, _docstring(getattr(formulas, name))) for name in formulas.__all__ if name in reached]


def modules_of(analysis: Analysis) -> list[str]:
    """Modules whose functions it calls itself or through others, its own first."""
    own = inspect.unwrap(analysis.function).__module__
    others = sorted({f.__module__ for f in _functions_reached(analysis)} - {own})
    return [own, *others]


def _functions_reached(analysis: Analysis) -> list[FunctionType]:
    """Functions of ours that the analysis names, and those that they name; what is called by value is not seen."""
    functions: dict[FunctionType, None] = {}
    waiting: list[object] = [analysis.function]
    while waiting:
        function = waiting.pop()
        if isinstance(function, FunctionType) and function not in functions and function.__module__.startswith("xsp_"):
            functions[function] = None
            waiting += _callees(function)
    return list(functions)


def _callees(function: FunctionType) -> Iterator[object]:
    names = list(_names(function.__code__))
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from named
    for name in names:
        yield from (getattr(module, name, None) for module in named if _is_ours(module))
        member = inspect.getattr_static(StepView, name, None)
        yield getattr(member, "fget", None) or getattr(member, "func", None) or member


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _docstring(function: FunctionType) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def _is_ours(value: object) -> bool:
    """Whether it is a module of XSP: others may act when asked for a name that they do not have."""
    return isinstance(value, ModuleType) and value.__name__.startswith("xsp")
