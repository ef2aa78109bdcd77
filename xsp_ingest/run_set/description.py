"""What `run.json` holds, version 1: the types are its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from xsp_ingest.files.safe_files import check
from xsp_ingest.ingester import LayerScope
from xsp_ingest.run_set.results import Accuracy, CurvePoint, OutputDistance, Tensor, results
from xsp_ingest.staging.run_overrides import RunOverrides
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RunDescription", "json_schema", "read_description"]

_MAX_COUNT = 1 << 53  # so that sums of a thousand fit in 64 bits
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
_Positive = Annotated[int, msgspec.Meta(gt=0, le=_MAX_COUNT)]
_Rate = Annotated[float, msgspec.Meta(gt=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]
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
    index: _Count | None = msgspec.field(default=None, name="place")  # of the model's layers; else by first operator


class _File(msgspec.Struct, frozen=True):
    path: _Name  # relative to run.json, inside the run set
    format: _FormatName | None = None  # a name that `xsp formats` lists; detected where left out


class RunDescription(msgspec.Struct, frozen=True):
    """One run of a run set. Keys that are not listed are ignored, so that runners may add their own."""

    schema_version: Literal[1]
    level: Literal["M", "ML", "MLG"]
    model: _Model
    framework: _Framework
    batch_size: _Positive | None  # None: a program of the user's own that did not tell it
    device: _Device
    steps: _Count
    files: list[_File] = []
    graph_captures: list[_Name] = []  # files or folders inside the run set with how the graphs of `files` were captured
    layers: list[_Layer] = []  # where a profile has operators in scopes but no calls of layers
    counters: list[str] = []  # what a counter run collected; empty otherwise
    deepest_level: str | None = None  # model, operator or kernel: what the files should hold at the bottom
    serialized: bool | None = None  # device synchronised after each layer
    warmup_steps: _Count = 0
    rank: _Count | None = None  # of a job of several processes, and how many those are
    world_size: _Positive | None = None
    step_durations_ns: list[_Positive] = []  # measured around each step after warm-up; always for M
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
