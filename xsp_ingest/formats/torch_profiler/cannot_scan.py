"""What a scanner says of a file that a slower one should read."""

from __future__ import annotations

__all__ = ["CannotScan"]


class CannotScan(Exception):  # noqa: N818 (an answer, not an error)
    """The file is no JSON, or such as another scanner should judge."""
