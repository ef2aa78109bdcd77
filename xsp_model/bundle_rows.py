"""The rows of a bundle: checked a table at a time, before it is first used, and suspected where anything goes wrong."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import polars as pl
import pyarrow as pa

from xsp_model import integrity
from xsp_model.errors import AGAIN, XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xsp_model.columns.arrays import Ints
    from xsp_model.trace import Trace

__all__ = [
    "RowsCheck",
    "Sound",
    "broken_bundle",
    "fault_behind",
    "fault_sentence",
    "innermost_line",
    "readable",
    "refuse",
]

_MAX_WHAT = 300


class Sound(Protocol):
    """What was checked before: tables by name, or some columns of one as `TABLE: COLUMN, COLUMN`."""

    def __contains__(self, what: object, /) -> bool:
        """Whether this was."""

    def add(self, what: str, /) -> None:
        """This was, just now."""


class RowsCheck:
    """Holds the rows of each table of a bundle against the rules of the model when called, once; XspError."""

    def __init__(self, unchecked: Trace, sound: Sound) -> None:
        self.trace = unchecked
        self._sound = sound
        self._done: set[str] = set()
        _in_use.add(self)

    @cached_property
    def _runs(self) -> Ints:
        return integrity.run_ids(self.trace)

    def __call__(self, table: str, only: Collection[str] | None = None) -> None:
        """`only`: the columns that will be used; None: any."""
        what = table if only is None else f"{table}: {', '.join(c for c in TABLES[table].schema.names if c in only)}"
        if table in self._done or what in self._done:
            return
        if self.trace.height(table) and table not in self._sound and what not in self._sound:
            path = self.trace.origin or Path()
            with readable(path):
                refuse(path, integrity.violations_in(self.trace, table, self._runs, only))
            self._sound.add(what)
        self._done.add(what)


_in_use: WeakSet[RowsCheck] = WeakSet()  # of bundles that somebody may have forged


def fault_behind(error: BaseException) -> XspError | None:
    """What to say of an error that nobody foresaw while a bundle was read: whatever is wrong with that bundle.

    Where nothing can be found it is said that it may be our fault. None: no bundle was read, or a disk is to blame.
    """
    suspects = list(_in_use)
    is_fault = isinstance(error, Exception) or type(error).__name__ == "PanicException"  # which polars ends with
    if not suspects or not is_fault or isinstance(error, OSError):
        return None
    if (fault := broken_bundle()) is not None:
        return fault
    what = f"{type(error).__name__} in {innermost_line(error)}: {error}"
    return XspError(
        f"no answer can be made of {'this bundle' if len(suspects) == 1 else 'these bundles'} ({what[:_MAX_WHAT]})",
        path=suspects[0].trace.origin if len(suspects) == 1 else None,
        advice=f"{AGAIN}; where that does not help, it is a fault of XSP: report it",
    )


def broken_bundle() -> XspError | None:
    """What is wrong with one of the bundles that are being read; None where nothing can be found."""
    for each in list(_in_use):
        path = each.trace.origin or Path()
        try:
            with readable(path):
                refuse(path, integrity.broken_rules(each.trace))
                refuse(path, integrity.doubtful(each.trace))
        except XspError as fault:
            return fault
    return None


@contextmanager
def fault_sentence() -> Iterator[None]:
    """Within `with`, or in a function decorated: XspError where a bundle is to blame for an error nobody foresaw."""
    try:
        yield
    except XspError:
        raise
    except BaseException as error:
        fault = fault_behind(error)
        if fault is None:
            raise
        raise fault from error


def innermost_line(error: BaseException) -> str:
    """The innermost line of ours that it came through."""
    lines = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [f"{file.name}:{line}" for file, line in lines if any(part.startswith("xsp") for part in file.parts[-4:-1])]
    return ours[-1] if ours else "no line of XSP"


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What libraries raise of what they cannot read becomes a sentence about the bundle."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError, KeyError, TypeError) as error:
        raise XspError("a table of the bundle cannot be read", path=path, advice=AGAIN) from error


def refuse(path: Path, violations: Iterator[str]) -> None:
    """XspError where there is a violation, which names the first."""
    violation = next(violations, None)
    if violation is not None:
        raise XspError(f"the bundle is damaged: {violation}", path=path, advice=AGAIN)
