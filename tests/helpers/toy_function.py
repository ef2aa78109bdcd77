"""A compiled function of a test: its source is the test's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_ingest.machine.functions import CompiledFunction

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["toy"]


@dataclass(frozen=True, slots=True)
class _Toy(CompiledFunction):
    function: Callable[..., Any] = print
    version: str = "1"

    def texts_digest(self) -> str:
        return self.version

    def stamp(self) -> str:
        return self.version

    def load(self) -> Callable[..., Any]:
        return self.function


def toy(function: Callable[..., Any], *kinds: str, version: str = "1") -> CompiledFunction:
    """The function under its own name; another `version` is another source."""
    return _Toy(function.__name__.strip("_"), function.__name__, kinds, (), function=function, version=version)
