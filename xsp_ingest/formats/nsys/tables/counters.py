"""Time series: GPU metrics, device memory in use, and power, temperature and clocks among the generic events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.values import Among
from xsp_ingest.formats.nsys.tables.host import closed_duration
from xsp_ingest.formats.nsys.tables.interface import ExportRows, process_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["counters", "sensors"]

_GPU = 0xFF  # of a typeId: which GPU
_MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_FREED = 1
_DEVICE_MEMORY = 2
_SERIES: Mapping[int, str] = {  # by CUPTI's kind of memory
    1: "pinned_bytes",
    2: "allocated_bytes",
    4: "managed_bytes",
    5: "static_bytes",
    6: "managed_bytes",
}
_HOST_FAULTS, _DEVICE_FAULTS = (f"CUDA_UM_{which}_PAGE_FAULT_EVENTS" for which in ("CPU", "GPU"))
_UNIT = re.compile(r"^(?P<name>.*?)\s*\[(?P<unit>[^\[\]]*)\]\s*$")


def counters(export: Tables) -> Iterator[ExportRows]:
    """One part for each kind of samples that the export has."""
    yield _gpu_metrics(export)
    yield _memory(export)
    yield _host_faults(export)
    yield _device_faults(export)


def _gpu_metrics(export: Tables) -> ExportRows:
    """Samples as nsys took them; percentages are shares, other units stay as the metric's name has them."""
    which = {"typeId": "type_id", "metricId": "metric_id"}
    samples = export.integers("GPU_METRICS", ("timestamp", *which)).rename(which)
    if samples.is_empty():
        return ExportRows({})
    samples = samples.with_columns(export.numbers("GPU_METRICS", "value").alias("value"))
    metrics = export.integers("TARGET_INFO_GPU_METRICS", tuple(which)).rename(which)
    names = export.texts("TARGET_INFO_GPU_METRICS", "metricName")
    named = metrics.with_columns(*_read(names)).unique(["type_id", "metric_id"], keep="first", maintain_order=True)
    joined = samples.join(named, on=["type_id", "metric_id"], how="left", maintain_order="left")
    lost = joined.filter(pl.any_horizontal(pl.col("timestamp", "value", "counter").is_null())).height
    sound = joined.drop_nulls(["timestamp", "value", "counter"]).with_columns((pl.col("type_id") & _GPU).alias("gpu"))
    rows = _ordinals(export, sound).select(
        pl.col("timestamp").alias("time_ns"),
        "counter",
        "device_id",
        (pl.col("value") * pl.col("scale")).alias("value"),
        "unit",
    )
    detail = "Samples of GPU metrics without time, value or name, left out"
    return ExportRows({"counters": rows}, (Finding(LedgerKind.GPU_METRIC_UNUSABLE, detail, lost),) if lost else ())


