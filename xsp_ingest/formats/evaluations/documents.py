"""From published evaluations to runs: a system and batch size each, with latencies, layers or accuracies."""

from __future__ import annotations

import csv
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.content import open_text
from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import UNITS_NS, finite, int64, nanoseconds, text
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError
from xsp_model.columns.arrow import conform
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["read_benchmarks", "read_documents", "read_latencies"]

_US = 1000
_OTHER = ", other batch size"
_ACCURACIES = {"top1_accuracy": "top1", "top5_accuracy": "top5"}
_Layers = list[tuple[str, int]]


class _Document(msgspec.Struct):
    """An evaluation as MLModelScope stored it; durations are microseconds."""

    model_name: Any = None
    model_version: Any = None
    framework_name: Any = None
    framework_version: Any = None
    machine_architecture: Any = None
    host_name: Any = None
    using_gpu: Any = None
    batch_size: Any = None
    durations: Any = None
    layer_informations: Any = None
    top1_accuracy: Any = None
    top5_accuracy: Any = None


@dataclass(slots=True)
class _Evaluated:
    """What is known of a model in a framework on a system at one batch size."""

    steps_ns: list[int] = field(default_factory=list)
    layered_steps: list[_Layers] = field(default_factory=list)
    accuracies: dict[str, float] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        return len(self.steps_ns) / sum(self.steps_ns) if self.steps_ns and sum(self.steps_ns) else 0.0


def read_documents(paths: Sequence[Path], *, keep_private: bool) -> list[RawTrace]:
    """The runs by system and batch size; XspError where no document holds anything to use."""
    systems: dict[tuple[str | None, ...], dict[int, _Evaluated]] = defaultdict(lambda: defaultdict(_Evaluated))
    seen, empty, bad = Entries(), 0, 0
    for path in paths:
        for document in (one for batch in entries(path, _Document, seen) for one in batch):
            size = int64(document.batch_size)
            is_useful = (
                _add(systems[_system(document, keep_private=keep_private)][size], document)
                if size and size > 0
                else None
            )
            bad += is_useful is None
            empty += is_useful is False
    runs = [run for system, sizes in systems.items() for run in _runs(system, sizes)]
    if not runs:
        raise XspError("no document of the file holds a latency, a layer or an accuracy", path=paths[0])
    noted = (
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no documents of an evaluation", seen.foreign + bad),
        Finding(LedgerKind.EVENTS_LEFT_OUT, "documents without a duration, a layer or an accuracy", empty),
        Finding(LedgerKind.SEVERAL_SYSTEMS, count=len(systems) if len(systems) > 1 else 0),
    )
    return [RawTrace(runs[0].tables, runs[0].facts, (_invented_starts(runs), *noted)), *runs[1:]]


def _system(document: _Document, *, keep_private: bool) -> tuple[str | None, ...]:
    """Model, framework and machine. A machine's name is private: a digest tells it from others, in any document."""
    named = [
        " ".join(filter(None, map(text, pair))) or None
        for pair in (
            (document.model_name, document.model_version),
            (document.framework_name, document.framework_version),
        )
    ]
    host = text(document.host_name) or ""
    host = host if keep_private else hashlib.sha256(host.encode()).hexdigest()[:4]
    device = "GPU" if document.using_gpu is True else "CPU"
    return (*named, f"{device} of {text(document.machine_architecture) or 'a'} machine {host}")


def _add(evaluated: _Evaluated, document: _Document) -> bool | None:
    """Whether the document said anything; None where what it says cannot be used."""
    durations = _times(document.durations)
    listed = document.layer_informations
    layers: _Layers = []
    for one in listed if isinstance(listed, list) else []:
        of_name = _times(one.get("durations")) if isinstance(one, dict) else None
        if of_name is None or not isinstance(name := one.get("name"), str):
            return None
        layers += [(name or "(no name)", ns) for ns in of_name]
    accuracies = {
        metric: value for key, metric in _ACCURACIES.items() if (value := finite(getattr(document, key))) is not None
    }
    if durations is None or not all(0 <= value <= 1 for value in accuracies.values()):
        return None
    evaluated.steps_ns += durations
    evaluated.layered_steps += [layers] if layers else []
    evaluated.accuracies |= accuracies
    return bool(durations or layers or accuracies)


