"""What a compiler says of the kernels it generated, whichever file says it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CompiledCode", "Graph", "KernelCall", "Module", "event_name"]

_EXTERN = re.compile(r"extern_kernels\.(\w+)")
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?")


@dataclass(frozen=True, slots=True)
class Module:
    """A layer by the name, class and path that an eager run's modules have, as far as they are known."""

    name: str
    layer_type: str | None
    path: str


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a generated function, or of a library's from generated code; `modules`: index and weight of each."""

    name: str
    operators: Sequence[str] = ()
    sources: Sequence[str] = ()
    modules: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """A compiled graph with its calls in order; a forward and a backward graph of one `pair` belong together."""

    region: str
    pair: str | None
    is_backward: bool
    kernels: Sequence[KernelCall]


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """All graphs that the file tells of, by the hash that a trace's regions have."""

    modules: Sequence[Module]
    graphs: Mapping[str, Graph]


def event_name(kernel: str) -> str:
    """The name of the kernel's call in a trace: libraries' functions appear as operators."""
    if match := _EXTERN.fullmatch(kernel):
        return f"aten::{match[1]}"
    if match := _OPERATOR.fullmatch(kernel):
        return f"{match[1]}::{match[2]}"
    return kernel
