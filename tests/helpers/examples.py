"""How many examples hypothesis makes: CI asks for all with XSP_THOROUGH; the quick tests are content with fewer."""

from __future__ import annotations

import os

__all__ = ["examples"]

_SHARE = 1 if os.environ.get("XSP_THOROUGH") else 5
_MIN = 10


def examples(count: int) -> int:
    """So many of the examples that a test names."""
    return max(count // _SHARE, min(count, _MIN))
