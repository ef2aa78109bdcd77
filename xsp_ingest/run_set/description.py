"""What `run.json` holds, version 1: the types are its JSON Schema."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import polars as pl

from xsp_ingest.files.safe_files import check
from xsp_ingest.ingester import LayerScope
from xsp_ingest.staging.raw import RunOverrides
from xsp_model import XspError
from xsp_model.columns.arrow import conform
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "Accuracy",
    "CurvePoint",
    "OutputDistance",
    "RunDescription",
    "Tensor",
    "json_schema",
    "read_description",
    "results",
]


# How good a run's results are, and what came out of a step, as `run.json` says it: rows for the trace's tables.


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


_MAX_SUMMED = 1 << 53  # so that sums of a thousand fit in 64 bits
_SummedCount = Annotated[int, msgspec.Meta(ge=0, le=_MAX_SUMMED)]
_SummedPositive = Annotated[int, msgspec.Meta(gt=0, le=_MAX_SUMMED)]
_Rate = Annotated[float, msgspec.Meta(gt=0)]
_FormatName = Annotated[str, msgspec.Meta(max_length=100)]  # errors name it


class _Model(msgspec.Struct, frozen=True):
    name: _Name
    task: str = ""


class _Framework(msgspec.Struct, frozen=True):
    name: _Name
    version: str = ""


class _Device(msgspec.Struct, frozen=True):
    name: str
    peaks: dict[str, _Rate] = {}  # e.g. fp32_flop_per_s, dram_byte_per_s; they override every other source


class _Layer(msgspec.Struct, frozen=True):
    scope: _Name  # what the names of its operators begin with, as `net/conv1`
    name: str = ""  # the scope where left out
    type: str = ""
    index: _SummedCount | None = msgspec.field(
        default=None, name="place"
    )  # of the model's layers; else by first operator


class _File(msgspec.Struct, frozen=True):
    path: _Name  # relative to run.json, inside the run set
    format: _FormatName | None = None  # a name that `xsp formats` lists; detected where left out


class RunDescription(msgspec.Struct, frozen=True):
    """One run of a run set. Keys that are not listed are ignored, so that runners may add their own."""

    schema_version: Literal[1]
    level: Literal["M", "ML", "MLG"]
    model: _Model
    framework: _Framework
    batch_size: _SummedPositive | None  # None: a program of the user's own that did not tell it
    device: _Device
    steps: _SummedCount
    files: list[_File] = []
    graph_captures: list[_Name] = []  # files or folders inside the run set with how the graphs of `files` were captured
    layers: list[_Layer] = []  # where a profile has operators in scopes but no calls of layers
    counters: list[str] = []  # what a counter run collected; empty otherwise
    deepest_level: str | None = None  # model, operator or kernel: what the files should hold at the bottom
    serialized: bool | None = None  # device synchronised after each layer
    warmup_steps: _SummedCount = 0
    rank: _SummedCount | None = None  # of a job of several processes, and how many those are
    world_size: _SummedPositive | None = None
    step_durations_ns: list[_SummedPositive] = []  # measured around each step after warm-up; always for M
    accuracies: list[Accuracy] = []  # what the run ended with
    training_curve: list[CurvePoint] = []
    tensors: list[Tensor] = []  # of what a step was given and of what came out of it
    output_distances: list[OutputDistance] = []  # from other runs, worked out where both had their outputs

    @property
    def overrides(self) -> RunOverrides:
        """What the description says of the run, as the linker takes it."""
        return RunOverrides(
            level="MLG+metrics" if self.counters else self.level,
            role=self.role,
            model=self.model.name,
            framework=" ".join(filter(None, (self.framework.name, self.framework.version))),
            batch_size=self.batch_size,
            serialised=self.serialized,
            counters=tuple(self.counters),
            deepest_level=self.deepest_level,
            warmup_steps=self.warmup_steps,
            rank=self.rank,
            world_size=self.world_size,
            device_name=self.device.name or None,
            peaks=self.device.peaks,
            step_durations_ns=tuple(self.step_durations_ns),
            results=results(self.accuracies, self.training_curve, self.tensors, self.output_distances),
        )

    @property
    def layer_scopes(self) -> dict[str, LayerScope]:
        """The layers by the scopes of their operators, as ingesters take them."""
        return {each.scope: LayerScope(each.name or each.scope, each.type, each.index) for each in self.layers}

    @property
    def role(self) -> str:
        """What the run is taken for in a merge: model, layers, kernels or counters."""
        return "counters" if self.counters else {"M": "model", "ML": "layers", "MLG": "kernels"}[self.level]


def read_description(path: Path) -> RunDescription:
    """The description in a `run.json`; XspError says which key is wrong and how."""
    check(path)
    try:
        description = msgspec.json.decode(path.read_bytes(), type=RunDescription)
    except OSError as error:
        raise XspError(f"the description cannot be read ({error.strerror})", path=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # ValidationError among them
        raise XspError(
            f"the description of the run is wrong: {error}", path=path, advice="docs/run-set.md lists the keys"
        ) from error
    durations = len(description.step_durations_ns)
    if description.level == "M" and not durations and not description.files:
        raise XspError("a run of level M must give step_durations_ns", path=path)
    if durations and durations != description.steps:
        raise XspError(f"steps is {description.steps} but step_durations_ns lists {durations}", path=path)
    return description


def json_schema() -> dict[str, object]:
    """The JSON Schema of `run.json`."""
    return msgspec.json.schema(RunDescription)
