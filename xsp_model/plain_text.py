"""Text out of files as it may be put before a person: nothing in it moves the cursor or turns a line around."""

from __future__ import annotations

__all__ = ["clean"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNSEEN = (  # directions of writing, joiners, separators of lines, marks of byte order, halves of characters
    *(0x00AD, 0x061C, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
)
_TABLE = _CONTROLS | {code: f"\\u{code:04x}" for code in _UNSEEN} | {ord("\t"): " ", ord("\n"): " "}


def clean(text: str) -> str:
    """The text on one line, with the code of each character that is not seen but acts in place of it."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)
