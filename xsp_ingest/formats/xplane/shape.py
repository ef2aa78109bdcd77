"""Turns the planes of one profile into the staging tables that the linker takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.xplane import host, operators
from xsp_ingest.formats.xplane.host import Role, allocations, on_their_threads, step_rows
from xsp_ingest.formats.xplane.instructions import program_instructions, with_instructions
from xsp_ingest.formats.xplane.operators import framework_rows, module_rows
from xsp_ingest.formats.xplane.plane import AMOUNTS, NUMBERS, TEXTS, empty_plane
from xsp_ingest.formats.xplane.wide import tables, wide
from xsp_ingest.link.range_rules import ANNOTATIONS, classify
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.xplane.plane import Plane
    from xsp_ingest.ingester import Options

__all__ = ["shape"]

_ENVIRONMENT = "Task Environment"
_UNIX_AT_LEAST_NS = 10**18  # 2001; a time that counts from the start of the profile is far smaller


def process_of(planes: Sequence[Plane]) -> int:
    """The process's number where the planes say it (since 2025), else 0: a profile is of one process."""
    for plane in planes:
        number = plane.stats.get("process_id")
        if isinstance(number, int) and number >= 0:
            return number
    return 0


def run_facts(planes: Sequence[Plane], spans: pl.DataFrame) -> RunFacts:
    """Profiler, framework and epoch: times count from `profile_start_time`, or as old versions wrote them from 1970."""
    stats = {name: value for plane in planes for name, value in plane.stats.items()}
    started = stats.get("profile_start_time")
    first = spans["start_ns"].min()
    epoch = 0 if isinstance(first, int) and first >= _UNIX_AT_LEAST_NS else None
    if epoch is None and isinstance(started, int) and 0 < started < LATEST_NS:
        epoch = started
    return RunFacts(profiler="TensorFlow/JAX profiler (XPlane)", framework=_framework(planes, stats), epoch_ns=epoch)


def _framework(planes: Sequence[Plane], stats: dict[str, int | float | str]) -> str | None:
    version = stats.get("jax_version")
    if version:
        return f"jax {version}"
    names = pl.concat([pl.Series(dtype=pl.String), *(plane.metadata["event_name"] for plane in planes)])
    if names.str.contains(r"^PjitFunction\(|^py_xla|^\$jax|PythonRefManager").any():
        return "jax"
    return "tensorflow" if names.str.contains(r"^(?:ExecutorState::Process|FunctionRun|SessionRun)$").any() else None


# The planes of GPUs: what ran on their streams, and what the devices are.

_STREAM = r"^Stream #(\d{1,9})\b"
DERIVED = (
    "Steps",
    "XLA Modules",
    "XLA Ops",
    "XLA TraceMe",
    "Async XLA Ops",
    "Framework Ops",
    "TensorFlow Ops",
    "Framework Name Scope",
    "TensorFlow Name Scope",
    "Source code",
    "Source Code",
    "Launch Stats",
)
"""Lines that say again what the streams' lines say; their time is never summed with the streams'."""
_COPY, _FILL = r"(?i)^memcpy|\(memcpy", r"(?i)^memset"
_COPIES_ALONE = r"(?i)\((?:memcpy\w*|memset)(?:,\s*(?:memcpy\w*|memset))*\)"  # what a stream's name says may run on it
_HZ_PER_KHZ = 1000


def activities(device_id: int, plane: Plane, process_id: int) -> pl.DataFrame:
    """One row an event on a stream, with `kind`, `stream_id` and every statistic."""
    stream = pl.col("line_name").str.extract(_STREAM).cast(pl.Int64, strict=False)
    lines = plane.lines.select("line", "line_name", stream.alias("stream_id")).drop_nulls("stream_id")
    stats = [plane.stat(name) for name in (*NUMBERS, *AMOUNTS, *TEXTS)]
    rows = (
        plane.events.select("line", "metadata_id", "start_ns", "duration_ns", *stats)
        .join(lines, on="line", how="inner", maintain_order="left")
        .join(plane.metadata, on="metadata_id", how="left", maintain_order="left")
    )
    details = pl.coalesce(pl.col(name).cast(pl.String) for name in ("memcpy_details", "memset_details"))
    kind = (
        pl.when(pl.col("kernel_details").is_not_null())
        .then(pl.lit("kernel"))
        .when(pl.col("memset_details").is_not_null() | pl.col("event_name").str.contains(_FILL))
        .then(pl.lit("memset"))
        .when(pl.col("memcpy_details").is_not_null() | pl.col("event_name").str.contains(_COPY))
        .then(pl.lit("memcpy"))
        .when(pl.col("hlo_op").is_null() & pl.col("line_name").str.contains(_COPIES_ALONE))
        .then(pl.lit("memcpy"))
        .otherwise(pl.lit("kernel"))
    )
    return rows.with_columns(
        kind.alias("kind"),
        pl.col("event_name").fill_null("").alias("name_of_work"),
        details.alias("memcpy_details"),
        pl.lit(device_id, pl.Int64).alias("device_id"),
        pl.lit(process_id, pl.Int64).alias("process_id"),
        pl.coalesce("graph_id", "cuda_graph_id").alias("graph_id"),
        pl.coalesce("graph_node_id", "cuda_graph_node_id").alias("graph_node_id"),
    )


