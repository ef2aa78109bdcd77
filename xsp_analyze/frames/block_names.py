"""What several layers that are one position of a repeated block are called together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bare", "below", "block_name", "pattern", "scopes_of", "without_numbers"]

_NUMBER = re.compile(r"(\d+)")
_COUNTED = re.compile(r"(?:[_#]|\.(?=\d))\d+$")  # Linear_3, aten::mm#3: the profiler's count, layers.3: the model's
_INDEX = re.compile(r"(?<=[._/ #([-])\d+(?=$|[._/ )\]-])")  # block.17.attn, layer_0; not conv1x1, float16
_MAX_DIGITS = 18  # of a number that may count something


def pattern(names: Sequence[str], kind: str = "") -> str:
    """One name for all: `layers.{0..23}` where only numbers differ, else what they begin and end with.

    Where that is nothing, `kind` stands before the asterisk.
    """
    first, *_ = names
    if len(set(names)) == 1:
        return first
    parts = [_NUMBER.split(name) for name in names]
    if len({tuple(part[::2]) for part in parts}) == 1:
        fields = zip(*parts, strict=True)
        return "".join(_field(field) if at % 2 else field[0] for at, field in enumerate(fields))
    head = _common_prefix(names)
    tail = _common_prefix([name[len(head) :][::-1] for name in names])[::-1]
    return f"{head}*{tail}" if head or tail else f"{kind} *".lstrip()


def _common_prefix(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    return next((first[:at] for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def _field(texts: Sequence[str]) -> str:
    """A number, or the least and the largest of several."""
    if len(set(texts)) == 1:
        return texts[0]
    if max(map(len, texts)) > _MAX_DIGITS:
        return "*"
    numbers = sorted(map(int, texts))
    return f"{{{numbers[0]}..{numbers[-1]}}}"


def block_name(roots: Sequence[Sequence[str]], kind: str = "") -> str:
    """What a block is called, by the names of the outermost layers of each repetition and the type of the first.

    A part of the names that all layers of a repetition begin with, up to a slash or a dot, if it numbers them.
    """
    if len(roots[0]) == 1:
        return pattern([names[0] for names in roots], kind)
    if any(scopes := scopes_of(roots)):
        return pattern(scopes)
    first, last = (pattern([names[end] for names in roots]) for end in (0, -1))
    return f"{first} to {last}"


def scopes_of(roots: Sequence[Sequence[str]]) -> list[str]:
    """What all names of each repetition begin with, if it tells repetitions apart; else nothing, for each."""
    scopes = [_scope(names) if len(names) > 1 else "" for names in roots]
    return scopes if all(scopes) and len(set(scopes)) == len(scopes) else [""] * len(roots)


def _scope(names: Sequence[str]) -> str:
    shared = _common_prefix(names)
    return shared[: max(shared.rfind("/"), shared.rfind("."), 0)]


def below(name: str, outer: str) -> str:
    """The layer's name without that of the layer around it, where it begins with it."""
    return name[len(outer) + 1 :] if outer and name.startswith((f"{outer}.", f"{outer}/")) else name


def without_numbers(name: str) -> str:
    """The name with an asterisk for each number that counts something."""
    return _INDEX.sub("*", name)


def bare(name: str) -> str:
    """The name without the number that a profiler or a model gave to it."""
    return _COUNTED.sub("", name) or name