def _read(names: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Counter, unit and factor of each metric's name, as `SMs Active [Throughput %]`."""
    matches = [_UNIT.match(name or "") for name in names]
    titles = [match["name"] if match else name for match, name in zip(matches, names, strict=True)]
    units = [match["unit"].strip() if match else "" for match in matches]
    shares = [unit.endswith("%") for unit in units]
    return (
        pl.Series("counter", titles, dtype=pl.String),
        pl.Series("unit", ["share" if s else u or "1" for s, u in zip(shares, units, strict=True)], dtype=pl.String),
        pl.Series("scale", [0.01 if s else 1.0 for s in shares], dtype=pl.Float64),
    )


def _ordinals(export: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `device_id`: the number programs know the GPU by where all of them agree, else the GPU's own."""
    seen = export.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")).drop_nulls(["gpuId", "cudaId"])
    agreed = seen.group_by("gpuId").agg(pl.col("cudaId").unique()).filter(pl.col("cudaId").list.len() == 1)
    one = agreed.select(pl.col("gpuId").alias("gpu"), pl.col("cudaId").list.first().alias("ordinal"))
    joined = rows.join(one, on="gpu", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("ordinal", "gpu").alias("device_id"))


def _memory(export: Tables) -> ExportRows:
    """Bytes in use of each device and kind of memory after each allocation and release that was recorded."""
    columns = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
    rows = export.integers(_MEMORY, columns)
    if rows.is_empty():
        return ExportRows({})
    kind = pl.col("memKind").replace_strict(_SERIES, default="other_bytes", return_dtype=pl.String)
    usable = rows.drop_nulls(["start", "bytes", "memoryOperationType"]).filter(pl.col("bytes") >= 0)
    change = pl.when(pl.col("memoryOperationType") == _FREED).then(-pl.col("bytes")).otherwise(pl.col("bytes"))
    changes = usable.select(
        pl.col("start").alias("time_ns"),
        kind.alias("counter"),
        pl.col("deviceId").alias("device_id"),
        change.cast(pl.Float64).alias("change"),
    ).sort("time_ns", maintain_order=True)
    series = changes.with_columns(pl.col("change").cum_sum().over("counter", "device_id").alias("value"))
    low = pl.min_horizontal(pl.col("value").min().over("counter", "device_id"), 0.0)
    # What is released but was never seen allocated was in use when the capture began.
    lifted = series.with_columns((pl.col("value") - low).alias("value"), pl.lit("byte").alias("unit"))
    before = series.group_by("counter", "device_id").agg(pl.col("value").min()).filter(pl.col("value") < 0).height
    tables = {"counters": lifted.drop("change"), "allocations": _blocks(usable, change)}
    return ExportRows(tables, _doubts(rows.height - usable.height, before))


def _blocks(usable: pl.DataFrame, change: pl.Expr) -> pl.DataFrame:
    """The blocks of device memory that the driver gave out and took back."""
    return usable.filter(pl.col("memKind") == _DEVICE_MEMORY).select(
        pl.col("start").alias("time_ns"),
        process_of(pl.col("globalPid")).alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        change.alias("bytes"),
        pl.when(pl.col("address") != 0).then(pl.col("address")).alias("address"),
    )


def _host_faults(export: Tables) -> ExportRows:
    rows = export.integers(_HOST_FAULTS, ("start", "globalPid", "address", "CpuInstruction"))
    instructions = export.strings.of(rows["CpuInstruction"]).cast(pl.String).alias("instruction")
    return _faults(rows.with_columns(instructions, count=pl.lit(1, pl.Int64)), _HOST_FAULTS)


def _device_faults(export: Tables) -> ExportRows:
    columns = ("start", "end", "globalPid", "deviceId", "address", "numberOfPageFaults")
    rows = export.integers(_DEVICE_FAULTS, columns).rename({"deviceId": "device_id", "numberOfPageFaults": "count"})
    return _faults(rows.with_columns(closed_duration()), _DEVICE_FAULTS)


def _faults(rows: pl.DataFrame, table: str) -> ExportRows:
    usable = rows.drop_nulls(["start", "count"])
    faults = usable.with_columns(pl.col("start").alias("time_ns"), process_of(pl.col("globalPid")).alias("process_id"))
    lost = Finding(LedgerKind.MISSING_TIME, f"Rows of {table} without time or number", rows.height - usable.height)
    return ExportRows({"page_faults": faults}, (lost,) if lost.count else ())


def _doubts(unusable: int, before: int) -> tuple[Finding, ...]:
    findings = (
        Finding(
            LedgerKind.UNUSABLE_MEMORY_EVENT, f"Rows of {_MEMORY} without time, size or operation, left out", unusable
        ),
        Finding(LedgerKind.MEMORY_IN_USE_BEFORE, count=before),
    )
    return tuple(f for f in findings if f.count)


# Power, temperature and clocks of devices over time: samples that Nsight keeps among its generic events.
#
# Their fields are named by the plugin that took them (`nvml_metrics`: `Power`, `Temperature`). Older exports have an
# event as JSON in `GENERIC_EVENTS.data`; newer ones a row a field in `GENERIC_EVENT_DATA`, its name in
# `GENERIC_EVENT_TYPE_FIELDS`. Generic events of other plugins, of storage or the network, are counted by the type's
# name.

_EVENTS, _TYPES, _FIELDS, _DATA = (f"GENERIC_EVENT{what}" for what in ("S", "_TYPES", "_TYPE_FIELDS", "_DATA"))
_SOUND = r"^[\w .:-]{1,60}$"  # no path and no address


def other_events(export: Tables, taken: Collection[int]) -> Iterator[Finding]:
    """One finding for each name of a type of events that is neither among those taken nor one of GPU metrics."""
    metrics = export.integers("TARGET_INFO_GPU_METRICS", ("typeId",))["typeId"].to_list()
    types = export.integers(_EVENTS, ("typeId",)).filter(~pl.col("typeId").is_in([*taken, *metrics]))
    named = types.join(_names(export), on="typeId", how="left").group_by("name").len().sort("name", nulls_last=True)
    for name, count in named.iter_rows():
        what = "an unnamed type" if name is None else f"the type {name}"
        yield Finding(LedgerKind.TABLE_NOT_READ, f"Events of {what} in {_EVENTS} were not read", count)


def _names(export: Tables) -> pl.DataFrame:
    types = export.integers(_TYPES, ("typeId", "nameId"))
    own = export.strings.of(types["nameId"]).cast(pl.String)
    described = pl.Series([_name(text) for text in export.texts(_TYPES, "data")], dtype=pl.String)
    both = types.with_columns(own.alias("own"), described.alias("described"))
    sound = (pl.when(pl.col(each).str.contains(_SOUND)).then(each) for each in ("own", "described"))
    return both.select("typeId", pl.coalesce(sound).alias("name")).unique("typeId", keep="first", maintain_order=True)


def _name(text: str | None) -> str | None:
    """What a description (JSON, in older exports) calls the type."""
    try:
        name = msgspec.json.decode(text or "", type=dict[str, Any]).get("Name")
    except (msgspec.DecodeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


_QUANTITIES = (  # what a field's name says that it is, and the unit where the name has none: as NVML reports it
    (re.compile(r"(?i)power"), "W"),
    (re.compile(r"(?i)energy"), "J"),
    (re.compile(r"(?i)temperature"), "degC"),
    (re.compile(r"(?i)voltage"), "V"),
    (re.compile(r"(?i)clock|frequency"), "MHz"),
    (re.compile(r"(?i)fan"), "1"),
)
_SENSOR_UNIT = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\[\]()]*)[\])]\s*$")
_DEVICE = re.compile(r"(?i)\b(?:gpu|device)[ _#:]*(\d{1,3})\b")
_SAMPLES = {"time_ns": pl.Int64, "type_id": pl.Int64, "field": pl.String, "value": pl.Float64}


