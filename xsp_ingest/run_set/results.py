"""How good a run's results are, and what came out of a step, as `run.json` says it: rows for the trace's tables."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import polars as pl

from xsp_model.arrow import conform
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Accuracy", "CurvePoint", "OutputDistance", "Tensor", "results"]

_NS_PER_S = 1e9
_MAX_COUNT = 1 << 62
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
_Positive = Annotated[int, msgspec.Meta(gt=0, le=_MAX_COUNT)]
_Magnitude = Annotated[float, msgspec.Meta(ge=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Accuracy(msgspec.Struct, frozen=True):
    """A measure of quality that a run ended with."""

    metric: _Name
    value: float
    unit: str = ""
    dataset: str = ""
    samples: _Positive | None = None
    higher_is_better: bool | None = None


class CurvePoint(msgspec.Struct, frozen=True):
    """A measure of quality some time after training began."""

    metric: _Name
    time_s: _Seconds
    value: float
    unit: str = ""
    dataset: str = ""
    samples: _Positive | None = None
    higher_is_better: bool | None = None


class Tensor(msgspec.Struct, frozen=True):
    """What a step was given, or what came out of it, by checksum."""

    kind: Literal["input", "weights", "output"]
    name: _Name
    step: _Count | None = None  # steps run before
    shape: list[_Count] | None = None
    dtype: str = ""
    sha256: _Digest | None = None
    l2_norm: _Magnitude | None = None
    max_abs: _Magnitude | None = None
    non_finite: _Count | None = None
    sampled_values: list[float | None] | None = None
    top1: list[_Count] | None = None


class OutputDistance(msgspec.Struct, frozen=True):
    """An output of this run against that of another, element by element."""

    name: _Name
    reference: _Name
    reference_sha256: _Digest | None = None
    max_abs_difference: _Magnitude | None = None
    relative_l2: _Magnitude | None = None
    cosine: Annotated[float, msgspec.Meta(ge=-1.0001, le=1.0001)] | None = None
    top1_agreement: _Share | None = None


def results(
    accuracies: Sequence[Accuracy],
    curve: Sequence[CurvePoint],
    tensors: Sequence[Tensor],
    distances: Sequence[OutputDistance],
) -> Mapping[str, pl.DataFrame]:
    """The rows by table, without the run's number; tables without rows are left out."""
    measured = [*(_accuracy_row(each) for each in accuracies), *(_accuracy_row(p, p.time_s) for p in curve)]
    rows = {
        "accuracies": measured,
        "tensors": [_tensor(each) for each in tensors],
        "output_distances": [msgspec.structs.asdict(each) for each in distances],
    }
    return {name: _frame(name, some) for name, some in rows.items() if some}


def _frame(name: str, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    columns = [c for c in TABLES[name].columns if c.name != "run_id"]
    values = {c.name: [row[c.name] for row in rows] for c in columns}
    return conform(pl.DataFrame(values, strict=False), TABLES[name]).select([c.name for c in columns])


def _accuracy_row(point: Accuracy | CurvePoint, time_s: float | None = None) -> dict[str, Any]:
    return {
        "metric": point.metric,
        "dataset": point.dataset or None,
        "time_ns": None if time_s is None else round(time_s * _NS_PER_S),
        "value": point.value,
        "unit": point.unit or None,
        "sample_count": point.samples,
        "higher_is_better": point.higher_is_better,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    count = None if tensor.shape is None else math.prod(tensor.shape)
    return {
        **msgspec.structs.asdict(tensor),
        "shape": None if tensor.shape is None else json.dumps(tensor.shape),
        "dtype": tensor.dtype or None,
        "value_count": count if count is not None and count <= _MAX_COUNT else None,
        "non_finite_count": tensor.non_finite,
        "sampled_values": None if tensor.sampled_values is None else json.dumps(tensor.sampled_values),
        "top1": None if tensor.top1 is None else json.dumps(tensor.top1),
    }
