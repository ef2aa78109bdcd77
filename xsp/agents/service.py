"""What the user started the server with: files, each under a name by which an agent asks for it, and limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsp.cache.cache import Cache
from xsp.opening import expand
from xsp.reading import Reading

__all__ = ["Named", "Service", "name_inputs"]

_NAMED = re.compile(r"([A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_ENDINGS = re.compile(r"(\.(json|pt|trace|gz|zst|xsp|sqlite|nsys-rep|ncu-rep|csv|pb|xplane))+$")
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Named:
    """One trace: a file, a folder, or a pattern of files that are read together."""

    alias: str
    path: str


@dataclass(frozen=True, slots=True)
class Service:
    """Inputs, how they are read, and how long a query may take (null: any time)."""

    inputs: Sequence[Named]
    reading: Reading = field(default_factory=Reading)
    cache: Cache | None = None
    timeout_s: float | None = 60.0

    @property
    def aliases(self) -> list[str]:
        """The names by which inputs are asked for."""
        return [one.alias for one in self.inputs]


def name_inputs(texts: Sequence[str]) -> tuple[Named, ...]:
    """The inputs `PATH` or `NAME=PATH`, each under a name of its own; XspError where a path names nothing.

    A name of ours is of letters, digits, `_.-`: what a file is called cannot speak to an agent through it.
    """
    inputs: list[Named] = []
    for text in texts:
        alias, path = _parts(text)
        expand([path])
        taken = {one.alias for one in inputs}
        if alias is not None and alias in taken:
            raise _twice(alias)
        inputs.append(Named(alias or _free(_of_path(path), taken), path))
    return tuple(inputs)


def _parts(text: str) -> tuple[str | None, str]:
    match = None if Path(text).exists() else _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)


def _of_path(path: str) -> str:
    name = _UNNAMEABLE.sub("-", _ENDINGS.sub("", Path(path).name)).strip("-.")
    return name[:_MAX_LENGTH] or "trace"


def _free(alias: str, taken: set[str]) -> str:
    if alias not in taken:
        return alias
    return next(name for number in range(2, len(taken) + 3) if (name := f"{alias}-{number}") not in taken)


def _twice(alias: str) -> Exception:
    from xsp_model import XspError  # noqa: PLC0415 (--help must not wait for polars)

    return XspError(f"two inputs are named {alias!r}", advice="Give each a name of its own: NAME=PATH")