def _times(values: object) -> list[int] | None:
    """Microseconds as ns; None where any is no time."""
    if values is None:
        return []
    times = [nanoseconds(value, _US) for value in values] if isinstance(values, list) else [None]
    sound = [ns for ns in times if ns is not None and ns >= 0]
    return sound if len(sound) == len(times) else None


def _runs(system: tuple[str | None, ...], sizes: Mapping[int, _Evaluated]) -> Iterator[RawTrace]:
    """Runs with steps (M) and runs with layers (ML); tables are of the fastest batch size, with layers if any has."""
    used = {n: one for n, one in sorted(sizes.items()) if one.steps_ns or one.layered_steps or one.accuracies}
    chosen = max(used, key=lambda n: (bool(used[n].layered_steps), n * used[n].speed), default=None)
    for size, one in used.items():
        other = "" if size == chosen else _OTHER
        # The run M is there without steps, too: of layers that a GPU ran meanwhile the sum is no model's latency.
        yield _run([(ns, []) for ns in one.steps_ns], _facts(system, size, "model" + other, _results(one.accuracies)))
        if one.layered_steps:
            layered = [(sum(ns for _, ns in layers), layers) for layers in one.layered_steps]
            yield _run(layered, _facts(system, size, "layers" + other, {}))


def _facts(system: tuple[str | None, ...], size: int, role: str, results: Mapping[str, pl.DataFrame]) -> RunFacts:
    model, framework, device = system
    return RunFacts("MLModelScope", framework, model, size, role, serialised=True, device_name=device, results=results)


def _results(accuracies: Mapping[str, float]) -> Mapping[str, pl.DataFrame]:
    if not accuracies:
        return {}
    columns = {"metric": list(accuracies), "value": list(accuracies.values()), "unit": ["share"] * len(accuracies)}
    frame = pl.DataFrame({**columns, "run_id": 0, "higher_is_better": True})
    return {"accuracies": conform(frame, TABLES["accuracies"]).drop("run_id")}


def _run(steps: Sequence[tuple[int, _Layers]], facts: RunFacts) -> RawTrace:
    """Steps end to end, in each its layers."""
    rows: list[tuple[object, ...]] = []
    kinds: list[tuple[int, int, str]] = []
    starts = accumulate((ns for ns, _ in steps), initial=0)
    for number, (start, (duration, layers)) in enumerate(zip(starts, steps, strict=False)):
        rows.append((len(rows), str(Level.MODEL), str(Kind.STEP), f"evaluation#{number}", start, duration, 0, 0))
        begins = accumulate((ns for _, ns in layers), initial=start)
        for index, (begin, (name, ns)) in enumerate(zip(begins, layers, strict=False)):
            kinds.append((len(rows), index, name))
            rows.append((len(rows), str(Level.LAYER), str(Kind.RANGE), name, begin, ns, 0, 0))
    filled = {
        "spans": _columns("spans", rows, "row level kind name start_ns duration_ns process_id thread_id"),
        "layers": _columns("layers", kinds, "row sequence_index layer_type"),
    }
    return RawTrace({name: frame_of(name) for name in RAW_TABLES} | filled, facts)


def _columns(table: str, rows: Sequence[tuple[object, ...]], names: str) -> pl.DataFrame:
    return frame_of(table, dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True)) if rows else None)


# dlperf: a list of benchmarks of a model's layers, each a call of cuDNN or cuBLAS by itself; the last is their sum.

_NAME = re.compile(r"LAYER_(CU[A-Z]+_\w+?)(?:_\d)?_(?:FLOAT|INT|HALF|DOUBLE)\d*_")
_ALGORITHM = re.compile(r"<([^<>]{1,120})>")
_BATCH_FOLDER = re.compile(r"batchsize_(\d{1,9})")
_BATCH = re.compile(r"/batch_size:(\d{1,9})(?!\d)")


class _Benchmark(msgspec.Struct):
    type: Any = None
    benchmark: Any = None


