"""What the devices of a trace can do at most: from the user, the file, or the table of devices, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model.devices import (
    QUANTITIES,
    DeviceSpec,
    Peak,
    Vendor,
    is_nameless,
    peaks_for,
    spec_called,
    spec_for,
    vendor_of,
)
from xsp_model.ledger import Finding
from xsp_model.ledger_kinds import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_model.trace import Trace

    _Device = tuple[int, int | None]  # device, and the process for which the number holds

__all__ = [
    "FP32_LANES",
    "PEAK_COLUMNS",
    "Peak",
    "fill",
    "fp32_lanes",
    "peaks_for",
    "unknown",
    "with_devices",
    "with_used",
]

FP32_LANES: Mapping[str, int] = {  # of a multiprocessor, by compute capability or its major part
    **dict.fromkeys(("5", "6.1", "6.2", "8.6", "8.7", "8.9", "9", "10", "11", "12"), 128),
    **dict.fromkeys(("6", "7", "8"), 64),
}
"""FP32 lanes of a CUDA multiprocessor. AMD's compute units number their generations alike and are not among them."""

PEAK_COLUMNS: Mapping[str, pl.DataType] = {
    "device_id": pl.Int64(),
    "process_id": pl.Int64(),
    "quantity": pl.String(),
    "value": pl.Float64(),
    "unit": pl.String(),
    "source": pl.String(),
    "detail": pl.String(),
}
"""The columns of `peaks` without `run_id`."""

_COLUMN = {"fp32": "fp32_flop_per_s", "dram": "dram_byte_per_s"}  # what `devices` itself holds
_FLOP_PER_LANE = 2  # a fused multiply-add a cycle
_FROM_USER = "given by the user"
_FROM_FILE = "the profiler's file"


def fp32_lanes(compute_capability: str | None) -> int | None:
    """FP32 lanes of a CUDA multiprocessor of this compute capability; None: unknown."""
    if not compute_capability:
        return None
    return FP32_LANES.get(compute_capability) or FP32_LANES.get(compute_capability.partition(".")[0])


