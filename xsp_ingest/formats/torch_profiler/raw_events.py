"""Events of a kind as they stand in the file, with all their arguments; of them those of accelerators unknown here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.counters.ncu_names import doubts, ncu_table, unit_of
from xsp_ingest.files.content import read_all
from xsp_ingest.files.values import characters, finite, int64, json_integer, nanoseconds
from xsp_ingest.formats.torch_profiler.events import (
    ANNOTATION,
    CALL,
    COUNTER,
    DEVICE,
    LAUNCH_FLOW,
    LEFT_OUT,
    LIBRARY,
    OPERATOR,
    OTHER_CALL,
    OVERHEAD,
    OWN_COUNTER,
    PROFILER_RANGE,
    PYTHON,
    RESTATED,
    SYNC,
)
from xsp_ingest.formats.torch_profiler.scan_plain import cut_off, integer
from xsp_ingest.link.spans import matches
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document

__all__ = [
    "LAUNCH_FLOWS",
    "Tracks",
    "captured_launches",
    "launch_flows",
    "range_metrics",
    "raw_events",
    "samples",
    "tracks",
    "unknown_work",
    "with_accelerators",
    "with_issuers",
]

# Events of a kind as they stand in the file, with all their arguments: the scanners keep known ones only.

_NS_PER_US = 1000


def raw_events(
    path: Path,
    head: re.Pattern[str],
    is_one: Callable[[dict[str, Any]], bool],
    *,
    expected: int | None = None,
    parse_float: Callable[[str], Any] = float,
) -> Iterator[dict[str, Any]]:
    """The events that begin as Kineto writes them (`head`), found in the text; not finite numbers are null.

    Where none does, or another number than `expected`, another program wrote the file, with its keys in another order:
    then `is_one` chooses among all events.
    """
    text = read_all(path, damaged=cut_off).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_float=parse_float, parse_int=json_integer, parse_constant=lambda _: None)
    starts = [match.start() for match in head.finditer(text)]
    if starts and expected in (None, len(starts)):
        for start in starts:
            yield decoder.raw_decode(text, start)[0]
        return
    document = decoder.decode(text)
    entries = document.get("traceEvents") if isinstance(document, dict) else document
    yield from (event for event in entries or () if isinstance(event, dict) and is_one(event))


# What launches that were captured into a graph were of: ROCm writes it beside the call, for it has no kernel yet.
_BEGINS = r"(?i)^(cuda|cu|hip)StreamBeginCapture"
_CALL_HEAD = re.compile(
    r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(CALL) + r')"\s*,\s*"name"\s*:\s*"[^"]*Launch'
)
_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_KEYS = ("process_id", "correlation_id", "name")
_FACTS: dict[str, pl.DataType] = {
    "process_id": pl.Int64(),
    "correlation_id": pl.Int64(),
    "name": pl.String(),
    "kernel_name": pl.String(),
    **{axis: pl.Int64() for axis in _AXES},
}


def captured_launches(spans: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The staging table `launches`; empty unless a graph was captured, as it takes the file's text once more."""
    if not matches(spans["name"], _BEGINS).any():
        return frame_of("launches")
    facts = pl.DataFrame(
        [_launch_facts(event) for event in raw_events(path, _CALL_HEAD, _is_call)], schema=_FACTS, orient="row"
    )
    named = facts.drop_nulls(["correlation_id", "kernel_name"])
    calls = spans.select("row", "process_id", "correlation_id", pl.col("name").cast(pl.String))
    first = named.unique(list(_KEYS), keep="first", maintain_order=True)
    return frame_of("launches", calls.join(first, on=list(_KEYS), how="inner", maintain_order="left"))


def _is_call(event: Mapping[str, object]) -> bool:
    return event.get("cat") in CALL


def _launch_facts(event: Mapping[str, object]) -> tuple[object, ...]:
    written = event.get("args")
    args = written if isinstance(written, dict) else {}
    kernel = args.get("kernel")
    sizes = [_three(args.get(what)) for what in ("grid", "block")]
    return (
        int64(event.get("pid")),
        int64(args.get("correlation")),
        characters(str(event.get("name", ""))),
        characters(kernel) if isinstance(kernel, str) and kernel else None,
        *sizes[0],
        *sizes[1],
    )


def _three(value: object) -> tuple[int | None, int | None, int | None]:
    if not isinstance(value, list) or len(value) != len("xyz"):
        return None, None, None
    x, y, z = (int64(each) for each in value)
    return x, y, z


