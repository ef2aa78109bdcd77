"""A fault of our own costs the answer that it is in, and no other: it becomes one sentence."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from polars.exceptions import PanicException

from xsp_model import XspError
from xsp_model.bundle import broken_bundle, innermost_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FaultError", "FaultWarning", "attempt", "fault_of", "note_fault", "noting_faults"]

T = TypeVar("T")

_NOT_OURS = (XspError, MemoryError, OSError, ImportError, SystemError)  # want of memory among them, see `ran_out`
_MAX_WHY = 300


class FaultError(XspError):
    """An answer cannot be given for a reason that nobody foresaw, which its cause is: a fault of XSP."""


_noted: ContextVar[list[FaultError] | None] = ContextVar("_noted", default=None)


class FaultWarning(RuntimeWarning):
    """Where warnings are errors, as in tests, a fault of our own does not pass for a missing answer."""


@contextmanager
def fault_of(what: str) -> Iterator[None]:
    """Within `with` an error that nobody foresaw becomes a FaultError on `what`, with a FaultWarning.

    Want of memory and what the system refuses stay what they are. XspError where a bundle is to blame: then no answer
    can be trusted.
    """
    try:
        yield
    except _NOT_OURS:
        raise
    except (Exception, PanicException) as error:
        if (damage := broken_bundle()) is not None:
            raise damage from error
        why = f"{type(error).__name__} in {innermost_line(error)}: {error}"
        fault = FaultError(f"{what} failed ({why[:_MAX_WHY]})", advice="It is a fault of XSP: report it")
        warnings.warn(str(fault), FaultWarning, stacklevel=3)
        raise fault from error


def attempt(what: str, make: Callable[[], T], otherwise: Callable[[FaultError], T]) -> T:
    """What `make` gives; where that fails for a reason that nobody foresaw, what `otherwise` makes of the fault."""
    try:
        with fault_of(what):
            return make()
    except FaultError as fault:
        note_fault(fault)
        return otherwise(fault)


@contextmanager
def noting_faults(of: str = "") -> Iterator[list[FaultError]]:
    """Within `with` each fault that an answer is without, as it is asked for, in order: an answer has to say them.

    At the end whoever notes faults around this hears of them too, then with what they are `of`.
    """
    noted: list[FaultError] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
        for fault in noted:
            note_fault(FaultError(f"{of}: {fault}") if of else fault)


def note_fault(fault: FaultError) -> None:
    """Says that the answer in the making is without what this fault cost; another of the same words is the same."""
    noted = _noted.get()
    if noted is not None and str(fault) not in map(str, noted):
        noted.append(fault)
