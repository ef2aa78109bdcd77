"""Waits for what other threads and processes do, for however long a slow machine takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HANG_S", "wait_until"]

HANG_S = 300
"""After so long nothing is slow any more: it hangs."""

_POLL_S = 0.02


def wait_until(happened: Callable[[], bool]) -> None:
    """Returns once it has happened; fails where it never does."""
    end = time.monotonic() + HANG_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(_POLL_S)
