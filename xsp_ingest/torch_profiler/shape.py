"""Turns scanned events into the staging tables that the linker takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.ranges import FRAMEWORK_RANGES, level_of_range, one_of
from xsp_ingest.raw import RAW_TABLES, RawTrace, frame_of
from xsp_ingest.torch_profiler import categories as cat
from xsp_ingest.torch_profiler.facts import devices, facts
from xsp_ingest.torch_profiler.profiler_ranges import range_metrics
from xsp_ingest.torch_profiler.sound import sound_events
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.torch_profiler.events import Document

__all__ = ["shape"]

_STEP = r"^ProfilerStep#\d+$"
_LIBRARY_RANGES = (r"^(nccl|gloo|mpi|ucc|rccl):",)
_COMMON = ("row", "name", "start_ns", "duration_ns", "process_id", "thread_id", "correlation_id")
_ROCM_COPY = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "HtoH": "Host-to-Host"}
_COPY_KIND = {**_ROCM_COPY, "HtoA": "Host-to-Array", "AtoH": "Array-to-Host", "AtoD": "Array-to-Device"} | {
    "DtoA": "Device-to-Array",
    "AtoA": "Array-to-Array",
    "PtoP": "Peer-to-Peer",
}


def shape(document: Document, path: Path, options: Options) -> RawTrace:
    """The staging tables of one file; XspError where it holds nothing that can be used."""
    events, findings = sound_events(document, path)
    head, flows, allocations = document.head, _flows(document.events), _allocations(document)
    details = document.details.rename(
        {"event": "row", "device": "device_id", "context": "context_id", "stream": "stream_id"}
    )
    ranges = document.events.filter(pl.col("cat").is_in(cat.PROFILER_RANGE))
    del document  # a large file's events need not stay beside what was made of them
    parts = _by_category(_steps_annotated(events))
    del events
    spans = [
        _modules(parts),
        _operators(parts),
        _annotations(parts, options),
        _calls(parts),
        _syncs(parts, details),
        _activities(parts, details),
    ]
    tables = {
        "spans": pl.concat([frame_of("spans", s) for s in spans]),
        "operators": _operator_facts(parts),
        "ranges": _range_facts(parts),
        "kernels": _kernel_facts(parts, details),
        "copies": _copy_facts(parts, details),
        "flows": flows,
        "allocations": allocations,
        "devices": devices(head),
    }
    tables["metrics"], counted = range_metrics(ranges, tables["spans"], path)
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    return RawTrace(tables, facts(head), tuple(findings + counted))


def _steps_annotated(events: pl.DataFrame) -> pl.DataFrame:
    """Up to torch 1.8 the steps of the schedule stood among the operators; here they are annotations, as since."""
    if not (events["category"] == "Operator").any():
        return events
    step = (pl.col("category") == "Operator") & pl.col("name").cast(pl.String).str.contains(_STEP)
    return events.with_columns(
        pl.when(step).then(pl.lit("user_annotation", pl.Categorical)).otherwise(pl.col("category")).alias("category")
    )


_Parts = Mapping[str, pl.DataFrame]


def _by_category(events: pl.DataFrame) -> _Parts:
    """The events of each category: split once, as every filter goes through all of them. `""` is an empty frame."""
    parts = events.partition_by("category", as_dict=True)
    return {"": events.clear(), **{str(category): part for (category,), part in parts.items()}}


def _of(parts: _Parts, kinds: Iterable[str]) -> pl.DataFrame:
    found = [parts[kind] for kind in kinds if kind in parts]
    return found[0] if len(found) == 1 else pl.concat([parts[""], *found])


def _detailed(parts: _Parts, kinds: tuple[str, ...], details: pl.DataFrame) -> pl.DataFrame:
    return _of(parts, kinds).join(details, on="row", how="left", maintain_order="left")


def _host(events: pl.DataFrame, level: Level, kind: Kind) -> pl.DataFrame:
    return events.select(
        *_COMMON, pl.lit(str(level), pl.Categorical).alias("level"), pl.lit(str(kind), pl.Categorical).alias("kind")
    )


def _modules(parts: _Parts) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String).str.strip_prefix(cat.MODULE_PREFIX)
    return _host(_of(parts, cat.PYTHON).with_columns(name), Level.LAYER, Kind.MODULE)


def _operators(parts: _Parts) -> pl.DataFrame:
    return _host(_of(parts, cat.OPERATOR), Level.OPERATOR, Kind.OPERATOR).with_columns(
        correlation_id=pl.lit(None, pl.Int64)  # an operator's `correlation` is not a launch's
    )


def _annotations(parts: _Parts, options: Options) -> pl.DataFrame:
    ranges = _of(parts, cat.ANNOTATION)
    text = pl.col("name").cast(pl.String)
    level = level_of_range(
        text,
        is_library=text.str.contains(one_of(_LIBRARY_RANGES)),
        model_ranges=options.model_ranges or (_STEP,),
        layer_ranges=options.layer_ranges,
        other_ranges=FRAMEWORK_RANGES,
    )
    kind = pl.when(pl.col("level") == Level.MODEL).then(pl.lit(str(Kind.STEP))).otherwise(pl.lit(str(Kind.RANGE)))
    return ranges.select(*_COMMON, level.alias("level")).with_columns(kind=kind)


def _calls(parts: _Parts) -> pl.DataFrame:
    return _host(_of(parts, cat.CALL), Level.RUNTIME, Kind.CALL)


_WHERE = ("device_id", "context_id", "stream_id")


def _syncs(parts: _Parts, details: pl.DataFrame) -> pl.DataFrame:
    waits = _detailed(parts, cat.SYNC, details)
    facts_of = _host(waits, Level.RUNTIME, Kind.SYNC).with_columns(waits.select(_WHERE).get_columns())
    return facts_of.with_columns(thread_id=pl.lit(None, pl.Int64))


def _activities(parts: _Parts, details: pl.DataFrame) -> pl.DataFrame:
    work = _detailed(parts, tuple(cat.DEVICE), details)
    kind = pl.col("category").cast(pl.String).replace_strict(cat.DEVICE, return_dtype=pl.String)
    return work.select(*_COMMON, *_WHERE, kind.alias("kind"), pl.lit(str(Level.KERNEL)).alias("level")).with_columns(
        thread_id=pl.lit(None, pl.Int64)
    )


def _operator_facts(parts: _Parts) -> pl.DataFrame:
    facts_of = _of(parts, cat.OPERATOR).select(
        "row",
        pl.when(pl.col("sequence_number") >= 0).then(pl.col("sequence_number")),
        pl.when(pl.col("forward_thread_id") > 0).then(pl.col("forward_thread_id")),
        "external_id",
        pl.when(pl.col("record_function_id") > 0).then(pl.col("record_function_id")),
        pl.col("input_dims").alias("input_shapes"),
        pl.col("input_types").alias("input_dtypes"),
    )
    return frame_of("operators", facts_of)


def _range_facts(parts: _Parts) -> pl.DataFrame:
    facts_of = _of(parts, cat.ANNOTATION).select(
        "row", pl.col("row").alias("range_id"), pl.col("name").cast(pl.String).alias("text")
    )
    return frame_of("ranges", facts_of.with_columns(style=pl.lit("Annotation")))


def _kernel_facts(parts: _Parts, details: pl.DataFrame) -> pl.DataFrame:
    kernels = _detailed(parts, tuple(c for c, kind in cat.DEVICE.items() if kind is Kind.KERNEL), details)
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


def _copy_facts(parts: _Parts, details: pl.DataFrame) -> pl.DataFrame:
    copies = _detailed(parts, tuple(c for c, kind in cat.DEVICE.items() if kind is not Kind.KERNEL), details)
    name = pl.col("name").cast(pl.String)
    ends = name.str.extract_groups(r"\((\w+) -> (\w+)\)")
    direction = name.str.extract(r"^Memcpy (\w+)").replace_strict(_COPY_KIND, default=None, return_dtype=pl.String)
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


def _flows(events: pl.DataFrame) -> pl.DataFrame:
    flows = events.filter(pl.col("cat") == "fwdbwd", pl.col("ts_ns").is_not_null(), pl.col("flow_id").is_not_null())
    at = {"process_id": "pid", "thread_id": "tid", "start_ns": "ts_ns"}
    ends = {
        side: flows.filter(pl.col("ph") == ph).select(
            "flow_id", *(pl.col(old).alias(f"{side}_{new}") for new, old in at.items())
        )
        for side, ph in (("forward", "s"), ("backward", "f"))
    }
    return frame_of("flows", ends["forward"].join(ends["backward"], on="flow_id", maintain_order="left"))


def _allocations(document: Document) -> pl.DataFrame:
    events = document.events.select("cat", "name", "ts_ns", "pid", "tid", pl.int_range(pl.len()).alias("event"))
    moments = events.filter(
        pl.col("cat").is_in(cat.MEMORY), pl.col("name") == "[memory]", pl.col("ts_ns").is_not_null()
    )
    known = document.details.filter(pl.col("bytes").is_not_null())
    memory = moments.join(known, on="event", how="inner", maintain_order="left")
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
        ),
    )