def sensors(export: Tables) -> ExportRows:
    """The samples as counters; nothing where the export has no such events."""
    if not export.count(_EVENTS):
        return ExportRows({})
    samples = _by_field(export) if export.columns(_DATA) else _by_text(export)
    others = tuple(other_events(export, samples["type_id"].unique().drop_nulls().to_list()))
    if samples.is_empty():
        return ExportRows({}, others)
    units = {field: _quantity(field) for field in samples["field"].unique().to_list()}
    devices = _devices(export)
    sound = samples.drop_nulls(["time_ns", "value"])
    rows = sound.select(
        "time_ns",
        pl.col("field").replace_strict({f: name for f, (name, _) in units.items()}).alias("counter"),
        pl.col("type_id").replace_strict(devices, default=None, return_dtype=pl.Int64).alias("device_id"),
        "value",
        pl.col("field").replace_strict({f: unit for f, (_, unit) in units.items()}).alias("unit"),
    )
    findings = (
        Finding(LedgerKind.SENSOR_UNUSABLE, count=samples.height - sound.height),
        Finding(LedgerKind.SENSOR_DEVICE_UNKNOWN, count=rows["device_id"].null_count()),
    )  # fmt: skip
    return ExportRows({"counters": rows}, (*others, *(f for f in findings if f.count)))


def _quantity(field: str) -> tuple[str, str]:
    """Name and unit of a counter, as `Power [mW]`, `Temperature`."""
    match = _SENSOR_UNIT.match(field)
    usual = next(unit for pattern, unit in _QUANTITIES if pattern.search(field))
    return (match["name"], match["unit"].strip() or usual) if match else (field, usual)


