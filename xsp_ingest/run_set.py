"""Reads the runs of a run set, each to a trace of its own, by `run.json`, whose types are its JSON Schema."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import polars as pl
from msgspec.structs import replace as replace_field

from xsp_ingest.convert import LeveledRuns, convert_run, without_files
from xsp_ingest.distinct import bundle_findings, first_alike, first_names
from xsp_ingest.files.safe_files import check, inside, leaves
from xsp_ingest.ingester import LayerScope
from xsp_ingest.staging.raw import RunOverrides
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.columns.arrow import conform
from xsp_model.errors import readable
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_model import Trace

__all__ = [
    "DESCRIPTION",
    "Accuracy",
    "CurvePoint",
    "OutputDistance",
    "RunDescription",
    "SavedTensor",
    "failed_runs",
    "is_run_set",
    "json_schema",
    "rank_sets",
    "read_description",
    "read_run",
    "read_run_set",
    "read_sets",
    "read_single",
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


class SavedTensor(msgspec.Struct, frozen=True):
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
    tensors: Sequence[SavedTensor],
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


def _tensor(tensor: SavedTensor) -> dict[str, Any]:
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
    tensors: list[SavedTensor] = []  # of what a step was given and of what came out of it
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


# The runs, each read to a trace of its own.

DESCRIPTION = "run.json"
_ERROR = "error.json"
_MAX_RUNS = 1_000
_LONGEST = 300
_HEAD_BYTES = 1 << 14
_MAX_ERROR_BYTES = 1 << 20
_NO_PATH = ("links lead in a circle", "no file can have this name")


def is_run_set(path: Path) -> bool:
    """Whether the folder is a run set: it, or a folder right inside it, holds a run.json."""
    return path.is_dir() and bool(_descriptions(path))


def rank_sets(path: Path) -> Sequence[Path]:
    """The run sets of the ranks of one job, `rank-0` and so on, in their order; none where the folder is no job's."""
    if not path.is_dir() or _descriptions(path):
        return []
    numbered = [(each.name.partition("-")[2], each) for each in path.glob("rank-*")]
    sets = {int(number): each for number, each in numbered if number.isdecimal() and is_run_set(each)}
    return [sets[rank] for rank in sorted(sets)]


def _descriptions(path: Path) -> Sequence[Path]:
    own = path / DESCRIPTION
    return [own] if own.is_file() else _below(path, "*")


def _below(path: Path, folders: str) -> Sequence[Path]:
    """Descriptions in such folders, links among them: one that leads nowhere is a run that is lost, and to be said."""
    inside = (each / DESCRIPTION for each in path.glob(f"{folders}/"))
    return sorted(each for each in inside if os.path.lexists(each))[:_MAX_RUNS]


def _of_sets_too(path: Path) -> Sequence[Path]:
    """The descriptions of the runs in the folder, and of those in its folders that are run sets themselves."""
    own = _descriptions(path)
    if own and own[0].parent == path:
        return own
    runs = {each.parent for each in own}
    below = [each for each in _below(path, "*/*") if each.parent.parent not in runs]
    return sorted([*own, *below])[:_MAX_RUNS]


def read_run_set(path: Path, options: Options, *, progress: Callable[[str], None] | None = None) -> list[Trace]:
    """A trace for every run of the set, in order of their folders' names; XspError where one cannot be used.

    A folder of run sets, as of several batch sizes, is one set of all their runs. Copies of a run are not read again.
    """
    return [read_run(each, options, root=path, progress=progress) for each in _without_copies(path)[0]]


def read_sets(path: Path, options: Options, *, progress: Callable[[str], None] | None = None) -> Sequence[LeveledRuns]:
    """The runs of the set, or of a job those of each rank, with what the ledger says of what was not read."""
    ranks = rank_sets(path)
    sets = [_read_set(each, options, progress) for each in ranks or [path]]
    if ranks:
        beside = bundle_findings([path], ranks, {})
        sets[0] = replace(sets[0], findings=[*sets[0].findings, *beside])
    return sets


def _read_set(path: Path, options: Options, progress: Callable[[str], None] | None) -> LeveledRuns:
    descriptions, copies = _without_copies(path)
    traces = [read_run(each, options, root=path, progress=progress) for each in descriptions]
    names = [f"{copy} (as {of})" for copy, of in copies.items()]
    detail = f"runs of the set that hold what another one holds were not read: {first_names(names)}"
    again = Finding(LedgerKind.SAME_RUN_AGAIN, detail, len(names))
    return LeveledRuns(traces, [*failed_runs(path), again, *bundle_findings([path], inside(path)[0], {})])


def _without_copies(path: Path) -> tuple[Sequence[Path], Mapping[str, str]]:
    """The set's descriptions of which none is of a run that another one is of; and copies' folders, each with its like.

    A copy is described alike, and its files hold the same.
    """
    if not path.exists():
        raise XspError("there is no such folder", path=path)
    descriptions = _of_sets_too(path)
    if not descriptions:
        raise XspError(f"no {DESCRIPTION} is in the folder or in folders inside it", path=path)
    if len(descriptions) == 1:
        return descriptions, {}
    runs = [(each, read_description(_inside(each, each.name, path))) for each in descriptions]
    files = [
        [*(file for file, _ in _files(each, run, path)), *(_inside(each, name, path) for name in run.graph_captures)]
        for each, run in runs
    ]
    alike = iter(first_alike([file for of_run in files for file in of_run]))
    first: dict[Hashable, Path] = {}
    copies: dict[str, str] = {}
    for (each, run), of_run in zip(runs, files, strict=True):
        content = _description_without_paths(run), tuple(next(alike) for _ in of_run)
        like = first.setdefault(content, each)
        if like != each:
            copies[_folder_name(each, path)] = _folder_name(like, path)
    return list(first.values()), copies


