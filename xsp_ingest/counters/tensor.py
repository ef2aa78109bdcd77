"""Tensor-core operation counts: totals, their parts by instruction, result and sparsity, and no part added twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.counters.formula import Formula
from xsp_model.counters import COUNTERS, TENSOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["TensorCounter", "choose_counters", "partial", "split", "tensor_formulas"]

_NAME = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<source>[a-z0-9_]+?)"
    r"(?:_dst_(?P<result>fp16|fp32))?(?:_sparsity_(?P<sparsity>on|off))?\.sum\Z"
)
_TYPES = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp4_fp6_fp8"}  # Turing's name for the one type it has
_RESULTS = ("fp16", "fp32")


@dataclass(frozen=True, slots=True)
class TensorCounter:
    """One such counter; None: it does not tell apart by this."""

    name: str
    source: str  # type of the inputs, as in our names
    op: str | None
    result: str | None
    sparsity: str | None

    @property
    def cuts(self) -> tuple[str | None, ...]:
        """By what it is told apart, the coarsest cut first."""
        return self.op, self.result, self.sparsity

    def is_apart_from(self, other: TensorCounter) -> bool:
        """Whether nothing is counted by both."""
        return any(a != b for a, b in zip(self.cuts, other.cuts, strict=True) if a is not None and b is not None)


def split(name: str) -> TensorCounter | None:
    """The counter's parts, or None where it is no sum of tensor operations (sampled `_realtime` ones are not)."""
    match = _NAME.match(name)
    if match is None or match["source"].endswith("realtime"):
        return None
    source = _TYPES.get(match["source"], match["source"])
    return TensorCounter(name, source, match["op"], match["result"], match["sparsity"])


def choose_counters(names: Iterable[str]) -> dict[str, list[TensorCounter]]:
    """For each input type the counters to add: the coarsest that are there and do not overlap."""
    parts = [part for name in sorted(names) if (part := split(name)) is not None]
    out: dict[str, list[TensorCounter]] = {}
    for part in sorted(parts, key=lambda p: tuple(cut is not None for cut in p.cuts)):
        taken = out.setdefault(part.source, [])
        if all(part.is_apart_from(other) for other in taken):
            taken.append(part)
    return out


def tensor_formulas(names: Iterable[str]) -> Mapping[str, Sequence[Formula]]:
    """One formula for each input type that the counters tell of and the vocabulary knows."""
    parts_of = {f"{TENSOR_PREFIX}{source}": parts for source, parts in choose_counters(names).items()}
    return {name: (Formula({p.name: 1 for p in parts}),) for name, parts in parts_of.items() if name in COUNTERS}


def partial(names: Iterable[str]) -> dict[str, list[str]]:
    """Canonical counters of which the file may hold a part only, each with the names it was added up from."""
    return {
        f"{TENSOR_PREFIX}{source}": [p.name for p in parts]
        for source, parts in choose_counters(names).items()
        if not _is_complete(parts)
    }


def _is_complete(parts: Sequence[TensorCounter]) -> bool:
    """Whether the parts make up all of the type's work; which instructions exist differs by chip, so none is enough."""
    if any(part.op is not None for part in parts):
        return False
    for result in {p.result for p in parts}:
        sparsity = {p.sparsity for p in parts if p.result == result}
        if sparsity not in ({None}, {"on", "off"}):
            return False
    results = {p.result for p in parts}
    source = parts[0].source
    return results == {None} or results == set(_RESULTS) or (source in _ONE_RESULT and len(results) == 1)


_ONE_RESULT = ("bf16", "tf32", "fp4")  # these accumulate in FP32 only