# Hardware counters sampled over time: events of phase C, each with values of several counters of one device.
_COUNTED_DEVICE = re.compile(r"GPU (\d+) Counters$")
_SAMPLE_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"C"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(COUNTER) + ')"')


class _Number(str):
    """A number as the file writes it: times are exact, and counters take what a float holds of it."""

    __slots__ = ()


def samples(expected: int, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `counters` from the file's samples, of which so many are expected, and what is unusable.

    Read from the text, as the scanners keep known arguments only. Counters of CUPTI are in base units.
    """
    if not expected:
        return frame_of("counters"), []
    rows, lost = [], 0
    own_rows: list[tuple[object, ...]] = []
    for event in raw_events(path, _SAMPLE_HEAD, _is_sample, expected=expected, parse_float=_Number):
        args, time_ns = event.get("args"), nanoseconds(event.get("ts"), _NS_PER_US)
        own = str(event.get("name", ""))  # of the event: the counter's, where its argument has none
        values = {characters(n or own): _value(value) for n, value in args.items()} if isinstance(args, dict) else {}
        usable = {name: value for name, value in values.items() if value is not None and time_ns is not None}
        lost += max(len(values), 1) - len(usable)
        process = event.get("pid")
        named = _COUNTED_DEVICE.match(process) if isinstance(process, str) else None
        device = integer(named[1] if named else process)
        if event.get("cat") == OWN_COUNTER:
            unit = event.get("unit")
            own_rows += [(time_ns, own, integer(event.get("device")), v, str(unit or "1")) for v in usable.values()]
        else:
            rows += [(time_ns, name, device, value) for name, value in usable.items()]
    schema = {"time_ns": pl.Int64, "counter": pl.String, "device_id": pl.Int64, "value": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row").join(_counter_units(rows), on="counter", how="left")
    table = table.with_columns(pl.col("value") * pl.col("multiply") / pl.col("divide"))
    table = table.select(*schema, "unit")
    table = pl.concat([table, pl.DataFrame(own_rows, schema={**schema, "unit": pl.String}, orient="row")])
    detail = "samples of hardware counters without a time or a value, left out"
    return frame_of("counters", table), ([Finding(LedgerKind.GPU_METRIC_UNUSABLE, detail, lost)] if lost else [])


def _is_sample(event: dict[str, Any]) -> bool:
    return event.get("ph") == "C" and event.get("cat") in COUNTER


def _value(value: object) -> float | None:
    return None if isinstance(value, str) and not isinstance(value, _Number) else finite(value)


def _counter_units(rows: list[tuple[int | None, str, int | None, float]]) -> pl.DataFrame:
    """Each counter's unit, and by what its values are multiplied and divided."""
    names = sorted({name for _, name, _, _ in rows})
    units = [unit_of(name) for name in names]
    shares = [unit.name == "1" and unit.multiply != unit.divide for unit in units]  # that came as percentages
    return pl.DataFrame(
        {
            "counter": pl.Series(names, dtype=pl.String),
            "unit": pl.Series(
                ["share" if share else unit.name for unit, share in zip(units, shares, strict=True)], dtype=pl.String
            ),
            "multiply": pl.Series([float(unit.multiply) for unit in units], dtype=pl.Float64),
            "divide": pl.Series([float(unit.divide) for unit in units], dtype=pl.Float64),
        }
    )


# CUPTI's counters in a trace: one `cuda_profiler_range` a kernel in the order of launches, tied to what it counted.
_TOOL = "CUPTI in Kineto"
_RANGE_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"' + PROFILER_RANGE[0] + '"')
_LAUNCH_NAME = r"^(cuda|cu|hip)(Module)?Launch(Cooperative)?Kernel"
_UNNAMED = "__missing__"  # what Kineto writes where CUPTI gave no name
_ADVICE = "Profile with CUPTI_PROFILER_ENABLE_PER_KERNEL=YES and no other profiler beside it"


def range_metrics(expected: int, spans: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `metrics` from the ranges, of which so many are expected, and what did not fit `spans`.

    A range has no correlation id: CUPTI made it by running one kernel after the other, so the n-th range is of the
    n-th kernel, or of the n-th launch where kernels were not recorded.
    """
    if not expected:
        return frame_of("metrics"), []
    ranges = sorted(_ranges(path), key=lambda r: r[0])
    targets, what = _targets(spans)
    if len(ranges) != targets.height:
        detail = f"profiler ranges could not be tied to {what}, of which there are {targets.height}; not read"
        return frame_of("metrics"), [Finding(LedgerKind.PROFILER_RANGES_UNMATCHED, detail, expected, advice=_ADVICE)]
    wide = _wide([counters for _, _, counters in ranges], targets)
    other = _count_renamed([name for _, name, _ in ranges], targets) if what == "kernels" else 0
    measured = Measured(wide, {name: unit_of(name).name for name in wide.columns if name != "row"}, _TOOL)
    detail = f"profiler ranges were tied to {what} by their order; their own times are not those of kernels"
    return frame_of("metrics", canonical(measured, ncu_table(wide.columns))), [
        Finding(LedgerKind.PROFILER_RANGES_TIED, detail, len(ranges)),
        Finding(LedgerKind.PROFILER_RANGES_RENAMED, count=other),
        *doubts(wide.with_columns(pl.lit(None, pl.String).alias("compute_capability")), wide.columns),
    ]


def _ranges(path: Path) -> Iterator[tuple[float, str, dict[str, object]]]:
    """Start, name and counters of each range."""
    for event in raw_events(path, _RANGE_HEAD, _is_range):
        args = event.get("args")
        counters = {characters(name): value for name, value in args.items()} if isinstance(args, dict) else {}
        yield finite(event.get("ts")) or 0.0, str(event.get("name", "")), counters


def _is_range(event: dict[str, Any]) -> bool:
    return event.get("cat") in PROFILER_RANGE and event.get("ph") == "X"


def _targets(spans: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The kernels in the order of their launches, else the launches; one call each where the driver's is inside."""
    kernels = spans.filter(pl.col("kind") == Kind.KERNEL)
    calls = spans.filter(pl.col("level") == Level.RUNTIME, pl.col("kind") == Kind.CALL)
    launches = (
        calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCH_NAME))
        .sort("start_ns", -pl.col("duration_ns"), "row")
        .unique(["process_id", "correlation_id"], keep="first", maintain_order=True)
    )
    if kernels.is_empty():
        return launches.select("row", "name"), "kernel launches"
    begun = launches.select("process_id", "correlation_id", pl.col("start_ns").alias("launched_ns"))
    ordered = kernels.join(begun, on=["process_id", "correlation_id"], how="left", maintain_order="left")
    return ordered.sort(pl.coalesce("launched_ns", "start_ns"), "start_ns", "row").select("row", "name"), "kernels"


