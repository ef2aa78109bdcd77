"""Inputs that are one trace, as a folder or a URL holds them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TraceInputs"]


@dataclass(frozen=True, slots=True)
class TraceInputs:
    """Inputs that are one trace, and where they lie below what the user named: the unit's name comes from that."""

    inputs: tuple[str, ...]
    below: str
    discovered: bool = True
