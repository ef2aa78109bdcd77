"""Damage to tables and logs of text: numbers, fields, lines, quotes, separators, line ends, encodings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fuzz import hostile

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage"]

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FIELD = re.compile(r"[^,;\t\n]+")
_MAX_ENCODED = 0.1


def damage(content: bytes, random: Random) -> bytes | None:
    """The text with a few things changed; None where the content is no UTF-8 text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    for _ in range(random.choice([1, 2, 6])):
        text = random.choice((_numbers, _numbers, _fields, _lines, _lines, _marks))(text, random)
    encoding = "utf-16" if random.random() < _MAX_ENCODED else "utf-8"
    return text.encode(encoding, errors="surrogatepass")


def _numbers(text: str, random: Random) -> str:
    return _replace(text, _NUMBER, hostile.number_text(random), random)


def _fields(text: str, random: Random) -> str:
    return _replace(text, _FIELD, random.choice(["", hostile.text(random), hostile.number_text(random)]), random)


def _replace(text: str, pattern: re.Pattern[str], new: str, random: Random) -> str:
    matches = list(pattern.finditer(text))
    if not matches:
        return text
    one = random.choice(matches)
    return text[: one.start()] + new + text[one.end() :]


def _lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    index, other = random.randrange(len(lines)), random.randrange(len(lines))
    action = random.randrange(4)
    if action == 0:
        del lines[index]
    elif action == 1:
        lines[other:other] = [lines[index]] * random.choice([1, 50])
    elif action == 2:
        lines[index], lines[other] = lines[other], lines[index]
    else:
        lines[index] = lines[index][: random.randrange(len(lines[index]) + 1)]
    return "".join(lines)


def _marks(text: str, random: Random) -> str:
    old, new = random.choice([(",", ";"), (",", "\t"), ("\n", "\r\n"), ("\n", "\r"), ('"', ""), ('"', "'"), (".", ",")])
    return text.replace(old, new, random.choice([1, 3, -1]))
