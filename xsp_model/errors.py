"""Errors that users read, and the plain text that they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["AGAIN", "WrongTypeError", "XspError", "clean", "closest", "on_terminal", "readable"]

# Text out of files as it may be put before a person: nothing in it moves the cursor or turns a line around.

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


AGAIN = "Convert the source files again"


class XspError(Exception):
    """What happened, in which file, and what to do: one line; the command prints it and exits with 2."""

    def __init__(self, what: str, *, path: Path | str | None = None, advice: str = "") -> None:
        self.what = clean(what)
        self.path = path
        self.advice = clean(advice)
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path is not None else ""
        message = f"{where}{self.what}{'. ' + self.advice if self.advice else ''}"
        return clean(" ".join(message.split()))


class WrongTypeError(XspError, TypeError):
    """An argument of a type that it cannot have: a TypeError, as Python has it, with the sentence of an XspError."""


# What a user may have meant: the known names nearest to one that is not known.

_MAX_NAMES = 3
_MIN_CHARACTERS = 3
_CUTOFF = 0.6


def closest(unknown: str, names: Iterable[str]) -> list[str]:
    """At most three of the known names, best first: spelled alike, or with the wanted text in them, in any case."""
    import difflib  # noqa: PLC0415 (only an unknown name needs it)

    lowered = {name.lower(): name for name in names}
    text = unknown.lower()
    alike = difflib.get_close_matches(text, lowered, _MAX_NAMES, _CUTOFF)
    within = [name for name in lowered if len(text) >= _MIN_CHARACTERS and text in name]
    return [lowered[name] for name in dict.fromkeys([*alike, *within])][:_MAX_NAMES]
