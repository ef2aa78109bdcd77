"""JSON values whose digits are kept as they stand in the file."""

from __future__ import annotations

import msgspec

__all__ = ["NS_PER_MS", "NULL", "value_of"]

NULL = msgspec.Raw(b"null")
NS_PER_MS = 1_000_000


def value_of(raw: msgspec.Raw) -> str | None:
    """A text, or a number's digits; None for anything else."""
    content = bytes(raw).strip()
    if content[:1] == b'"':
        return str(msgspec.json.decode(content.decode(errors="replace")))
    return content.decode() if content[:1].isdigit() or content[:1] == b"-" else None
