"""What an export format is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_model import Trace

__all__ = ["Exporter", "Sink"]


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int:
        """Takes the bytes."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format: its name, one line on who reads it, and the function that writes a trace's bytes."""

    name: str
    title: str
    write: Callable[[Trace, Sink], None]
