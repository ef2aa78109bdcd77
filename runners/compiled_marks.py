"""Ranges in compiled code, for tools that record from outside: calls of graphs, and calls of libraries in them.

Their names are those that torch.profiler gives them, by which XSP pairs them with compiled_code.json. Generated
kernels need none: a tool has their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xsp_runners.torch_ranges import StepRanges

__all__ = ["mark_calls"]


def mark_calls(output: Any, region: str, marks: StepRanges) -> None:  # noqa: ANN401 (what Inductor made of a graph)
    """From now on each call of the graph is a range in the recorded steps, and each call of a library in it."""
    call = output.current_callable

    def call_in_range(inputs: Any) -> Any:  # noqa: ANN401
        with marks.range(f"## Call CompiledFxGraph {region} ##"):
            return call(inputs)

    output.current_callable = call_in_range
    names = getattr(call, "__globals__", {})  # of the generated module
    for name, replaced in (("extern_kernels", _library), ("torch", _torch)):
        if name in names and not isinstance(names[name], (_Library, _Instead)):
            names[name] = replaced(names[name], marks)


def _library(kernels: Any, marks: StepRanges) -> _Library:  # noqa: ANN401
    return _Library(kernels, marks)


def _torch(torch: Any, marks: StepRanges) -> _Instead:  # noqa: ANN401
    """The module, with `torch.ops.aten` marked: operators for which no kernel is generated are called there."""
    return _Instead(torch, ops=_Instead(torch.ops, aten=_Library(torch.ops.aten, marks)))


class _Instead:
    """An object with some of its attributes replaced."""

    def __init__(self, inner: Any, **others: object) -> None:  # noqa: ANN401
        self._inner = inner
        self.__dict__ |= others

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


class _Library:
    """A namespace of operators whose calls are ranges."""

    def __init__(self, inner: Any, marks: StepRanges) -> None:  # noqa: ANN401
        self._inner = inner
        self._marks = marks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return _Operator(getattr(self._inner, name), f"aten::{name}", self._marks)


class _Operator:
    """An operator or one of its overloads."""

    def __init__(self, inner: Any, name: str, marks: StepRanges) -> None:  # noqa: ANN401
        self._inner = inner
        self._name = name
        self._marks = marks

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        with self._marks.range(self._name):
            return self._inner(*arguments, **options)

    def __getattr__(self, overload: str) -> Any:  # noqa: ANN401
        return _Operator(getattr(self._inner, overload), self._name, self._marks)
