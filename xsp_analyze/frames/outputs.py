"""How far what came out of one run is from what came out of another, by the checksums and values both recorded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = [
    "Basis",
    "Distance",
    "InputMatch",
    "RecordedTensor",
    "by_name",
    "distance",
    "input_match",
    "output_runs",
    "recorded_distances",
    "tensors_of",
]

_ROUNDING = {"float16": (2.0**-10, 2.0**-24), "bfloat16": (2.0**-7, 2.0**-133)}
"""By type: the step between neighbouring numbers, relative, and the least one near 0."""

_MEASURED = ("max_abs_difference", "relative_l2", "cosine", "top1_agreement")
_FINE = (2.0**-20, 1e-12)  # of fp32, a few steps


class Basis(StrEnum):
    """What a distance is worked out from."""

    IDENTICAL = "identical bytes"
    SAMPLED = "sampled values"
    RECORDED = "all values"
    CHECKSUM = "checksums only"


class InputMatch(StrEnum):
    """Whether two runs computed on the same weights and inputs, as far as both recorded them."""

    YES = "same"
    ROUNDED = "same but for rounding"
    NO = "different"
    UNKNOWN = "not known to be the same"


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor as one run recorded it; null: it did not."""

    kind: str
    name: str
    step: int | None = None
    shape: str | None = None
    dtype: str | None = None
    value_count: int | None = None
    sha256: str | None = None
    l2_norm: float | None = None
    max_abs: float | None = None
    non_finite_count: int | None = None
    sampled_values: str | None = None
    top1: str | None = None

    @property
    def values(self) -> list[float | None]:
        """The elements that were recorded."""
        return _numbers(self.sampled_values)

    @property
    def largest(self) -> list[float | None]:
        """Where the largest element of each of its first rows is."""
        return _numbers(self.top1)


@dataclass(frozen=True)
class Distance:
    """From a reference to a tensor; null: cannot be known of what was recorded. Shares in 0..1."""

    basis: Basis
    value_count: int | None = None  # elements compared
    max_abs_difference: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    top1_agreement: float | None = None
    top1_rows: int | None = None

    @property
    def is_identical(self) -> bool:
        """Whether the bytes are the same."""
        return self.basis is Basis.IDENTICAL


def _numbers(text: str | None) -> list[float | None]:
    numbers = json.loads(text) if text else []
    return numbers if isinstance(numbers, list) else []


def output_runs(view: TraceView) -> list[int]:
    """The runs whose outputs are looked for, in this order: that model latency is taken from, else the next."""
    return list(dict.fromkeys([*view.model_runs, *view.layer_runs, *view.kernel_runs]))


def tensors_of(trace: Trace, runs: Iterable[int]) -> list[RecordedTensor]:
    """What the first of these runs that recorded any says, in the table's order."""
    rows = trace.frame("tensors")
    for run in runs:
        own = [row for row in rows.iter_rows(named=True) if row["run_id"] == run]
        if own:
            return [RecordedTensor(**{key: value for key, value in row.items() if key != "run_id"}) for row in own]
    return []


def distance(reference: RecordedTensor, other: RecordedTensor) -> Distance | None:
    """From the reference; None where the two cannot be compared at all (other shapes, nothing recorded)."""
    if reference.shape != other.shape or reference.shape is None:
        return None
    if reference.sha256 and reference.sha256 == other.sha256 and reference.dtype == other.dtype:
        return _identical(other)
    pairs = _pairs(reference.values, other.values)
    agreement, rows = _agreement(reference.largest, other.largest)
    if not pairs:
        has_both = reference.sha256 and other.sha256
        return Distance(Basis.CHECKSUM, top1_agreement=agreement, top1_rows=rows) if has_both or rows else None
    differences = [b - a for a, b in pairs]
    norm = math.hypot(*(a for a, _ in pairs))
    return Distance(
        Basis.SAMPLED,
        len(pairs),
        max(map(abs, differences)),
        math.hypot(*differences) / norm if norm else None,
        _cosine(pairs),
        agreement,
        rows,
    )


def _identical(tensor: RecordedTensor) -> Distance:
    rows = len(tensor.largest) or None
    has_norm = bool(tensor.l2_norm)
    return Distance(
        Basis.IDENTICAL,
        tensor.value_count,
        0.0,
        0.0 if has_norm else None,
        1.0 if has_norm else None,
        1.0 if rows else None,
        rows,
    )


def _pairs(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[tuple[float, float]]:
    """Elements that both recorded; those that are not finite in one of them are not compared."""
    if len(ours) != len(theirs):
        return []
    return [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]


def _agreement(ours: Sequence[float | None], theirs: Sequence[float | None]) -> tuple[float | None, int | None]:
    if not ours or len(ours) != len(theirs):
        return None, None
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours), len(ours)


def _cosine(pairs: Sequence[tuple[float, float]]) -> float | None:
    norms = math.hypot(*(a for a, _ in pairs)) * math.hypot(*(b for _, b in pairs))
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in pairs) / norms)) if norms else None


def input_match(one: Sequence[RecordedTensor], two: Sequence[RecordedTensor]) -> InputMatch:
    """Whether both runs recorded the same weights and inputs, so that their outputs ought to be the same."""
    sides = [{(t.kind, t.name): t for t in side if t.kind != "output"} for side in (one, two)]
    kinds = [{kind for kind, _ in side} for side in sides]
    if sides[0].keys() != sides[1].keys() or kinds[0] != {"input", "weights"}:
        return InputMatch.UNKNOWN
    verdicts = {_same(tensor, sides[1][key]) for key, tensor in sides[0].items()}
    order = (InputMatch.NO, InputMatch.UNKNOWN, InputMatch.ROUNDED)
    return next((verdict for verdict in order if verdict in verdicts), InputMatch.YES)


def _same(one: RecordedTensor, two: RecordedTensor) -> InputMatch:
    if one.sha256 and one.sha256 == two.sha256:
        return InputMatch.YES
    if one.shape != two.shape:
        return InputMatch.NO
    if one.dtype == two.dtype and one.sha256 and two.sha256:
        return InputMatch.NO
    pairs = _pairs(one.values, two.values)
    if not pairs:
        return InputMatch.UNKNOWN
    relative, absolute = max(_ROUNDING.get(t.dtype or "", _FINE) for t in (one, two))
    near = all(abs(a - b) <= relative * max(abs(a), abs(b)) + absolute for a, b in pairs)
    return InputMatch.ROUNDED if near else InputMatch.NO


def recorded_distances(trace: Trace, runs: Iterable[int]) -> list[tuple[str, str, str | None, Distance]]:
    """What runs say themselves: the output's name, the reference's, its digest, and the distance of all values."""
    rows = trace.frame("output_distances").filter(pl.col("run_id").is_in(list(runs)))
    return [
        (
            row["name"],
            row["reference"],
            row["reference_sha256"],
            Distance(Basis.RECORDED, **{key: row[key] for key in _MEASURED}),
        )
        for row in rows.iter_rows(named=True)
    ]


def by_name(tensors: Iterable[RecordedTensor]) -> Mapping[str, RecordedTensor]:
    """The outputs among them."""
    return {t.name: t for t in tensors if t.kind == "output"}