def _wide(counters: list[dict[str, object]], targets: pl.DataFrame) -> pl.DataFrame:
    """One row a range with its counters in base units."""
    names = sorted({name for one in counters for name in one})
    units = {name: unit_of(name) for name in names}
    columns = {name: [finite(one.get(name)) for one in counters] for name in names}
    wide = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.Float64))
    return wide.with_columns(
        targets["row"], *(pl.col(name) * units[name].multiply / units[name].divide for name in names)
    ).select("row", *names)


def _count_renamed(names: list[str], targets: pl.DataFrame) -> int:
    """How many ranges have a name that is not the kernel's in the same position."""
    return sum(
        name not in {_UNNAMED, "", kernel} for name, kernel in zip(names, targets["name"].cast(pl.String), strict=True)
    )


# Work of accelerators whose vendor is not known here: events of a device's process, whatever their category.

_NAME_HEAD = re.compile(r'\{(?=[^{}]*"name"\s*:\s*"process_(?:name|labels)")')
_DEVICE = re.compile(r"(?i)\b(?:[GNXTMIHLP]PU|MTIA|AIU|Gaudi|Spyre|Ascend Hardware|accelerator|device)\b[^\d]*(\d*)")
_COMMUNICATION = re.compile(r"(?i)^(?:HCCL|Communication|oneCCL)\b")
_RESTATING = re.compile(r"(?i)^Overlap Analysis$")  # torch_npu's sums of what stands in the device's streams
_CALLS = re.compile(r"^CANN$")  # the driver's calls, by thread of the program's process
_READ_ELSEWHERE = (
    *DEVICE,
    *OPERATOR,
    *ANNOTATION,
    *SYNC,
    *PYTHON,
    *OVERHEAD,
    *LIBRARY,
    *PROFILER_RANGE,
    *LEFT_OUT,
)
# What an event of a device is, by its name: a mark or a wait in the stream occupies no unit of the device.
_WAIT = (
    r"(?i)^(?:(?:event|notify|stream|task)[ _]?(?:wait|record|reset)|synchronize|write value|profiling_|place_?holder)"
)
_FILL = r"(?i)memset|memory[ _]?set"
_COPY = r"(?i)memcpy|memory[ _]?copy|\bdma[ _]?request|\bSDMA\b|\bRDMA\b"
# Steps of a collective operation that has an event of its own, in the process of communication: by name alone.
_PARTS = r"(?i)^(?:SDMA|RDMA|UB|CCU|notify[ _]?(?:wait|record)|write value|memcpy|reduce[ _]?inline)$"


