"""Which scopes of a JAX program are layers: those that `jax.named_scope` (or Flax, which uses it) made.

The compiled program names each operation after its scopes, with the program's transformations around them:
`jit(step)/transpose(jvp(block))/dense2/dot_general` is dense2 in block, in the backward pass.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["layers_of"]

_PROGRAM = re.compile(r"\bp?jit\([^()]*\)/?")  # a compiled function is no layer
_TRANSFORMED = re.compile(r"\b\w+\(([^()]*)\)")
_SCOPE = re.compile(r"[A-Za-z_][\w.-]*")
_STRUCTURE = re.compile(
    r"while|body|cond|branch_\d+_fun|scan|checkpoint|remat\d?|rematted_computation|closed_call|core_call|shard_map"
    r"|xla_call|pmap|custom_(jvp|vjp)_call(_jaxpr)?|body_jaxpr|cond_jaxpr"
)
_INSTANCE = re.compile(r"_?\d+$")


def layers_of(operations: Iterable[str]) -> list[dict[str, object]]:
    """Layers as run.json has them, from the names of a program's operations: by scope, outer ones too, in order."""
    layers: dict[str, dict[str, object]] = {}
    for name in operations:
        parts = [part for part in _plain(name).split("/") if part][:-1]
        for last, part in enumerate(parts, start=1):
            named = [p for p in parts[:last] if not _STRUCTURE.fullmatch(p)]
            if _STRUCTURE.fullmatch(part) or not all(map(_SCOPE.fullmatch, named)):
                continue
            scope = "/".join(parts[:last])
            layers[scope] = {"scope": scope, "name": "/".join(named), "type": _INSTANCE.sub("", part) or part}
    return [layers[scope] for scope in sorted(layers)]


def _plain(name: str) -> str:
    while (inner := _TRANSFORMED.sub(r"\1", _PROGRAM.sub("", name))) != name:
        name = inner
    return name
