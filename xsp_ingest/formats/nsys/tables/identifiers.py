"""Nsight's serialised process and thread ids: 8 bits of hardware, 8 of virtual machine, 24 of process, 24 of thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["process_of", "thread_of"]

_BITS = 24
_SPACE = 1 << _BITS


def process_of(column: pl.Expr) -> pl.Expr:
    """The operating system's process id in a `globalPid` or `globalTid`."""
    # Floor division and remainder are shift and mask, for negative (unsigned in origin) values too.
    return (column // _SPACE) % _SPACE


def thread_of(column: pl.Expr) -> pl.Expr:
    """The operating system's thread id in a `globalTid`."""
    return column % _SPACE
