"""Values that readers get wrong: at the ends of what a number holds, of another type, far too long, far too deep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["NUMBERS", "deepen", "json_value", "number_text", "text"]

NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**30)
_NUMBER_TEXTS = (
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "1e999",
    "-0.0",
    "0x10",
    "1,5",
    "1.234.567",
    "",
    "-",
    "9" * 5000,
)
_TEXTS = (
    "",
    " ",
    "\0",
    "-1",
    "null",
    "a" * 70_000,
    "\ud800",
    "\u202e\u0000\uffff",
    "ProfilerStep#99999999999999999999",
    "ProfilerStep#-1",
    "../../etc/passwd",
    "a,b;c\t\"d'e\n\r",
    "%s%n{0}",
    "[[[[",
    "[" * 3_000,
)
_DEEP = {"deep 70": 70, "deep 900": 900, "deep 200000": 200_000}
_DIGITS = {"digits 5000": "9" * 5000, "exponent": "1e999999", "fraction": "0." + "3" * 5000}


def number_text(random: Random) -> str:
    """A number, or nearly one, as text."""
    return random.choice(_NUMBER_TEXTS) if random.random() < 0.4 else str(random.choice(NUMBERS))


def text(random: Random) -> str:
    """A text that is no ordinary name; it may hold a lone surrogate."""
    return random.choice(_TEXTS)


def json_value(random: Random) -> object:
    """A value that json.dumps takes; `deepen` makes deep lists of some texts afterwards."""
    kind = random.randrange(6)
    if kind <= 1:
        return random.choice(NUMBERS)
    if kind == 2:
        return random.choice([float("nan"), float("inf"), float("-inf"), 1e308, -1e-320, 0.5])
    if kind == 3:
        return text(random)
    return random.choice([None, True, False, [], {}, [[]], [None], {"": None}, *_DEEP, *_DIGITS])


def deepen(json_text: str) -> str:
    """The JSON text with lists too deep, and numbers too long, for json.dumps to write."""
    for mark, depth in _DEEP.items():
        json_text = json_text.replace(f'"{mark}"', "[" * depth + "]" * depth)
    for mark, digits in _DIGITS.items():
        json_text = json_text.replace(f'"{mark}"', digits)
    return json_text
