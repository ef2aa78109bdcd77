"""The id of a request that cannot be read as a whole, so that whoever asked hears which one it was."""

from __future__ import annotations

import json
import math
import re

__all__ = ["id_in", "usable_id"]

_PART = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


def id_in(line: str) -> str | float | None:
    """The last id of the JSON object that the line is or begins; null where it has none that can be repeated.

    The values of other keys, where an `id` is somebody else's, are passed over, however deep they are.
    """
    depth = 0
    request_id: str | float | None = None
    before = ("", "")
    for match in _PART.finditer(line):
        part = match[0]
        if depth == 1 and before == ('"id"', ":"):
            request_id = _value(part)
        depth += (part in "[{") - (part in "]}")
        if depth == 0:
            break
        before = (before[1], part)
    return request_id


def usable_id(value: object) -> str | float | None:
    """The value, where an answer can bear it as its id: a number, whole where its value is, or text that is UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() or value.encode("utf-8", "ignore").decode("utf-8") == value else None
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _value(part: str) -> str | float | None:
    try:
        return usable_id(json.loads(part))
    except ValueError:
        return None