def fill(
    devices: pl.DataFrame,
    measured: pl.DataFrame | None = None,
    *,
    overrides: Sequence[DeviceSpec] = (),
    user_peaks: Mapping[str, float] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The devices with their unknown FP32 and memory peaks filled in, and the table `peaks` (without `run_id`).

    `devices`: as staged by a reader; `measured`: peaks that the file itself holds (PEAK_COLUMNS). `overrides` are
    devices of a user's file, `user_peaks` peaks by the names that run.json uses (`fp32_flop_per_s`, `dram_byte_per_s`);
    both go before everything else, the file's own before the table of devices.
    """
    own = _by_device(measured)
    peaks_by_device = [
        _peaks_of(
            row,
            own.get((row["device_id"], row["process_id"])) or own.get((row["device_id"], None), {}),
            overrides,
            user_peaks or {},
        )
        for row in devices.iter_rows(named=True)
    ]
    rows = [
        (row["device_id"], row["process_id"], p.quantity, p.value, p.unit, p.source, p.detail)
        for row, peaks in zip(
            devices.select("device_id", "process_id").iter_rows(named=True), peaks_by_device, strict=True
        )
        for p in sorted(peaks.values(), key=lambda p: list(QUANTITIES).index(p.quantity))
    ]
    return _with_peaks(devices, peaks_by_device), pl.DataFrame(rows, schema=dict(PEAK_COLUMNS), orient="row")


def _by_device(measured: pl.DataFrame | None) -> dict[_Device, dict[str, Peak]]:
    out: dict[_Device, dict[str, Peak]] = {}
    for row in [] if measured is None else measured.iter_rows(named=True):
        peak = Peak(row["quantity"], row["value"], row["source"], row["detail"] or "")
        out.setdefault((row["device_id"], row["process_id"]), {})[peak.quantity] = peak
    return out


def _peaks_of(
    device: Mapping[str, object],
    measured: Mapping[str, Peak],
    overrides: Sequence[DeviceSpec],
    user_peaks: Mapping[str, float],
) -> dict[str, Peak]:
    """The device's peaks: each from the last of these that knows it, with its source."""
    name = str(device["name"]) if device["name"] else None
    capability, size, memory = (device[c] for c in ("compute_capability", "multiprocessor_count", "memory_bytes"))
    spec = spec_for(
        name,
        capability=str(capability) if capability else None,
        multiprocessors=size if isinstance(size, int) else None,
        memory_bytes=memory if isinstance(memory, int) else None,
    )
    peaks = dict(spec.peaks) if spec is not None else {}
    peaks |= _of_file(device) | dict(measured)
    for chosen in overrides:
        if chosen.pattern is None or (name and chosen.pattern.search(name)):
            peaks |= chosen.peaks
    return peaks | _user_peaks(user_peaks)


def _of_file(device: Mapping[str, object]) -> dict[str, Peak]:
    """What the reader worked out, and FP32 from size and clock where it did not."""
    out = {}
    source = str(device["peak_source"] or "from the file")
    for quantity, column in _COLUMN.items():
        value = device[column]
        if isinstance(value, float):
            out[quantity] = Peak(quantity, value, _FROM_FILE, source)
    capability, size, clock = (device[c] for c in ("compute_capability", "multiprocessor_count", "clock_hz"))
    is_nvidia = vendor_of(str(device["name"])) is Vendor.NVIDIA
    lanes = fp32_lanes(str(capability)) if capability and is_nvidia else None
    if "fp32" not in out and lanes and isinstance(size, int) and isinstance(clock, int):
        detail = f"derived at {clock / 1e6:.0f} MHz: {size} multiprocessors x {lanes} FP32 lanes x 2"
        out["fp32"] = Peak("fp32", float(size * lanes * _FLOP_PER_LANE * clock), _FROM_FILE, detail)
    return out


def _user_peaks(rates: Mapping[str, float]) -> dict[str, Peak]:
    out = {}
    for key, value in rates.items():
        for quantity, unit in QUANTITIES.items():
            if key in {quantity, f"{quantity}_{unit.replace('/', '_per_')}"}:
                out[quantity] = Peak(quantity, float(value), _FROM_USER)
    return out


def _with_peaks(devices: pl.DataFrame, peaks_by_device: Sequence[Mapping[str, Peak]]) -> pl.DataFrame:
    columns: dict[str, list[object]] = {
        column: [peaks[q].value if q in peaks else None for peaks in peaks_by_device] for q, column in _COLUMN.items()
    }
    columns["peak_source"] = [_source_text(peaks) for peaks in peaks_by_device]
    types = {**dict.fromkeys(_COLUMN.values(), pl.Float64()), "peak_source": pl.String()}
    return devices.with_columns(pl.Series(name, values, dtype=types[name]) for name, values in columns.items())


def _source_text(peaks: Mapping[str, Peak]) -> str | None:
    """Where FP32 and bandwidth are from, said once where both are from one place."""
    of = [peaks[q] for q in _COLUMN if q in peaks]
    sources = list(dict.fromkeys(p.detail if p.source == _FROM_FILE else p.source for p in of))
    details = list(dict.fromkeys(p.detail for p in of if p.detail and p.detail not in sources))
    return "; ".join(sources + details) or None


def with_used(devices: pl.DataFrame, used: Iterable[int], name: str | None = None) -> pl.DataFrame:
    """The devices and, for those used that the file does not describe, a row each; `name`: of those that have none."""
    missing = sorted(set(used) - set(devices["device_id"]))
    rows = pl.concat([devices, pl.DataFrame({"device_id": missing}, schema={"device_id": pl.Int64})], how="diagonal")
    if name is None:
        return rows
    names = [name if is_nameless(each) else each for each in rows["name"]]
    return rows.with_columns(pl.Series("name", names, dtype=pl.String))


def unknown(devices: pl.DataFrame) -> list[Finding]:
    """A finding on devices (as `fill` returns them) whose FP32 or memory peak is unknown, with what to do about it."""
    lacking = devices.filter(pl.any_horizontal(pl.col(c).is_null() for c in _COLUMN.values()))
    names = lacking["name"].drop_nulls().unique().sort().to_list()
    who = f" ({', '.join(names)})" if names else ""
    return [
        Finding(
            LedgerKind.PEAKS_UNKNOWN,
            f"devices whose peak rates are unknown{who}: nothing says what is compute or memory bound there",
            lacking.height,
        )
    ]


def with_devices(trace: Trace, overrides: Sequence[DeviceSpec] = (), *, gpu: str | None = None) -> Trace:
    """The same trace with a user's peaks in `devices` and `peaks`; nothing else changes.

    `gpu`: what the devices are that the trace does not name, which gives them the table's peaks; XspError where the
    table does not have it.
    """
    name = None if gpu is None else spec_called(gpu).name
    devices, peaks = trace.frame("devices"), trace.frame("peaks")
    used = (
        trace.scan("spans").filter(pl.col("device_id").is_not_null()).select("run_id", "device_id").unique().collect()
    )
    runs = pl.concat([used["run_id"], devices["run_id"]]).unique().sort()
    parts = [
        _of_run(
            run,
            *(table.filter(pl.col("run_id") == run) for table in (used, devices, peaks)),
            overrides=overrides,
            name=name,
        )
        for run in runs
    ]
    if not parts:
        return trace
    tables = {name: pl.concat(part[at] for part in parts) for at, name in enumerate(("devices", "peaks"))}
    return trace.with_tables(tables)


def _of_run(
    run: int,
    used: pl.DataFrame,
    devices: pl.DataFrame,
    peaks: pl.DataFrame,
    *,
    overrides: Sequence[DeviceSpec],
    name: str | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    if name is not None:
        devices, peaks = _forgotten(devices, peaks)
    filled, peak_rows = fill(with_used(devices, used["device_id"], name), peaks, overrides=overrides)
    of_run = pl.lit(run, pl.Int64).alias("run_id")
    return filled.with_columns(of_run), peak_rows.with_columns(of_run)


def _forgotten(devices: pl.DataFrame, peaks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both without what the table of devices gave to nameless ones, by their size; what the file says stays."""
    nameless = pl.Series([is_nameless(each) for each in devices["name"]], dtype=pl.Boolean)
    ids = devices.filter(nameless)["device_id"]
    kept = peaks.filter(~pl.col("device_id").is_in(ids.implode()) | (pl.col("source") == _FROM_FILE))
    columns = [*_COLUMN.values(), "peak_source"]
    blank = [pl.when(~nameless).then(pl.col(column)).alias(column) for column in columns]
    return devices.with_columns(blank), kept
