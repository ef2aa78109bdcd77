"""Power, temperature and clocks of devices over time: samples that Nsight keeps among its generic events.

Their fields are named by the plugin that took them (`nvml_metrics`: `Power`, `Temperature`). Older exports have an
event as JSON in `GENERIC_EVENTS.data`; newer ones a row a field in `GENERIC_EVENT_DATA`, its name in
`GENERIC_EVENT_TYPE_FIELDS`. Generic events of other plugins, of storage or the network, are counted by the type's name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.values import Among
from xsp_ingest.formats.nsys.tables.rows import ExportRows
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["sensors"]

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
_UNIT = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\[\]()]*)[\])]\s*$")
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
    match = _UNIT.match(field)
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