def devices(planes: Iterable[tuple[int, Plane]]) -> pl.DataFrame:
    """The staging table `devices`, from the planes' statistics; clocks are written in kHz."""
    rows = [_device(number, plane.stats) for number, plane in planes]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else None
    return frame_of("devices", columns)


_MAX = 1 << 52  # of kHz, bytes and bytes a second; beyond, a number is none


def _device(number: int, stats: Mapping[str, int | float | str]) -> dict[str, object]:
    def integer(name: str) -> int | None:
        value = stats.get(name)
        return value if isinstance(value, int) and 0 < value < _MAX else None

    clock_khz, bandwidth = integer("clock_rate"), integer("memory_bandwidth")
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    named = stats.get("device_type_string") or stats.get("device_name")
    return {
        "device_id": number,
        "name": named if isinstance(named, str) else None,
        "multiprocessor_count": integer("core_count"),
        "compute_capability": f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else None,
        "clock_hz": clock_khz * _HZ_PER_KHZ if clock_khz else None,
        "memory_bytes": integer("memory_size"),
        "dram_byte_per_s": float(bandwidth) if bandwidth else None,
        "peak_source": "the profiler's plane of the device" if bandwidth else None,
    }


def lines_not_read(plane: Plane) -> list[Finding]:
    """Counts the events of a device's plane on lines that are no streams."""
    counts = plane.events.join(plane.lines, on="line").group_by("line_name").len()
    others = counts.filter(~pl.col("line_name").str.contains(_STREAM)).sort("line_name")
    derived, unknown = (
        others.filter(pl.col("line_name").is_in(DERIVED)),
        others.filter(~pl.col("line_name").is_in(DERIVED)),
    )
    return [
        Finding(
            LedgerKind.EVENTS_LEFT_OUT,
            "events of lines that the profiler derived from a device's streams were not summed with those",
            int(derived["len"].sum()),
        ),
        *(
            Finding(LedgerKind.UNKNOWN_LINE, f"events of a device's unknown line {name!r} were not read", count)
            for name, count in unknown.iter_rows()
        ),
    ]


_THREAD = ("process_id", "thread_id")
_TIMES = ("start_ns", "duration_ns")
_NO_LAUNCH_THREADS = 1 << 40  # pseudo-threads of operators that only their device work tells of: -(this), downwards
_STREAMS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Work:
    """What ran on devices: `launched` by a call on the host, or `alone`, with the `key` of its operator where known.

    What a command buffer replayed was launched, and has the `key` of the operator that it is of, too.
    """

    launched: pl.DataFrame
    alone: pl.DataFrame


def shape(planes: Sequence[Plane], path: Path, options: Options) -> RawTrace:
    """The staging tables of one profile; XspError where it holds nothing that can be used."""
    gpus = host.device_planes(planes)
    process = process_of(planes)
    work, mended = host.plausible(_device_work(gpus, process))
    events, more = host.plausible(_host(planes, process, work))
    if events.is_empty() and work.is_empty():
        raise XspError("the profile holds no events", path=path, advice="Was anything run while it was being taken?")
    protos = {k: v for plane in planes for k, v in plane.hlo_protos.items()}
    work, buffered = with_instructions(work, events.filter(pl.col("role") == Role.CALL), protos)
    parted = _part(work, events)
    runs = pl.concat([operators.instructions(events), _operators_of_work(parted)])
    programs, *damaged = program_instructions(protos, runs["hlo_op"].drop_nulls().unique().to_list())
    ops = operators.with_names(runs, operators.recorded_operations([events, work]), programs)
    steps, inferred = step_rows(
        events, [plane for _, plane in gpus], work, operators.main_program(ops, work), options.model_ranges
    )
    around = [operators.program_rows(events, ops), _ranges(events, options, steps)]
    run = [framework_rows(events), operators.operator_rows(ops)]
    modules, loose = module_rows(pl.concat(run), pl.concat(around), steps, options.layer_scopes)
    parts = [
        steps,
        *around,
        modules,
        *run,
        wide(_calls(events), Level.RUNTIME, Kind.CALL),
        _device_rows(parted),
    ]
    staged = tables(parts) | {"allocations": allocations(events), "devices": devices(gpus)}
    staged |= {name: frame_of(name) for name in RAW_TABLES if name not in staged}
    findings = [
        *mended,
        *more,
        *host.omitted_events(events),
        *inferred,
        *loose,
        *buffered,
        *_complaints(planes, gpus, damaged),
    ]
    return RawTrace(staged, run_facts(planes, staged["spans"]), tuple(_merge_findings(findings)))


def _device_work(gpus: Sequence[tuple[int, Plane]], process: int) -> pl.DataFrame:
    return pl.concat([activities(number, plane, process) for number, plane in (*gpus, (0, empty_plane()))])


