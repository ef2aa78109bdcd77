"""What an export format is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xsp_model import Trace

__all__ = ["Exporter", "FolderExporter", "Sink"]


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


@dataclass(frozen=True, slots=True)
class FolderExporter:
    """A format of several files: `files` gives the name of each, and the function that writes its bytes."""

    name: str
    title: str
    files: Callable[[Trace], Iterable[tuple[str, Callable[[Sink], None]]]]
