"""Turns scanned events into the staging tables that the linker takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.values import int64, with_sane_times
from xsp_ingest.formats.torch_profiler import raw_events
from xsp_ingest.formats.torch_profiler.annotations import (
    ANNOTATED,
    SourceLines,
    annotated_work,
    collective_facts,
    of_call_stacks,
    with_groups_of_job,
    with_layers,
)
from xsp_ingest.formats.torch_profiler.events import (
    ANNOTATION,
    CALL,
    COUNTER,
    DEVICE,
    LIBRARY,
    MODULE_PREFIX,
    OPERATOR,
    OVERHEAD,
    PROFILER_RANGE,
    PYTHON,
    SYNC,
)
from xsp_ingest.formats.torch_profiler.raw_events import captured_launches, range_metrics, samples
from xsp_ingest.formats.torch_profiler.sound import (
    check_ids,
    is_memory,
    once,
    sound_events,
    with_launches,
    with_process,
)
from xsp_ingest.link.range_rules import COMPILED_REGION, KINETO, KINETO_STEP, classify, module_ranges
from xsp_ingest.staging.cuda_names import COPY_DIRECTIONS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, Stage, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, XspError
from xsp_model.columns.arrays import Growing
from xsp_model.ledger import sum_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document
    from xsp_ingest.formats.torch_profiler.merged_ranks import Part
    from xsp_ingest.ingester import Options
    from xsp_model.columns.arrays import Ints

__all__ = ["facts", "shape", "shape_parts"]


def facts(head: Mapping[str, object]) -> RunFacts:
    """Profiler, rank and epoch; without `baseTimeNanoseconds` the time stamps themselves count from 1970."""
    distributed = head.get("distributedInfo")
    job = distributed if isinstance(distributed, dict) else {}
    return RunFacts(
        rows_nest=False,
        profiler="PyTorch profiler (Kineto)",
        framework="pytorch",
        rank=int64(job.get("rank")),
        world_size=int64(job.get("world_size")),
        epoch_ns=int64(head.get("baseTimeNanoseconds")) or 0,
    )


def devices(head: Mapping[str, object], used: Iterable[int]) -> pl.DataFrame:
    """The staging table `devices`; Kineto writes neither clock nor bandwidth.

    On ROCm what ran names its device by the number of the agent, which counts processors too, and the list by that of
    the GPU: a device that is `used` and not listed is what all that are listed are, where these are of one kind.
    """
    listed = head.get("deviceProperties")
    written = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    rows = [*written, *_not_listed(written, used)]
    columns: dict[str, object] = {
        "device_id": [int64(d.get("id")) for d in rows],
        "name": [str(d.get("name", "")) or None for d in rows],
        "multiprocessor_count": [int64(d.get("numSms")) for d in rows],
        "compute_capability": [_capability(d) for d in rows],
        "memory_bytes": [int64(d.get("totalGlobalMem")) for d in rows],
    }
    rows_of_devices = frame_of("devices", columns) if rows else frame_of("devices")
    return rows_of_devices.drop_nulls("device_id").unique("device_id", keep="first", maintain_order=True)


def _not_listed(rows: Sequence[Mapping[str, object]], used: Iterable[int]) -> list[Mapping[str, object]]:
    kinds = [{key: value for key, value in row.items() if key != "id"} for row in rows]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        return []
    return [{**kinds[0], "id": each} for each in sorted(set(used) - {int64(row.get("id")) for row in rows})]


def _capability(device: Mapping[str, object]) -> str | None:
    major, minor = (int64(device.get(key)) for key in ("computeMajor", "computeMinor"))
    return None if major is None or minor is None else f"{major}.{minor}"


# Grids of kernels in blocks, also where ROCm's call counted them in threads.

_IN_THREADS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
"""Calls that take the size of the grid in threads (HIP reference, execution control); Kineto writes what they took."""
_SIZES = tuple((pl.col(f"grid_{axis}"), pl.col(f"block_{axis}")) for axis in "xyz")


def in_blocks(kernels: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The staged kernels, in their order, with the grids of those that such a call launched in blocks."""
    names = spans["name"].unique().cast(pl.String)
    calls = names.filter(names.is_in(_IN_THREADS))
    if calls.is_empty():
        return kernels
    launches = spans.filter(pl.col("name").cast(pl.String).is_in(calls.implode()))["correlation_id"]
    launched = spans.filter(pl.col("level") == "kernel", pl.col("correlation_id").is_in(launches.implode()))["row"]
    is_whole = pl.all_horizontal(grid % block == 0 for grid, block in _SIZES)
    is_one = pl.col("row").is_in(launched.implode()) & is_whole
    return kernels.with_columns(pl.when(is_one).then(grid // block).otherwise(grid) for grid, block in _SIZES)


_COMMON = ("row", "name", "start_ns", "duration_ns", "process_id", "thread_id", "correlation_id")
_NOTHING, _NOTHING_DETAILED = "", "\0"  # keys of empty frames among those of categories
_KERNELS = tuple(category for category, kind in DEVICE.items() if kind is Kind.KERNEL)
_COPIES = tuple(category for category, kind in DEVICE.items() if kind is not Kind.KERNEL)
_STAGED = ("spans", "operators", "ranges", "kernels", "copies", "collectives", "allocations", "layers")
_EXTERNAL = {"row": pl.Int64(), "external_id": pl.Int64()}
_FLOW_END = {name: pl.Int64() for name in ("flow_id", "process_id", "thread_id", "start_ns")}


def shape(documents: Iterable[Document], path: Path, options: Options) -> RawTrace:
    """The staging tables of one file, from its documents; XspError where it holds nothing that can be used.

    IdsAreTexts where `shape_parts` should read a numbered copy of it.
    """
    stages = _Stages(path, options)
    for document in documents:
        check_ids(document)
        stages.add(document)
    return stages.raw_trace()


def shape_parts(
    documents: Iterable[Document], path: Path, options: Options, parts: Sequence[Part]
) -> Sequence[RawTrace]:
    """The staging tables of each part of a numbered copy that has any; XspError as of `shape`."""
    from xsp_ingest.formats.torch_profiler.merged_ranks import part_of, with_own_ids  # noqa: PLC0415 (of few files)

    stages = [_Stages(path, options) for _ in parts]
    for document in documents:
        for part, stage in zip(parts, stages, strict=True):
            stage.add(part_of(document, part, parts))
    having = [(part, stage) for part, stage in zip(parts, stages, strict=True) if stage.height]
    lost = [finding for stage in stages if not stage.height for finding in stage.findings]
    detail = "processes whose ids are texts, each label among them read as a run of its own: a trace merged of several"
    merged = Finding(LedgerKind.MERGED_TRACE, detail, sum(len(part.processes) for part, _ in having))
    raws: list[RawTrace] = []
    for part, stage in having or [(parts[-1], stages[-1])]:
        raw = stage.raw_trace()
        rank = raw.facts.rank if len(parts) == 1 else part.rank
        noted = (*raw.findings, *(() if raws else (merged, *lost)))
        raws.append(
            replace(raw, tables=with_own_ids(raw.tables, part), facts=replace(raw.facts, rank=rank), findings=noted)
        )
    return raws


class _Stages:
    """The tables so far, and the numbers by which events that are alike are merged."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options
        self._tracks: raw_events.Tracks | None = None  # asked for where a file has events of unknown categories
        self._launch_flows = {name: Stage(kinds) for name, kinds in raw_events.LAUNCH_FLOWS.items()}
        self._tables = {name: Stage(RAW_TABLES[name]) for name in _STAGED}
        self._annotated = Stage(ANNOTATED)
        self._flow_ends = {side: Stage(_FLOW_END) for side in _FLOW_PHASES}
        self._external = Stage(_EXTERNAL)
        self._marks = Growing(np.int64)
        self._lines = SourceLines(keep_private=options.keep_private)
        self.findings: list[Finding] = []
        self.height = 0  # of spans
        self._rows = 0  # of documents
        self._profiler_ranges = 0
        self._samples = 0
        self._head: Mapping[str, object] = {}

    def add(self, document: Document) -> None:
        """Adds the document's events; it is needed no longer then."""
        self._head = document.head or self._head
        document = replace(document, events=with_sane_times(document.events, ["ts_ns"]))
        document = self._with_accelerators(document)
        events, findings = sound_events(document)
        self.findings += findings
        for side, rows in _flow_ends(document.events).items():
            self._flow_ends[side].add(rows)
        self._tables["allocations"].add(_allocations(document))
        ranges = document.events.filter(pl.col("ph") == "X", pl.col("cat").is_in(PROFILER_RANGE))
        self._profiler_ranges += ranges.height
        self._samples += document.events.filter(pl.col("ph") == "C", pl.col("cat").is_in(COUNTER)).height
        details = document.details.rename(
            {"event": "row", "device": "device_id", "context": "context_id", "stream": "stream_id"}
        )
        parts = _with_details(_by_category(_with_own_ranges(events)), details)
        tables, unread = _tables_of(parts, self._options)
        self.findings += unread
        tables |= {"collectives": collective_facts(events, details)}
        self._lines.add(document.frames)
        for name, rows in tables.items():
            numbered = rows.with_columns(pl.col("row") + self._rows) if "row" in rows.columns else rows
            self._tables[name].add(numbered)
        self.height += tables["spans"].height
        external = _of(parts, DEVICE, _NOTHING_DETAILED).select("row", "external_id").filter(pl.col("external_id") > 0)
        self._external.add(external.with_columns(pl.col("row") + self._rows))
        if events["annotation"].null_count() < events.height:
            nodes = annotated_work(_of(parts, DEVICE, _NOTHING_DETAILED))
            self._annotated.add(nodes.with_columns(pl.col("row") + self._rows))
        self._marks.add(_marks_of(parts))
        self._rows += document.events.height

    def _with_accelerators(self, document: Document) -> Document:
        unknown = raw_events.unknown_work(document)
        if unknown is None:
            return document
        self._tracks = self._tracks or raw_events.tracks(self._path)
        for name, rows in raw_events.launch_flows(document, self._tracks).items():
            self._launch_flows[name].add(rows)
        document, findings = raw_events.with_accelerators(document, unknown, self._tracks)
        self.findings += findings
        return document

    def raw_trace(self) -> RawTrace:
        """All tables; XspError where there is nothing that can be used."""
        path = self._path
        tables = {name: stage.frame() for name, stage in self._tables.items()}
        if tables["spans"].is_empty():
            raise XspError(
                "no profiler events that XSP knows are in the trace",
                path=path,
                advice="Is it a trace that torch.profiler wrote, with activities recorded?",
            )
        facts_of = {name: tables[name] for name in ("operators", "kernels", "copies")}
        spans, repeated = once(tables["spans"], self._marks.column(), facts_of)
        if self._tracks is not None:
            flows = {name: stage.frame() for name, stage in self._launch_flows.items()}
            spans = raw_events.with_issuers(spans, flows)
        tables["spans"], unclear = with_process(spans)
        tables["spans"], inferred = with_launches(tables["spans"], tables["operators"], self._external.frame())
        tables["kernels"] = in_blocks(tables["kernels"], tables["spans"])
        tables["operators"] = self._lines.with_lines(tables["operators"], tables["spans"])
        tables["flows"] = _flows({side: stage.frame() for side, stage in self._flow_ends.items()})
        tables["devices"] = devices(self._head, tables["spans"]["device_id"].drop_nulls().unique())
        tables["metrics"], counted = range_metrics(self._profiler_ranges, tables["spans"], path)
        tables["launches"] = captured_launches(tables["spans"], path)
        tables["collectives"] = with_groups_of_job(tables["collectives"], self._head)
        tables["counters"], unusable = samples(self._samples, path)
        tables |= with_layers(tables, self._annotated.frame())
        tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
        findings = [*sum_counts(self.findings), *repeated, *unclear, *inferred, *counted, *unusable]
        return RawTrace(tables, facts(self._head), tuple(findings))


def _tables_of(parts: _Parts, options: Options) -> tuple[dict[str, pl.DataFrame], Sequence[Finding]]:
    annotations, layers, unread = _annotations(parts, options)
    tables = {
        "spans": pl.concat([frame_of("spans", each) for each in _spans_of(parts, annotations)]),
        "operators": _operator_facts(parts, options),
        "ranges": _range_facts(parts),
        "kernels": _kernel_facts(parts),
        "copies": _copy_facts(parts),
        "layers": frame_of("layers", layers),
    }
    return tables, unread


def _spans_of(parts: _Parts, annotations: pl.DataFrame) -> Sequence[pl.DataFrame]:
    """Frames of spans, in the order of _ORDER."""
    return (
        _modules(parts),
        _operators(parts),
        annotations,
        _calls(parts),
        _syncs(parts),
        _host(_of(parts, (*OVERHEAD, *LIBRARY)), Level.LIBRARY, Kind.CALL),
        _activities(parts),
    )


_ORDER = (PYTHON, OPERATOR, ANNOTATION, CALL, SYNC, (*OVERHEAD, *LIBRARY), tuple(DEVICE))


def _marks_of(parts: _Parts) -> Ints:
    """The marks of the spans, in their order."""
    return np.concatenate([_of(parts, kinds)["mark"].to_numpy() for kinds in _ORDER])


_OWN_RANGES = rf"{KINETO_STEP}|^Optimizer\.\w+#|^enumerate\(DataLoader\)#|^(?:gloo|mpi|ucc):"
"""What PyTorch itself annotates: steps of the schedule, an optimizer's calls, waits for the next batch, collectives."""


def _with_own_ranges(events: pl.DataFrame) -> pl.DataFrame:
    """Up to torch 1.9, and in torch_npu, PyTorch's own ranges stand among the operators; here they are annotations."""
    names = events["name"].unique().cast(pl.String)
    ranges = names.filter(names.str.contains(_OWN_RANGES))
    if ranges.is_empty():
        return events
    is_range = pl.col("category").is_in(OPERATOR) & pl.col("name").cast(pl.String).is_in(ranges.implode())
    return events.with_columns(
        pl.when(is_range)
        .then(pl.lit("user_annotation", pl.Categorical))
        .otherwise(pl.col("category"))
        .alias("category")
    )


_Parts = Mapping[str, pl.DataFrame]


def _by_category(events: pl.DataFrame) -> _Parts:
    """The events of each category: split once, as every filter goes through all of them."""
    parts = events.partition_by("category", as_dict=True)
    return {_NOTHING: events.clear(), **{str(category): part for (category,), part in parts.items()}}


def _of(parts: _Parts, kinds: Iterable[str], nothing: str = _NOTHING) -> pl.DataFrame:
    frames = [parts[kind] for kind in kinds if kind in parts]
    if len(frames) > 1:
        return pl.concat(frames)
    return frames[0] if frames else parts[nothing]


def _with_details(parts: _Parts, details: pl.DataFrame) -> _Parts:
    """The same with the details of those categories whose are used."""

    def with_details(events: pl.DataFrame) -> pl.DataFrame:
        return events.join(details, on="row", how="left", maintain_order="left")

    return {
        **parts,
        **{kind: with_details(parts[kind]) for kind in (*SYNC, *DEVICE) if kind in parts},
        _NOTHING_DETAILED: with_details(parts[_NOTHING]),
    }


def _host(events: pl.DataFrame, level: Level, kind: Kind) -> pl.DataFrame:
    return events.select(
        *_COMMON, pl.lit(str(level), pl.Categorical).alias("level"), pl.lit(str(kind), pl.Categorical).alias("kind")
    )


def _modules(parts: _Parts) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String).str.strip_prefix(MODULE_PREFIX)
    return _host(_of(parts, PYTHON).with_columns(name), Level.LAYER, Kind.MODULE)


def _operators(parts: _Parts) -> pl.DataFrame:
    operators = _host(_of(parts, OPERATOR), Level.OPERATOR, Kind.OPERATOR).with_columns(
        correlation_id=pl.lit(None, pl.Int64)  # an operator's `correlation` is not a launch's
    )
    names = operators["name"].unique().cast(pl.String)
    regions = names.filter(names.str.contains(COMPILED_REGION))
    if regions.is_empty():
        return operators
    # Dynamo marks the call of compiled code among the operators: it is none, all that it calls lies in it.
    is_region = pl.col("name").cast(pl.String).is_in(regions.implode())
    as_range = {"level": str(Level.APPLICATION), "kind": str(Kind.RANGE)}
    return operators.with_columns(
        pl.when(is_region).then(pl.lit(value)).otherwise(pl.col(name).cast(pl.String)).alias(name)
        for name, value in as_range.items()
    )


def _annotations(parts: _Parts, options: Options) -> tuple[pl.DataFrame, pl.DataFrame, Sequence[Finding]]:
    """Spans of annotations, what those of modules say of layers, and what could not be read of it.

    Where PyTorch recorded the modules itself, another's ranges of them are no second call of each.
    """
    ranges = _of(parts, ANNOTATION).select(_COMMON)
    texts = ranges["name"].cast(pl.String)
    ranges, layers, unread = module_ranges(ranges.with_columns(texts, texts.alias("text")))
    plain = pl.col("name").str.strip_prefix(MODULE_PREFIX)
    if any(kind in parts for kind in PYTHON):
        ranges, layers = ranges.with_columns(plain), layers.clear()
    meanings = classify(ranges, KINETO, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    return ranges.with_columns(plain).select(_COMMON).hstack(meanings.cast(pl.String)), layers, unread


def _calls(parts: _Parts) -> pl.DataFrame:
    return _host(_of(parts, CALL), Level.RUNTIME, Kind.CALL)


_WHERE = ("device_id", "context_id", "stream_id")


def _syncs(parts: _Parts) -> pl.DataFrame:
    waits = _of(parts, SYNC, _NOTHING_DETAILED)
    facts_of = _host(waits, Level.RUNTIME, Kind.SYNC).with_columns(waits.select(_WHERE).get_columns())
    return facts_of.with_columns(thread_id=pl.lit(None, pl.Int64))


def _activities(parts: _Parts) -> pl.DataFrame:
    work = _of(parts, DEVICE, _NOTHING_DETAILED)
    kind = pl.col("category").cast(pl.String).replace_strict(DEVICE, return_dtype=pl.String)
    return work.select(*_COMMON, *_WHERE, kind.alias("kind"), pl.lit(str(Level.KERNEL)).alias("level")).with_columns(
        thread_id=pl.lit(None, pl.Int64)
    )


def _operator_facts(parts: _Parts, options: Options) -> pl.DataFrame:
    operators = _of(parts, OPERATOR)
    facts_of = operators.select(
        "row",
        pl.when(pl.col("sequence_number") >= 0).then(pl.col("sequence_number")),
        pl.when(pl.col("forward_thread_id") > 0).then(pl.col("forward_thread_id")),
        "external_id",
        pl.when(pl.col("record_function_id") > 0).then(pl.col("record_function_id")),
        pl.col("input_dims").alias("input_shapes"),
        pl.col("input_types").alias("input_dtypes"),
        "input_strides",
        "concrete_inputs",
    )
    if options.frames != "none" and operators["call_stack"].null_count() < operators.height:
        lines = of_call_stacks(operators["call_stack"], keep_private=options.keep_private)
        facts_of = facts_of.with_columns(lines.alias("source_lines"))
    return frame_of("operators", facts_of)


def _range_facts(parts: _Parts) -> pl.DataFrame:
    facts_of = _of(parts, ANNOTATION).select("row", pl.col("name").cast(pl.String).alias("text"))
    return frame_of("ranges", facts_of.with_columns(style=pl.lit("Annotation")))


def _kernel_facts(parts: _Parts) -> pl.DataFrame:
    kernels = _of(parts, _KERNELS, _NOTHING_DETAILED)
    sizes = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    return frame_of(
        "kernels",
        kernels.select(
            "row",
            *sizes,
            pl.col("registers").alias("registers_per_thread"),
            "shared_bytes",
            pl.when(pl.col("graph_id") > 0).then(pl.col("graph_id")),
            pl.when(pl.col("graph_node_id") > 0).then(pl.col("graph_node_id")),
        ),
    )


def _copy_facts(parts: _Parts) -> pl.DataFrame:
    copies = _of(parts, _COPIES, _NOTHING_DETAILED)
    name = pl.col("name").cast(pl.String)
    ends = name.str.extract_groups(r"\((\w+) -> (\w+)\)")
    direction = name.str.extract(r"^Memcpy (\w+)").replace_strict(COPY_DIRECTIONS, default=None, return_dtype=pl.String)
    return frame_of(
        "copies",
        copies.select(
            "row",
            "bytes",
            direction.alias("copy_kind"),
            ends.struct[0].alias("source_kind"),
            ends.struct[1].alias("destination_kind"),
        ),
    )


_FLOW_PHASES = {"forward": "s", "backward": "f"}


def _flow_ends(events: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    flows = events.filter(pl.col("cat") == "fwdbwd", pl.col("ts_ns").is_not_null(), pl.col("flow_id").is_not_null())
    columns = ("flow_id", pl.col("pid").alias("process_id"), pl.col("tid").alias("thread_id"))
    return {
        side: flows.filter(pl.col("ph") == ph).select(*columns, pl.col("ts_ns").alias("start_ns"))
        for side, ph in _FLOW_PHASES.items()
    }


def _flows(ends: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    named = {
        side: rows.rename({name: f"{side}_{name}" for name in _FLOW_END if name != "flow_id"})
        for side, rows in ends.items()
    }
    return frame_of("flows", named["forward"].join(named["backward"], on="flow_id", maintain_order="left"))


def _allocations(document: Document) -> pl.DataFrame:
    events = document.events.select("cat", "name", "ts_ns", "pid", "tid", pl.int_range(pl.len()).alias("event"))
    moments = events.filter(is_memory(), pl.col("ts_ns").is_not_null())
    sized = document.details.filter(pl.col("bytes").is_not_null())
    memory = moments.join(sized, on="event", how="inner", maintain_order="left")
    on_device = pl.col("memory_device_type") > 0
    return frame_of(
        "allocations",
        memory.select(
            pl.col("pid").alias("process_id"),
            pl.col("tid").alias("thread_id"),
            pl.col("ts_ns").alias("time_ns"),
            pl.when(on_device).then(pl.col("memory_device_id")).alias("device_id"),
            "bytes",
            pl.col("total_allocated").alias("allocated_bytes"),
            pl.col("total_reserved").alias("reserved_bytes"),
            pl.when(pl.col("address") != 0).then(pl.col("address")).alias("address"),
        ),
    )
