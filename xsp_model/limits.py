"""Thresholds of how something is done, in one value: from how many bytes or rows on, and how much at once."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Limits", "limited", "limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What tests, fuzzers and builds set otherwise, so that small inputs take the paths of large ones."""


_current: ContextVar[Limits] = ContextVar("limits")
_USUAL = Limits()


def limits() -> Limits:
    """The limits that hold here; a thread of one's own has the usual ones unless it runs in a copy of this context."""
    return _current.get(_USUAL)


@contextmanager
def limited(**changes: int) -> Iterator[None]:
    """Within, these fields of `Limits` have other values; TypeError for a name that is no field."""
    token = _current.set(replace(limits(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
