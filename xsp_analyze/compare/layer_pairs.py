"""Which layer of one side is which of the other: the same model, whatever ran it and however it numbered its layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.classification import KernelClass, class_of_operator
from xsp_analyze.merge.alignment import align

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import polars as pl

    from xsp_analyze.merge.alignment import Alignment

__all__ = ["Pairs", "family", "pair_layers"]

_NUMBER = re.compile(r"(?:_|#)\d+$")  # Linear_3, aten::mm#3: the profiler's count, which moves with what comes before
_FAMILIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"depthwise"), "depthwise convolution"),
    (re.compile(r"layer_?norm"), "layer norm"),
    (re.compile(r"batch_?norm|batchnormalization"), "batch norm"),
    (re.compile(r"relu|gelu|sigmoid|tanh|silu|swish|activation"), "activation"),
)
"""Where layers are told apart that are of one class of kernels."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of two sides that are one layer, in order (null: only the other side has it), and by what they matched.

    `rate` is the share of the longer side that has a partner; null where a side has no layers at all.
    """

    rows: Sequence[tuple[int | None, int | None]]
    rate: float | None
    by: str


def pair_layers(before: pl.DataFrame, after: pl.DataFrame, *, same_framework: bool = True) -> Pairs:
    """Pairs of rows of two tables of layers in order (layer_name, layer_type, shapes).

    Of the ways to tell layers apart the strictest of those that pair the most is taken.
    """
    if before.is_empty() or after.is_empty():
        rows = [*((i, None) for i in range(before.height)), *((None, j) for j in range(after.height))]
        return Pairs(rows, None, "nothing")
    alignments = [(label, align(key(before), key(after))) for label, key in _ways(same_framework)]
    by, best = max(alignments, key=lambda way: way[1].rate)  # the first of equals
    return Pairs(_in_order(best), best.rate, by)


def _ways(same_framework: bool) -> list[tuple[str, Callable[[pl.DataFrame], Sequence[Hashable]]]]:  # noqa: FBT001
    ways: list[tuple[str, Callable[[pl.DataFrame], Sequence[Hashable]]]] = [
        ("name, type and shapes", lambda t: t.select("layer_name", "layer_type", "shapes").rows()),
        ("type and shapes, in order", lambda t: list(zip(_bare(t), t["layer_type"], t["shapes"], strict=True))),
        ("name and type", lambda t: t.select("layer_name", "layer_type").rows()),
        ("type, in order", lambda t: list(zip(_bare(t), t["layer_type"], strict=True))),
    ]
    if not same_framework:
        ways.append(("family of layers, in order", lambda t: [family(kind) for kind in t["layer_type"]]))
    return ways


def family(kind: str) -> str:
    """What frameworks that name layers differently have in common: `Conv2D` and `aten::convolution` are one."""
    plain = kind.casefold().rpartition("::")[2]
    kernel_class = class_of_operator(kind)
    by_class = plain if kernel_class == KernelClass.OTHER else str(kernel_class)
    return next((name for pattern, name in _FAMILIES if pattern.search(plain)), by_class)


def _bare(layers: pl.DataFrame) -> list[str]:
    return [_NUMBER.sub("", name) for name in layers["layer_name"]]


def _in_order(alignment: Alignment) -> list[tuple[int | None, int | None]]:
    """Pairs in order; what only one side has stands where it ran."""
    rows: list[tuple[int | None, int | None]] = []
    i = j = 0
    for a, b in [*alignment.pairs, (alignment.first_count, alignment.second_count)]:
        rows += [(k, None) for k in range(i, a)] + [(None, k) for k in range(j, b)]
        if (a, b) != (alignment.first_count, alignment.second_count):
            rows.append((a, b))
        i, j = a + 1, b + 1
    return rows