@dataclass(frozen=True, slots=True)
class Tracks:
    """What the processes of a file are, by the number that events have as `pid`."""

    devices: Mapping[int, int]  # number of the device
    communication: Mapping[int, int]  # of collective operations: likewise
    restating: frozenset[int]
    calls: frozenset[int]
    program: int | None  # the process that the calls are of
    labels: Mapping[int, str]


def unknown_work(document: Document) -> pl.Expr | None:
    """Which events are complete and of no category that is known; None: nothing here may be of an accelerator."""
    unknown = (pl.col("ph") == "X") & ~pl.col("cat").is_in([*_READ_ELSEWHERE, *CALL]).fill_null(value=False)
    concerned = unknown | _is_other_call() | pl.col("cat").is_in(LAUNCH_FLOW).fill_null(value=False)
    return unknown if document.events.select(concerned.any()).item() else None


def _is_other_call() -> pl.Expr:
    """Calls of other vendors' runtimes, which some of them also write in the device's process, as its waits."""
    return (pl.col("ph") == "X") & pl.col("cat").is_in(OTHER_CALL).fill_null(value=False)


def tracks(path: Path) -> Tracks:
    """The processes as the file names them, found in its text, as the scanners keep no names of processes."""
    names: dict[int, dict[str, str]] = {}
    for event in raw_events(path, _NAME_HEAD, lambda e: e.get("ph") == "M"):
        args, process = event.get("args"), integer(event.get("pid"))
        if process is not None and isinstance(args, dict):
            names.setdefault(process, {}).update(
                (key, value) for key, value in args.items() if key in ("name", "labels") and isinstance(value, str)
            )
    name_of = {process: each.get("name", "") for process, each in names.items()}
    label_of = {process: each.get("labels", "") for process, each in names.items()}
    numbered = ((process, _device_number(name_of[process], label_of[process])) for process in names)
    numbers = {process: number for process, number in numbered if number is not None}
    communication = {p: number for p, number in numbers.items() if _COMMUNICATION.match(name_of[p])}
    restating = {process for process in names if _RESTATING.match(name_of[process])}
    calls = {process for process in names if _CALLS.match(name_of[process])}
    programs = [p for p in names if p not in calls and label_of[p] == "CPU" and name_of[p]]
    return Tracks(
        {p: number for p, number in numbers.items() if p not in communication and p not in restating},
        communication,
        frozenset(restating),
        frozenset(calls),
        programs[0] if len(programs) == 1 else None,
        {process: name_of[process] or label_of[process] for process in names},
    )


def _device_number(name: str, label: str) -> int | None:
    """The number of the device that a process is, 0 where none is said; None: it is no device."""
    if label == "CPU":
        return None
    match = _DEVICE.search(label) or _DEVICE.search(name)
    return None if match is None else int(match[1] or 0)


def with_accelerators(document: Document, unknown: pl.Expr, of: Tracks) -> tuple[Document, list[Finding]]:
    """The document with such events under the categories by which Kineto writes the same of a GPU."""
    events = document.events.with_row_index("event").with_columns(pl.col("event").cast(pl.Int64))
    pid, name = pl.col("pid"), pl.col("name").cast(pl.String)
    on_device = (unknown | _is_other_call()) & pid.is_in(list(of.devices))
    collective = unknown & pid.is_in(list(of.communication))
    called = unknown & pid.is_in(list(of.calls))
    part = (on_device & pl.lit(bool(of.communication)) & name.str.contains(_PARTS)) | (
        collective & name.str.contains(_PARTS)
    )
    restated = (unknown & pid.is_in(list(of.restating))) | part
    waits = on_device & (_is_other_call() | name.str.contains(_WAIT))
    category = (
        pl.when(restated)
        .then(pl.lit(RESTATED))
        .when(waits)
        .then(pl.lit(SYNC[0]))
        .when(on_device & name.str.contains(_FILL))
        .then(pl.lit("gpu_memset"))
        .when(on_device & name.str.contains(_COPY))
        .then(pl.lit("gpu_memcpy"))
        .when(on_device | collective)
        .then(pl.lit("kernel"))
        .when(called)
        .then(pl.lit("cuda_runtime"))
    )
    read = events.with_columns(category.alias("read_as"), collective.alias("collective")).filter(
        pl.col("read_as").is_not_null()
    )
    process = pl.when(called & pl.lit(of.program is not None)).then(pl.lit(of.program, pl.Int64)).otherwise(pid)
    changed = events.with_columns(
        pl.coalesce(category, pl.col("cat").cast(pl.String)).cast(pl.Categorical).alias("cat"), process.alias("pid")
    ).drop("event")
    work = read.filter(~pl.col("read_as").is_in([RESTATED, "cuda_runtime"]))
    details = _with_streams(document.details, work, of)
    return replace(document, events=changed, details=details), _findings_on(read, of)


