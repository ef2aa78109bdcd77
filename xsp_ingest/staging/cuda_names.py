"""Words for the codes of CUDA's profilers, and C++ names as people write them."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING

import cxxfilt
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["COPY_DIRECTIONS", "COPY_KINDS", "MEMORY_KINDS", "RANGE_STYLES", "SYNC_KINDS", "demangle", "demangle_column"]

# Words for the codes of CUDA's profilers, as Nsight Systems has them in its ENUM tables (which may be missing).

COPY_KINDS: Mapping[int, str] = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
COPY_DIRECTIONS: Mapping[str, str] = {
    f"{source[0]}{to}{target[0]}": f"{source}-to-{target}"
    for source, target in (*product(("Host", "Device", "Array"), repeat=2), ("Peer", "Peer"))
    for to in ("to", "2")
}
"""The same as frameworks write them into names: `Memcpy HtoD`, `MemcpyH2D`."""
MEMORY_KINDS: Mapping[int, str] = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
SYNC_KINDS: Mapping[int, str] = {
    1: "Event sync",
    2: "Stream wait sync",
    3: "Stream sync",
    4: "Context sync",
}
RANGE_STYLES: Mapping[int, str] = {  # NVTX_EVENTS.eventType of those that have a start and an end
    59: "PushPop",
    60: "StartEnd",
    70: "PushPop",  # NVTXT, the text form of NVTX
    71: "StartEnd",
}


# C++ names as people write them: `_ZN2at6native...` to `at::native::...`, by the C++ runtime's own demangler.

_MAX_CHARACTERS = 1 << 13  # longer ones are left as they are: the demangler works on the stack
_MAX_EXPANDED = 1 << 20  # PyTorch's longest names come to a quarter of this
_KEPT = 1 << 16

# Of the Itanium ABI's grammar what tells how long a name becomes: an identifier behind its length; a reference to a
# component or template argument before it; the opening and the closing of a group; anything else, a builtin type say.
_TOKEN = re.compile(
    r"(?P<length>\d+)|(?P<again>S[0-9A-Z]*_|T\d*_)|S[a-z]|(?P<open>[NILXJFZ])|(?P<close>E)|.", re.DOTALL
)
_COMPONENT_CHARACTERS = 20  # characters that one of the rest stands for, at most


@lru_cache(maxsize=_KEPT)
def demangle(name: str) -> str:
    """The name demangled; as it is where it is no mangled one, or the machine has no C++ runtime.

    AMD's suffix `.kd` (kernel descriptor), which is no part of a function's name, is dropped. A name that would expand
    beyond all bounds stays as it is: 200 characters can stand for gigabytes.
    """
    plain = name.removesuffix(".kd")
    if not plain.startswith("_Z") or len(plain) > _MAX_CHARACTERS or not plain.isascii() or "\0" in plain:
        return plain
    if _expanded_length(plain) > _MAX_EXPANDED:
        return plain
    try:
        return _demangler()(plain)
    except (cxxfilt.Error, UnicodeDecodeError):
        return plain


def demangle_column(names: pl.Series) -> pl.Series:
    """The column, text or categorical, with every name demangled; each distinct name is looked at once."""
    text = names.cast(pl.String)
    distinct = text.drop_nulls().unique()
    demangled = {name: demangle(name) for name in distinct.to_list()}
    changed = {name: plain for name, plain in demangled.items() if name != plain}
    if not changed:
        return text
    return text.replace(list(changed), list(changed.values()))


def _expanded_length(name: str) -> int:
    """About how long the name becomes: a reference counts as the largest group closed before it."""
    at, largest, groups = len("_Z"), 0, [0]
    while at < len(name) and groups[-1] <= _MAX_EXPANDED:
        token = _TOKEN.match(name, at)
        if token is None:  # never: the last alternative takes any character
            break
        at = token.end()
        if token["length"]:
            size = min(int(token["length"][:6]), len(name))
            at += size
            groups[-1] += size
            largest = max(largest, size)
        elif token["open"]:
            groups.append(_COMPONENT_CHARACTERS)
        elif token["close"] and len(groups) > 1:
            largest = max(largest, groups[-1])
            closed = groups.pop()
            groups[-1] += closed
        else:
            groups[-1] += largest if token["again"] else _COMPONENT_CHARACTERS
    return sum(groups)


@cache
def _demangler() -> Callable[[str], str]:
    try:
        cxxfilt.demangle("_Z1fv")
    except cxxfilt.Error:
        return lambda name: name
    demangler: Callable[[str], str] = cxxfilt.demangle
    return demangler
