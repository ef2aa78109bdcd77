"""A fault of our own costs the answer that it is in, and no other: it becomes one sentence."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from xsp_model import XspError
from xsp_model.bundle_rows import broken_bundle, innermost_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FaultError", "FaultWarning", "fault_of"]

_NOT_OURS = (XspError, MemoryError, OSError, ImportError, SystemError)  # want of memory among them, see `ran_out`
_MAX_WHY = 300


class FaultError(XspError):
    """An answer cannot be given for a reason that nobody foresaw, which its cause is: a fault of XSP."""


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