def _with_streams(details: pl.DataFrame, work: pl.DataFrame, of: Tracks) -> pl.DataFrame:
    """Details with device and stream of the work: as its arguments say, else by process and thread.

    A collective operation runs on several streams: it has none.
    """
    numbers = {**of.devices, **of.communication}
    where = work.select(
        "event",
        pl.col("pid").replace_strict(numbers, default=None, return_dtype=pl.Int64).alias("track_device"),
        pl.when(~pl.col("collective")).then(pl.col("tid")).alias("track_stream"),
    )
    joined = details.join(where, on="event", how="full", coalesce=True, maintain_order="left_right")
    filled = (pl.coalesce(name, f"track_{name}").alias(name) for name in ("device", "stream"))
    return joined.with_columns(filled).select(details.columns).sort("event")


def _findings_on(read: pl.DataFrame, of: Tracks) -> list[Finding]:
    """What was taken for work, and for waits: a finding each and process."""
    counts = read.group_by("pid").agg(
        pl.col("read_as").is_in(["kernel", "gpu_memcpy", "gpu_memset"]).sum().alias("work"),
        (pl.col("read_as") == SYNC[0]).sum().alias("waits"),
    )
    findings = []
    for process, work, waits in counts.sort("pid").iter_rows():
        label = of.labels[process]
        why = f"of the process {label!r}, which by its name is a device's, of a vendor that XSP does not know"
        findings += [
            Finding(LedgerKind.ACCELERATOR_READ, f"events {why}, were read as device work", work),
            Finding(LedgerKind.ACCELERATOR_READ, f"waits and marks {why}, were read as no device time", waits),
        ]
    return findings


# Which operator issued work without a recorded launch: flows from its start to that of the work.
LAUNCH_FLOWS: Mapping[str, Mapping[str, pl.DataType]] = {
    "begins": dict.fromkeys(("flow_id", "process_id", "thread_id", "start_ns"), pl.Int64()),
    "ends": dict.fromkeys(("flow_id", "device_id", "stream_id", "start_ns"), pl.Int64()),
}


def launch_flows(document: Document, of: Tracks) -> Mapping[str, pl.DataFrame]:
    """Both ends of the flows from operators to devices' work."""
    flows = document.events.filter(pl.col("cat").is_in(LAUNCH_FLOW), pl.col("flow_id").is_not_null())
    numbers = {**of.devices, **of.communication}
    ends = flows.filter(pl.col("ph") == "f").select(
        "flow_id",
        pl.col("pid").replace_strict(numbers, default=None, return_dtype=pl.Int64).alias("device_id"),
        pl.when(~pl.col("pid").is_in(list(of.communication))).then(pl.col("tid")).alias("stream_id"),
        pl.col("ts_ns").alias("start_ns"),
    )
    begins = flows.filter(pl.col("ph") == "s").select(
        "flow_id",
        pl.col("pid").alias("process_id"),
        pl.col("tid").alias("thread_id"),
        pl.col("ts_ns").alias("start_ns"),
    )
    return {"begins": begins, "ends": ends}


def with_issuers(spans: pl.DataFrame, flows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The spans with `issued_by_row` of work that a flow ties to the operator that starts where the flow does."""
    host, device = ["process_id", "thread_id", "start_ns"], ["device_id", "stream_id", "start_ns"]
    operators = spans.filter(pl.col("level") == str(Level.OPERATOR)).select(*host, pl.col("row").alias("issuer"))
    issued = (
        flows["begins"]
        .join(operators.unique(host, keep="first", maintain_order=True), on=host, how="inner")
        .join(flows["ends"], on="flow_id", how="inner", suffix="_end")
        .select("device_id", "stream_id", pl.col("start_ns_end").alias("start_ns"), "issuer")
        .unique(device, keep="first", maintain_order=True)
    )
    work = spans.filter(pl.col("level") == str(Level.KERNEL)).select("row", *device)
    tied = work.join(issued, on=device, how="inner", nulls_equal=True).select("row", "issuer")
    joined = spans.join(tied, on="row", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("issued_by_row", "issuer").alias("issued_by_row")).drop("issuer")