def read_benchmarks(path: Path) -> RawTrace:
    """One step with a layer each; XspError where none has a time."""
    seen, bad, totals = Entries(), 0, 0
    layers: _Layers = []
    facts: dict[str, str] = {}
    for one in (one for batch in entries(path, _Benchmark, seen) for one in batch):
        of = one.benchmark if isinstance(one.benchmark, dict) else {}
        name = text(of.get("Name")) or ""
        if name == "Total":
            totals += 1
            continue
        call = _NAME.match(name)
        ns = nanoseconds(of.get("RealTime"), UNITS_NS.get(str(of.get("TimeUnit")), 1))
        if call is None or ns is None or ns < 0:
            bad += 1
            continue
        algorithm = _ALGORITHM.search(name)
        layers.append((f"{call[1]} {algorithm[1]}" if algorithm else call[1], ns))
        facts |= {k: v for key in of for k, _, v in [key.partition(":")] if k in {"gpu_name", "cudnn_version"} and v}
        facts |= {"batch": batch[1]} if (batch := _BATCH.search(name)) else {}
    if not layers:
        raise XspError("no benchmark of the file has a time", path=path)
    framework = f"cuDNN {facts['cudnn_version']}" if "cudnn_version" in facts else None
    run = _run(
        [(sum(ns for _, ns in layers), layers)],
        RunFacts(
            "dlperf", framework, batch_size=int(facts.get("batch", 0)) or None, serialised=True,
            device_name=facts.get("gpu_name"),
        ),
    )  # fmt: skip
    kind = pl.col("layer_type").str.extract(r"^(\S+)")  # without the algorithm, which another GPU has another of
    tables = {**run.tables, "layers": run.tables["layers"].with_columns(kind)}
    lost = Finding(LedgerKind.NOT_AN_EVENT, "entries that are no benchmark of a layer", seen.foreign + bad)
    total = Finding(
        LedgerKind.SUMMARY_LEFT_OUT, "the file's own sum, which leaves some layers out", totals, Severity.INFO
    )
    return RawTrace(tables, run.facts, (_invented_starts([run]), lost, total))


# What dlperf made of them: a row for each call of a layer, and their sum. The folders say batch size and GPU.

_LATENCY_COLUMNS = ("LayerName", "LayerType", "RealTime(ms)")


def read_latencies(path: Path) -> RawTrace:
    """One step with a layer for each name, its calls added up; XspError where none has a time."""
    bad, totals = 0, 0
    calls: list[tuple[str, str, int]] = []
    with open_text(path) as file:
        for row in csv.DictReader(file):
            name, kind, written = (row.get(column) or "" for column in _LATENCY_COLUMNS)
            ns = nanoseconds(written, UNITS_NS["ms"])
            if not name and row.get("BenchmarkName") == "Total":
                totals += 1
            elif not name or ns is None or ns < 0:
                bad += 1
            else:
                calls.append((name, kind or "(no type)", ns))
    if not calls:
        raise XspError("no layer of the file has a time", path=path)
    if not totals:
        raise XspError("the file ends before the row of its sum: it is cut off", path=path, advice="Copy it again")
    grouped = [(key, sum(ns for *_, ns in of)) for key, of in groupby(calls, key=lambda call: call[:2])]
    size = _BATCH_FOLDER.fullmatch(path.parent.parent.name)
    facts = RunFacts(
        "dlperf", "cuDNN", path.stem, int(size[1]) if size else None, serialised=True,
        device_name=path.parent.name.replace("_", " ") if size else None,
    )  # fmt: skip
    run = _run([(sum(ns for _, ns in grouped), [(name, ns) for (name, _), ns in grouped])], facts)
    kinds = pl.Series("layer_type", [kind for (_, kind), _ in grouped])
    tables = {
        **run.tables,
        "layers": run.tables["layers"].with_columns(kinds.cast(run.tables["layers"].schema["layer_type"])),
    }
    lost = Finding(LedgerKind.NOT_AN_EVENT, "rows that are no call of a layer with a time", bad)
    total = Finding(LedgerKind.SUMMARY_LEFT_OUT, "the file's own sum", totals, Severity.INFO)
    return RawTrace(tables, run.facts, (_invented_starts([run]), lost, total))


def _invented_starts(runs: Sequence[RawTrace]) -> Finding:
    count = sum(run.tables["spans"].height for run in runs)
    return Finding(LedgerKind.NO_TIMESTAMPS, "durations without times of their own; their starts are made up", count)