def _is_sensor(field: str) -> bool:
    return any(pattern.search(field) for pattern, _ in _QUANTITIES)


def _by_field(export: Tables) -> pl.DataFrame:
    fields = export.integers(_FIELDS, ("typeId", "fieldIdx", "fieldNameId")).rename(
        {"typeId": "type_id", "fieldIdx": "field_index"}
    )
    named = fields.select("type_id", "field_index", field=export.strings.of(fields["fieldNameId"]).cast(pl.String))
    sensors = named.filter(_among(field for field in named["field"].drop_nulls().unique() if _is_sensor(field)))
    sensors = _without_metrics(export, sensors).unique(["type_id", "field_index"], keep="first", maintain_order=True)
    types = Among("typeId", tuple(sensors["type_id"].unique().sort().to_list()))
    if not types.values:
        return pl.DataFrame(schema=_SAMPLES)
    events = export.integers(_EVENTS, ("timestamp", "typeId", "genericEventId"), where=types)
    indexes = Among("fieldIdx", tuple(sensors["field_index"].drop_nulls().unique().sort().to_list()))
    data = export.integers(_DATA, ("genericEventId", "fieldIdx"), where=indexes)
    kinds = ("doubleVal", "floatVal", "intVal", "uintVal")
    values = pl.DataFrame({kind: export.numbers(_DATA, kind, where=indexes) for kind in kinds})
    return (
        data.with_columns(values.select(pl.coalesce(kinds).alias("value")).to_series())
        .join(events.drop("rowid"), on="genericEventId", how="inner", maintain_order="left")
        .join(sensors, left_on=["typeId", "fieldIdx"], right_on=["type_id", "field_index"], maintain_order="left")
        .select(pl.col("timestamp").alias("time_ns"), pl.col("typeId").alias("type_id"), "field", "value")
    )


def _by_text(export: Tables) -> pl.DataFrame:
    events = export.integers(_EVENTS, ("timestamp", "typeId")).rename({"timestamp": "time_ns", "typeId": "type_id"})
    texts = export.texts(_EVENTS, "data")
    likely = pl.any_horizontal(pl.col("text").str.contains(pattern.pattern) for pattern, _ in _QUANTITIES)
    some = _without_metrics(export, events.with_columns(text=texts).filter(likely))
    rows = [
        (time_ns, type_id, field, _number(value))
        for time_ns, type_id, text in some.select("time_ns", "type_id", "text").iter_rows()
        for field, value in _members(text)
        if _is_sensor(field)
    ]
    return pl.DataFrame(rows, schema=_SAMPLES, orient="row")


def _without_metrics(export: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    """GPU metrics are generic events as well, and read from a table of their own."""
    metrics = export.integers("TARGET_INFO_GPU_METRICS", ("typeId",)).select(type_id="typeId").unique()
    return rows.join(metrics, on="type_id", how="anti", maintain_order="left")


def _members(text: str) -> Iterable[tuple[str, Any]]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]).items()
    except (msgspec.DecodeError, RecursionError):
        return ()


def _number(value: object) -> float | None:
    """A number, which older exports write as text."""
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None


def _among(fields: Iterable[str]) -> pl.Expr:
    return pl.col("field").is_in(list(fields))


def _devices(export: Tables) -> dict[int, int | None]:
    """The device of each type of event: as its description says, else the machine's only one."""
    gpus = export.integers("TARGET_INFO_GPU", ("id",))["id"].drop_nulls().unique().to_list()
    only = gpus[0] if len(gpus) == 1 else None
    types = export.integers(_TYPES, ("typeId", "nameId", "sourceId"))
    called = export.strings.of(types["nameId"]).cast(pl.String).fill_null("")
    described = export.texts(_TYPES, "data").fill_null("")
    device_of: dict[int, int | None] = {}
    for type_id, name, text in zip(types["typeId"], called, described, strict=True):
        match = _DEVICE.search(name) or _DEVICE.search(text)
        device_of[type_id] = int(match[1]) if match else only
    return device_of