def _description_without_paths(run: RunDescription) -> bytes:
    """The description as JSON, without what names its files: equal where descriptions differ in paths alone."""
    formats = [replace_field(file, path="") for file in run.files]
    return msgspec.json.encode(replace_field(run, files=formats, graph_captures=[]))


def _folder_name(description: Path, root: Path) -> str:
    return readable(description.parent.relative_to(root).as_posix())


def failed_runs(path: Path) -> list[Finding]:
    """One finding on the runs of the set that failed when they were collected; none where all are there."""
    failures = [
        f"{each.parent.relative_to(path).as_posix()} ({_sentence(each)})"
        for each in sorted([*path.glob(f"*/{_ERROR}"), *path.glob(f"*/*/{_ERROR}")])[:_MAX_RUNS]
        if not (each.parent / DESCRIPTION).is_file() and not leaves(each, path)
    ]
    if not failures:
        return []
    detail = f"runs that failed when they were collected, and so are left out: {', '.join(failures)}"
    return [Finding(LedgerKind.RUN_FAILED, detail, len(failures))]


def _sentence(path: Path) -> str:
    """What an error.json says; it is a runner's or a person's, so that anything may stand there."""
    try:
        with path.open("rb") as file:
            error = msgspec.json.decode(file.read(_MAX_ERROR_BYTES), type=dict[str, object]).get("error")
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = None
    return " ".join(str(error).split())[:_LONGEST] if error else "no reason given"


def read_run(
    path: Path,
    options: Options,
    *,
    root: Path | None = None,
    role: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of the run that this run.json describes; its files must lie inside `root` (its folder by default).

    `role` says what the run is taken for, whatever its level.
    """
    description = read_description(_inside(path, path.name, root) if root else path)
    folder = path.parent.relative_to(root).as_posix() if root and root != path.parent else path.parent.name
    overrides = replace(description.overrides, folder=folder or None)
    overrides = replace(overrides, role=role) if role else overrides
    inside = root or path.parent
    files = _files(path, description, inside)
    captures = [_inside(path, capture, inside) for capture in description.graph_captures]
    if not files:
        return without_files(overrides, path)
    scoped = replace(options, layer_scopes=description.layer_scopes) if description.layers else options
    return convert_run(files, _with_captures(scoped, captures), overrides, progress=progress)


def _with_captures(options: Options, captures: Sequence[Path]) -> Options:
    return replace(options, graph_captures=(*options.graph_captures, *captures)) if captures else options


def read_single(path: Path, role: str, options: Options, *, progress: Callable[[str], None] | None = None) -> Trace:
    """The trace of a run that is given as a run.json, or as a raw file taken for this role.

    XspError where the run cannot have it: a run without spans is taken for the model or not at all.
    """
    if path.name.endswith(".json") and _describes_a_run(path):
        trace = read_run(path, options, role=role, progress=progress)
    else:
        trace = convert_run([(path, None)], options, RunOverrides(role=role), progress=progress)
    needed = {"layers": "layers", "kernels": "kernels", "counters": "metrics"}.get(role)
    if needed and not trace.table(needed).num_rows:
        raise XspError(f"the run holds no {needed}, so it cannot be taken for --{role}", path=path)
    return trace


def _describes_a_run(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return b'"schema_version"' in head and b'"level"' in head and b'"traceEvents"' not in head


def _files(path: Path, description: RunDescription, root: Path) -> list[tuple[Path, str | None]]:
    """The files with their formats; XspError where one is listed twice: all that it holds would count twice."""
    files = [(_inside(path, entry.path, root), entry.format) for entry in description.files]
    seen: set[tuple[int, int]] = set()
    for file, _ in sorted(files, key=lambda each: len(each[0].resolve().parts)):  # a folder before what is in it
        own, *around = (_identity(each) for each in (file, *file.resolve().parents))
        if own in seen or not seen.isdisjoint(around):
            raise XspError(f"the file {_short_repr(os.path.relpath(file, path.parent))} is listed twice", path=path)
        seen.add(own)
    return files


def _identity(file: Path) -> tuple[int, int]:
    """The same for all names and links of a file."""
    status = file.stat()
    return status.st_dev, status.st_ino


def _short_repr(name: str) -> str:
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}...")


def _inside(path: Path, name: str, root: Path) -> Path:
    """The file or folder that the description at `path` names; XspError unless it is there and inside of `root`."""
    file = path.parent / name
    shown = _short_repr(name)
    try:
        is_inside, is_there = file.resolve().is_relative_to(root.resolve()), file.exists()
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else _NO_PATH[isinstance(error, ValueError)]
        raise XspError(f"the file {shown} cannot be looked up ({reason})", path=path) from error
    if not is_inside:
        raise XspError(f"the file {shown} lies outside of the run set", path=path)
    if not is_there:
        raise XspError(f"the file {shown} is not there", path=path)
    return file
