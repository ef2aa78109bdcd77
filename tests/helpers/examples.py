"""How many examples hypothesis makes: a quarter with XSP_THOROUGH=1, as in CI, all with =all; else fewer still."""

from __future__ import annotations

import os

__all__ = ["examples"]

_SHARE = {"": 8, "1": 4}.get(os.environ.get("XSP_THOROUGH", ""), 1)
_MIN = 10


def examples(count: int) -> int:
    """So many of the examples that a test names."""
    return max(count // _SHARE, min(count, _MIN))
