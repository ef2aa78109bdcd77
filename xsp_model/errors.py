"""The exceptions that users are meant to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model.plain_text import clean

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AGAIN", "WrongTypeError", "XspError"]

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
