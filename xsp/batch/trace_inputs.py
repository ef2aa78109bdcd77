"""Inputs that are one trace, as a folder or a URL holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["TraceInputs"]


@dataclass(frozen=True, slots=True)
class TraceInputs:
    """Inputs that are one trace, and where they lie below what the user named: the unit's name comes from that.

    `listing`: of an input at a URL the paths of its files below it ("" of a file), with their bytes as far as known.
    """

    inputs: tuple[str, ...]
    below: str
    discovered: bool = True
    listing: tuple[tuple[str, int | None], ...] = field(default=(), compare=False)
