"""What AMD's older tools wrote: rocprof (the first) as JSON, database and CSV, rocmProfileData as JSON and database.

Facts: RPD's tables `rocpd_python/rocpd/schema_data/tableSchema.cmd` and its export `tools/rpd2tracing.py` of
github.com/ROCm/rocmProfileData; rocprof's JSON from a published file of it. Numbers are texts in both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import Probe
from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.sqlite import Database, table_names
from xsp_ingest.files.values import integer, text
from xsp_ingest.formats.rocprofv3.csv_records import read_table
from xsp_ingest.formats.rocprofv3.records import API, COPY, COUNT, KERNEL, Records, plain_kernel_name
from xsp_ingest.trace_events import read_events
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.trace_events import TraceEvent

__all__ = ["from_dispatches", "from_events", "from_rocprof", "from_rpd"]

_RPD, _ROCPROF = "rocmProfileData (RPD)", "rocprof"
_GPU = re.compile(r"GPU(\d{1,6})")
_COPIES = re.compile(r"(?i)^Copy(?:Host|Device)To(?:Host|Device)$")
_REPEATS = re.compile(r"^UserMarker frame: ")
_CALL = re.compile(r"^_*(?:hip|hsa)")
_MARKER, _HIP, _OWN = "MARKER_API", "HIP_API", "RPD_API"
_FLOW_NS = 2_000  # RPD draws an arrow from so long before the end of a call, where its work has not begun by then
_ROUNDED_NS = 1_000


@dataclass
class _Events:
    """The rows of a file's events, in its order, and where its arrows begin and end."""

    gpus: dict[int, int] = field(default_factory=dict)
    timed: list[dict[str, object]] = field(default_factory=list)
    flows: dict[str, list[tuple[int | None, int | None, int, str]]] = field(default_factory=lambda: {"s": [], "f": []})
    copies: set[int] = field(default_factory=set)
    is_rocprof: bool = False
    others: int = 0

    def take(self, event: TraceEvent) -> None:
        lane = integer(event.pid), integer(event.tid)
        if event.ph == "M" and event.name == "process_name" and lane[0] is not None:
            name = text(event.arguments.get("name")) or ""
            if match := _GPU.fullmatch(name):
                self.gpus[lane[0]] = int(match[1])
            elif name == "COPY":
                self.copies.add(lane[0])
        elif event.ph == "X":
            self._take_timed(event, *lane)
        elif event.ph in ("s", "f", "t") and event.start_ns is not None:
            self.flows["s" if event.ph == "s" else "f"].append((*lane, event.start_ns, str(event.id)))

    def _take_timed(self, event: TraceEvent, process: int | None, thread: int | None) -> None:
        args, start, duration = event.arguments, event.start_ns, event.duration_ns
        begin, end = integer(args.get("BeginNs")), integer(args.get("EndNs"))
        self.is_rocprof |= begin is not None
        described = text(args.get("desc")) or ""
        if _REPEATS.match(described) or "kernels" in args:
            self.others += 1
            return
        self.timed.append(
            {
                "lane": process,
                "lane_thread": thread,
                "at": start,  # as arrows have it
                "process": integer(args.get("pid")) if begin is not None else process,
                "thread": integer(args.get("tid")) if begin is not None else thread,
                "start": start if begin is None else begin,
                "end": end if begin is not None else None if start is None else start + (duration or 0),
                "device": integer(args.get("dev-id")),
                "stream": integer(args.get("stream-id")) if begin is not None else thread,
                "name": text(event.name),
                "what": described,
            }
        )


_I, _S = pl.Int64(), pl.String()
_TIMED: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("lane", "lane_thread", "at", "process", "thread", "start", "end", "device", "stream"), _I),
    **dict.fromkeys(("name", "what"), _S),
}
_FLOW: Mapping[str, pl.DataType] = {"lane": _I, "lane_thread": _I, "at": _I, "flow": _S}


