"""Work of accelerators whose vendor is not known here: events of a device's process, whatever their category."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.torch_profiler import categories as cat
from xsp_ingest.formats.torch_profiler.raw_events import raw_events
from xsp_ingest.formats.torch_profiler.scan_plain import integer
from xsp_model import Finding, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document

__all__ = ["LAUNCH_FLOWS", "Tracks", "launch_flows", "tracks", "unknown_work", "with_accelerators", "with_issuers"]

_NAME_HEAD = re.compile(r'\{(?=[^{}]*"name"\s*:\s*"process_(?:name|labels)")')
_DEVICE = re.compile(r"(?i)\b(?:[GNXTMIHLP]PU|MTIA|AIU|Gaudi|Spyre|Ascend Hardware|accelerator|device)\b[^\d]*(\d*)")
_COMMUNICATION = re.compile(r"(?i)^(?:HCCL|Communication|oneCCL)\b")
_RESTATING = re.compile(r"(?i)^Overlap Analysis$")  # torch_npu's sums of what stands in the device's streams
_CALLS = re.compile(r"^CANN$")  # the driver's calls, by thread of the program's process
_READ_ELSEWHERE = (
    *cat.DEVICE,
    *cat.OPERATOR,
    *cat.ANNOTATION,
    *cat.SYNC,
    *cat.PYTHON,
    *cat.OVERHEAD,
    *cat.PROFILER_RANGE,
    *cat.LEFT_OUT,
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
    unknown = (pl.col("ph") == "X") & ~pl.col("cat").is_in([*_READ_ELSEWHERE, *cat.CALL]).fill_null(value=False)
    concerned = unknown | _is_call() | pl.col("cat").is_in(cat.LAUNCH_FLOW).fill_null(value=False)
    return unknown if document.events.select(concerned.any()).item() else None


def _is_call() -> pl.Expr:
    """Calls of other vendors' runtimes, which some of them also write in the device's process, as its waits."""
    return (pl.col("ph") == "X") & pl.col("cat").is_in(cat.OTHER_CALL).fill_null(value=False)


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
    on_device = (unknown | _is_call()) & pid.is_in(list(of.devices))
    collective = unknown & pid.is_in(list(of.communication))
    called = unknown & pid.is_in(list(of.calls))
    part = (on_device & pl.lit(bool(of.communication)) & name.str.contains(_PARTS)) | (
        collective & name.str.contains(_PARTS)
    )
    restated = (unknown & pid.is_in(list(of.restating))) | part
    waits = on_device & (_is_call() | name.str.contains(_WAIT))
    category = (
        pl.when(restated)
        .then(pl.lit(cat.RESTATED))
        .when(waits)
        .then(pl.lit(cat.SYNC[0]))
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
    work = read.filter(~pl.col("read_as").is_in([cat.RESTATED, "cuda_runtime"]))
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
        (pl.col("read_as") == cat.SYNC[0]).sum().alias("waits"),
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
    flows = document.events.filter(pl.col("cat").is_in(cat.LAUNCH_FLOW), pl.col("flow_id").is_not_null())
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
