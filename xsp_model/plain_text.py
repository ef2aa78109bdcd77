"""Text out of files as it may be put before a person: nothing in it moves the cursor or turns a line around."""

from __future__ import annotations

__all__ = ["clean", "on_terminal", "readable"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNSEEN = (  # directions of writing, joiners, separators of lines, marks of byte order, halves of characters
    *(0x00AD, 0x061C, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
)
_TABLE = _CONTROLS | {code: f"\\u{code:04x}" for code in _UNSEEN} | {ord("\t"): " ", ord("\n"): " "}


_ON_TERMINAL = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_UNSEEN) if chr(code) not in "\n\t"}
"""As JSON writes them, so that what is JSON stays it."""


def clean(text: str) -> str:
    """The text on one line, with the code of each character that is not seen but acts in place of it."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def on_terminal(text: str) -> str:
    """Lines as a terminal may have them, of any format: of what acts one sees the code; line ends and tabs stay."""
    return text if text.isascii() and text.replace("\n", "").isprintable() else text.translate(_ON_TERMINAL)


def readable(name: str) -> str:
    """A file's name as text that can be written as UTF-8: bytes of it that are none stand as their codes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not name.isascii() else name