def from_events(path: Path) -> Records:
    """The records of RPD's or rocprof's JSON; XspError where it is cut off or no JSON."""
    seen, events = Entries(), _Events()
    is_list = Probe(path).text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    for batch in read_events(path, seen, is_list=is_list):
        for event in batch:
            events.take(event)
    rows = pl.DataFrame(events.timed, schema=dict(_TIMED), orient="row")
    on_device = pl.col("lane").is_in([*events.gpus, *events.copies])
    calls = rows.filter(~on_device).with_row_index("correlation", offset=1).with_columns(pl.col("correlation").cast(_I))
    work = rows.filter(on_device).with_columns(
        pl.coalesce("device", pl.col("lane").replace_strict(events.gpus, default=None, return_dtype=_I)).alias("agent")
    )
    work = _with_calls(work, calls, events)
    is_marker = (pl.col("name") == pl.col("what")) & (pl.col("what") != "")
    domain = (
        pl.when(pl.col("name").str.contains(_CALL.pattern))
        .then(pl.lit(_HIP))
        .when(is_marker)
        .then(pl.lit(_MARKER))
        .otherwise(pl.lit(_HIP if events.is_rocprof else _OWN))
    )
    return _records(
        work.with_columns(pl.when(pl.col("what") == "").then("name").otherwise("what").alias("what"), bytes=None),
        calls.with_columns(domain.alias("domain")).select(*API),
        _ROCPROF if events.is_rocprof else _RPD,
        Finding(LedgerKind.EVENTS_LEFT_OUT, "frames of markers and graphs around device work repeat it", events.others),
    )


def _with_calls(work: pl.DataFrame, calls: pl.DataFrame, events: _Events) -> pl.DataFrame:
    """The work with the `correlation` and `process` of the call that an arrow ties it to."""
    begun, ended = (pl.DataFrame(events.flows[ph], schema=dict(_FLOW), orient="row") for ph in "sf")
    lane = ["lane", "lane_thread"]
    ends = calls.filter(pl.col("name").str.contains(_CALL.pattern)).select(
        *lane, "start", "end", "correlation", "process"
    )
    ends = ends.drop_nulls(["start", "end"]).sort("end")
    arrows = begun.drop_nulls(lane).sort("at")
    around = arrows.join_asof(ends, left_on="at", right_on="end", by=lane, strategy="forward", check_sortedness=False)
    if not events.is_rocprof:
        around = around.select("at", "flow", *lane, pl.struct("correlation", "process").alias("around"))
        near = around.with_columns(pl.col("at") + _FLOW_NS).join_asof(
            ends,
            left_on="at",
            right_on="end",
            by=lane,
            strategy="nearest",
            tolerance=_ROUNDED_NS,
            check_sortedness=False,
        )
        around = near.select(
            "flow",
            *(
                pl.coalesce(name, pl.col("around").struct.field(name)).alias(name)
                for name in ("correlation", "process")
            ),
        )
    tied = ended.join(
        around.select("flow", "correlation", issuer="process"), on="flow", how="left", maintain_order="left"
    )
    # The work of one start on one queue is told apart by the order of the file alone.
    same = [*lane, "at"]
    nth = pl.int_range(pl.len()).over(same).alias("nth")
    work = work.with_columns(nth).join(
        tied.with_columns(nth).drop("flow"), on=[*same, "nth"], how="left", maintain_order="left", nulls_equal=True
    )
    hosts = calls["process"].drop_nulls().unique()
    own = pl.col("process") if events.is_rocprof else pl.lit(hosts[0] if len(hosts) == 1 else None, _I)
    return work.with_columns(pl.coalesce("issuer", own).alias("process"), pl.lit(None, _I).alias("thread"))


def _records(work: pl.DataFrame, calls: pl.DataFrame, tool: str, *findings: Finding) -> Records:
    """`work` with `agent`, `name` and `what` it is, in any case: a copy's direction, or else a kernel."""
    is_copy = pl.col("what").str.contains(_COPIES.pattern).fill_null(value=False)
    nothing = {name: pl.lit(None, kind).alias(name) for name, kind in KERNEL.items() if name not in work.columns}
    kernels = work.filter(~is_copy).with_columns(
        *nothing.values(), pl.col("name").map_elements(plain_kernel_name, return_dtype=_S)
    )
    copies = work.filter(is_copy).rename({"what": "direction"}).with_columns(pl.col("bytes").cast(_I))
    return Records(kernels.select(*KERNEL), copies.select(*COPY), calls, findings=findings, tool=tool)


