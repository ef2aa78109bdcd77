"""C++ names as people write them: `_ZN2at6native...` to `at::native::...`, by the C++ runtime's own demangler."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import cxxfilt
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["demangle", "demangle_column"]

_MOST_CHARACTERS = 1 << 13  # longer ones are left as they are: the demangler works on the stack
_KEPT = 1 << 16


@lru_cache(maxsize=_KEPT)
def demangle(name: str) -> str:
    """The name demangled; as it is where it is no mangled one, or the machine has no C++ runtime.

    AMD's suffix `.kd` (kernel descriptor), which is no part of a function's name, is dropped.
    """
    plain = name.removesuffix(".kd")
    if not plain.startswith("_Z") or len(plain) > _MOST_CHARACTERS or not plain.isascii() or "\0" in plain:
        return plain
    try:
        return _demangler()(plain)
    except (cxxfilt.Error, UnicodeDecodeError):
        return plain


def demangle_column(names: pl.Series) -> pl.Series:
    """The column, text or categorical, with every name demangled; each distinct name is looked at once."""
    text = names.cast(pl.String)
    distinct = text.drop_nulls().unique()
    found = {name: demangle(name) for name in distinct.to_list()}
    changed = {name: plain for name, plain in found.items() if name != plain}
    if not changed:
        return text
    return text.replace(list(changed), list(changed.values()))


@cache
def _demangler() -> Callable[[str], str]:
    try:
        cxxfilt.demangle("_Z1fv")
    except cxxfilt.Error:
        return lambda name: name
    found: Callable[[str], str] = cxxfilt.demangle
    return found