def _host(planes: Sequence[Plane], process: int, work: pl.DataFrame) -> pl.DataFrame:
    device_ops = work["hlo_op"].cast(pl.String).drop_nulls().unique()
    host_planes = [plane for plane in planes if plane.name.startswith(host.PLANE)]
    return on_their_threads(
        pl.concat([host.host_events(plane, process, device_ops) for plane in (*host_planes, empty_plane())])
    )


def _part(work: pl.DataFrame, events: pl.DataFrame) -> _Work:
    on = ["process_id", "correlation_id"]
    calls = events.filter(pl.col("role") == Role.CALL).select(on).unique().with_columns(is_launched=pl.lit(value=True))
    placed = work.join(calls, on=on, how="left", maintain_order="left").with_columns(
        pl.col("is_launched").fill_null(value=False),
        (-_NO_LAUNCH_THREADS - pl.col("device_id") * _STREAMS - pl.col("stream_id")).alias("thread_id"),
        pl.lit(None, pl.Int64).alias("execution"),
    )
    names_operator = pl.col("hlo_op").is_not_null() & (~pl.col("is_launched") | pl.col("replayed"))
    texts = pl.col("hlo_op", "hlo_module").cast(pl.String)
    again = pl.col("replayed") & (pl.col("correlation_id") != pl.col("correlation_id").shift())  # another launch
    keyed = operators.number_series(
        placed.filter(names_operator).with_columns(texts), "key", operators.SERIES, again=again
    )
    others = placed.filter(~names_operator).with_columns(texts, key=pl.lit(None, pl.Int64))
    every = pl.concat([keyed, others])
    return _Work(every.filter("is_launched"), every.filter(~pl.col("is_launched")))


def _operators_of_work(work: _Work) -> pl.DataFrame:
    """Runs of instructions that only device work tells of, over that work's own time: of replays, or not launched."""
    with_operator = pl.concat([work.launched, work.alone]).filter(pl.col("key").is_not_null())
    return operators.around(with_operator, "key").select(operators.COLUMNS)


def _ranges(events: pl.DataFrame, options: Options, steps: pl.DataFrame) -> pl.DataFrame:
    """What is left on the host: ranges of the application, or layers where the user's pattern says so."""
    ranges = events.filter(pl.col("role") == Role.RANGE).with_columns(name=pl.col("event_name"))
    taken = [*_THREAD, *_TIMES, "name"]
    left = ranges.join(
        steps.select(pl.col("name").cast(pl.String), *taken[:-1]), on=taken, how="anti", maintain_order="left"
    )
    level = classify(left.select(pl.col("name").cast(pl.String)), ANNOTATIONS, layer_ranges=options.layer_ranges)[
        "level"
    ]
    return wide(left.select(taken), Level.APPLICATION, Kind.RANGE).with_columns(level)


def _calls(events: pl.DataFrame) -> pl.DataFrame:
    calls = events.filter(pl.col("role") == Role.CALL)
    return calls.select(*_THREAD, *_TIMES, "correlation_id", pl.col("event_name").alias("name"))


def _device_rows(work: _Work) -> pl.DataFrame:
    columns = (
        "process_id",
        *_TIMES,
        "device_id",
        "stream_id",
        "context_id",
        "correlation_id",
        "kind",
        "kernel_details",
    )
    rows = pl.concat(
        [
            each.select(
                *columns,
                "memcpy_details",
                "graph_id",
                "graph_node_id",
                pl.col("name_of_work").alias("name"),
                pl.col("key").alias(key),
            )
            for each, key in ((work.launched, "captured_in_key"), (work.alone, "issued_by_key"))
        ],
        how="diagonal",
    )
    return pl.concat(
        wide(rows.filter(pl.col("kind") == str(kind)), Level.KERNEL, kind)
        for kind in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
    )


def _complaints(planes: Sequence[Plane], gpus: Sequence[tuple[int, Plane]], damaged: Sequence[int]) -> list[Finding]:
    names = {plane.name for _, plane in gpus} | {"Task Environment", "/host:metadata", "/host:python-tracer"}
    others = [plane for plane in planes if plane.name not in names and not plane.name.startswith(host.PLANE)]
    return [
        *(finding for _, plane in gpus for finding in lines_not_read(plane)),
        *(
            Finding(
                LedgerKind.UNKNOWN_PLANE,
                f"events of the unknown plane {plane.name!r} were not read",
                plane.events.height,
            )
            for plane in others
        ),
        Finding(LedgerKind.DAMAGED_PROGRAM, count=damaged[0]),
        Finding(LedgerKind.DAMAGED_PROGRAM, "instructions in the profile's programs have unknown work", damaged[1]),
        Finding(LedgerKind.PYTHON_FRAMES_LEFT_OUT, count=sum(plane.frames for plane in planes)),
        Finding(
            LedgerKind.MISSING_START,
            "events without a sound start were left out",
            sum(plane.untimed for plane in planes),
        ),
    ]


def _merge_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that say the same, once, with the sum of their counts."""
    counts: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.detail)
        counts[key] = counts.get(key, 0) + finding.count
        first.setdefault(key, finding)
    return [replace(finding, count=counts[key]) for key, finding in first.items()]