# RPD's database: calls, device work, and which call issued which work; names by the ids of their texts.


def from_rpd(path: Path) -> Records:
    """The records of RPD's database; XspError where it is damaged."""
    database = Database(path, table_names(path))
    strings = _texts(database, "rocpd_string")
    arguments = _texts(database, "rocpd_ustring") if "rocpd_ustring" in table_names(path) else strings
    calls = database.integers("rocpd_api", ("id", "pid", "tid", "start", "end", "apiName_id", "args_id"))
    calls = calls.join(strings.rename({"id": "apiName_id", "string": "called"}), on="apiName_id", how="left")
    calls = calls.join(arguments.rename({"id": "args_id", "string": "says"}), on="args_id", how="left").sort("rowid")
    is_marker = pl.col("called") == "UserMarker"
    is_call = pl.col("called").str.contains(_CALL.pattern)
    domain = pl.when(is_marker).then(pl.lit(_MARKER)).when(is_call).then(pl.lit(_HIP)).otherwise(pl.lit(_OWN))
    calls = calls.select(
        pl.col("pid").alias("process"),
        pl.col("tid").alias("thread"),
        pl.col("id").alias("correlation"),
        "start",
        "end",
        domain.alias("domain"),
        pl.when(is_marker).then("says").otherwise("called").alias("name"),
    )
    work = database.integers("rocpd_op", ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"))
    issued = database.integers("rocpd_api_ops", ("op_id", "api_id")).drop("rowid")
    sizes = database.integers("rocpd_copyapi", ("api_ptr_id", "size")) if "rocpd_copyapi" in table_names(path) else None
    work = (
        work.join(strings.rename({"id": "opType_id", "string": "what"}), on="opType_id", how="left")
        .join(strings.rename({"id": "description_id", "string": "name"}), on="description_id", how="left")
        .join(issued.unique("op_id", keep="first"), left_on="id", right_on="op_id", how="left")
        .join(calls.select(pl.col("correlation").alias("api_id"), "process"), on="api_id", how="left")
        .sort("rowid")
    )
    bytes_of = pl.DataFrame(schema={"api_id": _I, "bytes": _I}) if sizes is None else sizes.select(
        pl.col("api_ptr_id").alias("api_id"), pl.col("size").alias("bytes")
    )  # fmt: skip
    work = work.join(bytes_of.unique("api_id", keep="first"), on="api_id", how="left", maintain_order="left")
    shown = pl.when(pl.col("name").fill_null("") == "").then("what").otherwise("name").alias("name")
    placed = work.select(
        "process", "start", "end", "what", "bytes", shown, pl.col("api_id").alias("correlation"),
        pl.lit(None, _I).alias("thread"), pl.col("gpuId").alias("agent"), pl.col("queueId").alias("stream"),
    )  # fmt: skip
    return _records(placed, calls.select(*API), _RPD)


def _texts(database: Database, table: str) -> pl.DataFrame:
    ids = database.integers(table, ("id",)).drop("rowid")
    return ids.with_columns(database.texts(table, "string").alias("string")).unique("id", keep="first")


# The first rocprof's database, and its CSV of dispatches, as rocprofv2 writes it too. Grids are products: left out.

_TIMED_ROWS = ("BeginNs", "EndNs", "pid", "tid", "Index", "dev-id", "queue-id", "stream-id")
_EARLY_NS = 100_000
_SIZE = r"sizeBytes\((\d{1,18})\)"


def from_rocprof(path: Path) -> Records:
    """The records of rocprof's database, where work has the number of its call; XspError where it is damaged."""
    database = Database(path, table_names(path))
    calls = _rows_of(database, "HIP", "args").with_columns(domain=pl.lit(_HIP))
    others = [
        _rows_of(database, table).with_columns(pl.lit(None, _I).alias("correlation"), domain=pl.lit(domain))
        for table, domain in (("HSA", "HSA_API"), ("rocTX", _MARKER))
    ]
    sizes = calls.select("correlation", pl.col("args").str.extract(_SIZE).cast(_I).alias("bytes"))
    work = pl.concat([_rows_of(database, table) for table in ("OPS", "COPY")])
    sizes = sizes.with_columns(calls["start"].alias("called")).unique("correlation", keep="first")
    work = work.join(sizes, on="correlation", how="left", maintain_order="left")
    early = (pl.col("called") - pl.col("start") > _EARLY_NS).fill_null(value=False)  # clocks of device and host differ
    doubt = Finding(LedgerKind.START_BEFORE_LAUNCH, count=work.select(early.sum()).item())
    work = work.with_columns(pl.when(~early).then("correlation").alias("correlation"))
    every = pl.concat([calls, *others], how="diagonal").select(*API)
    return _records(work.with_columns(pl.lit(None, _I).alias("thread"), what="name"), every, _ROCPROF, doubt)


def _rows_of(database: Database, table: str, *texts: str) -> pl.DataFrame:
    rows = database.integers(table, _TIMED_ROWS)
    names = [database.texts(table, column).alias(column) for column in ("Name", *texts)]
    return rows.with_columns(names).select(
        pl.col("pid").alias("process"), pl.col("tid").alias("thread"), pl.col("Index").alias("correlation"),
        pl.col("BeginNs").alias("start"), pl.col("EndNs").alias("end"), pl.col("dev-id").alias("agent"),
        pl.coalesce("stream-id", "queue-id").alias("stream"), pl.col("Name").alias("name"), *texts,
    )  # fmt: skip


_DISPATCH = {
    "dispatch": ("Index", "Dispatch_ID"),
    "name": ("KernelName", "Kernel_Name"),
    "agent": ("gpu-id", "GPU_ID"),
    "stream": ("queue-id", "Queue_ID"),
    "process": ("pid", "PID"),
    "start": ("BeginNs", "Start_Timestamp"),
    "end": ("EndNs", "End_Timestamp"),
    "registers": ("vgpr", "arch_vgpr", "Arch_VGPR", "VGPR"),
    "accumulation_registers": ("accum_vgpr", "Accum_VGPR", "ACCUM_VGPR"),
    "shared": ("lds", "LDS_Per_Workgroup", "LDS"),
}
_NO_COUNTER = re.compile(
    r"(?i)(index|queue.index|tid|gr[di]d?(_size)?|wgr|workgroup_size|scr|scratch_per_workitem|sgpr|fbar|sig|obj|wave_size"
    r"|dispatchns|completens|durationns|correlation_id)"
)


def from_dispatches(path: Path) -> Records:
    """The kernels of such a CSV, which has no calls and no copies, and their counters; XspError where it is damaged."""
    rows = read_table(path)
    column_of = {ours: next((one for one in names if one in rows.columns), None) for ours, names in _DISPATCH.items()}
    cells = {
        ours: pl.lit(None, KERNEL[ours])
        if theirs is None
        else pl.col(theirs).str.strip_chars().cast(KERNEL[ours], strict=False)
        for ours, theirs in column_of.items()
    }
    kernels = rows.select(cell.alias(ours) for ours, cell in cells.items())
    nothing = (pl.lit(None, kind).alias(name) for name, kind in KERNEL.items() if name not in _DISPATCH)
    counters = [name for name in rows.columns if name not in column_of.values() and not _NO_COUNTER.fullmatch(name)]
    counted = rows.select(cells["process"].alias("process"), cells["dispatch"].alias("dispatch"), *counters)
    counts = counted.unpivot(counters, index=["process", "dispatch"], variable_name="counter").with_columns(
        pl.col("value").cast(pl.Float64, strict=False)
    )
    shown = pl.col("name").map_elements(plain_kernel_name, return_dtype=_S)
    counts = counts.select(*COUNT).drop_nulls("value")
    return Records(kernels.with_columns(*nothing, shown).select(*KERNEL), counts=counts, tool=_ROCPROF)
