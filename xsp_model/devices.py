"""What devices can do: the peak rates of a trace's devices, from the user, the file or the table of devices."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from xsp_model.errors import XspError, closest
from xsp_model.ledger import Finding
from xsp_model.ledger_kinds import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FP32_LANES",
    "PEAK_COLUMNS",
    "QUANTITIES",
    "DeviceSpec",
    "Multiprocessor",
    "Peak",
    "Vendor",
    "device_table",
    "fill",
    "fp32_lanes",
    "is_nameless",
    "multiprocessor_of",
    "peaks_for",
    "read_device_file",
    "spec_called",
    "spec_for",
    "unknown",
    "vendor_of",
    "with_devices",
    "with_used",
]

# The table of devices and their peak rates: the project's own, and files of the same format that users give.
QUANTITIES: Mapping[str, str] = {
    # quantity: unit. Tensor rates are without sparsity; the vector rates count a multiply-add as two.
    "fp64": "flop/s",
    "fp64_tensor": "flop/s",
    "fp32": "flop/s",
    "fp16": "flop/s",
    "tf32": "flop/s",
    "fp16_tensor": "flop/s",
    "bf16_tensor": "flop/s",
    "fp8_tensor": "flop/s",
    "int8_tensor": "op/s",
    "dram": "byte/s",
    "pcie": "byte/s",  # one way, as is NVLink's, all links together
    "nvlink": "byte/s",
}
"""What a device may have a peak of, in the order in which tables list them."""


@dataclass(frozen=True, slots=True)
class Peak:
    """One peak rate in base units; `detail` says dense, the accumulator's type and the clock, where known."""

    quantity: str
    value: float
    source: str
    detail: str = ""

    @property
    def unit(self) -> str:
        """flop/s, op/s or byte/s."""
        return QUANTITIES[self.quantity]


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device of the table; `pattern` is searched in the name that a profiler wrote (None: any device)."""

    name: str
    pattern: re.Pattern[str] | None
    peaks: Mapping[str, Peak]
    source: str = ""  # title of the document, with its date
    lacks: frozenset[str] = frozenset()  # quantities that it has no units for; else what is not in `peaks` is unknown
    memory_bytes: int | None = None
    multiprocessor_count: int | None = None
    compute_capability: str | None = None
    boost_clock_hz: int | None = None
    cache_bytes: int | None = None  # of the last one before memory


@cache
def device_table() -> tuple[DeviceSpec, ...]:
    """The project's own table, in the order in which names are tried."""
    text = resources.files("xsp_model").joinpath("data", "devices.toml").read_text(encoding="utf-8")
    return _specs(tomllib.loads(text), Path("devices.toml"), named=True)


def read_device_file(path: Path) -> tuple[DeviceSpec, ...]:
    """The devices of a user's file; XspError where it is missing, no TOML, or says something that is no peak."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise XspError(f"the device file cannot be read ({error.strerror})", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise XspError(f"the device file is not valid TOML: {error}", path=path) from error
    return _specs(content, path, named=False)


def spec_for(
    name: str | None,
    *,
    capability: str | None = None,
    multiprocessors: int | None = None,
    memory_bytes: int | None = None,
) -> DeviceSpec | None:
    """The device of this name; under a name that says nothing, the only one with this compute capability and size."""
    if name and name not in _GENERIC:
        specs = () if _PART.search(name) else device_table()
        own = next((s for s in specs if s.name == name), None)
        return own or next((s for s in specs if s.pattern is not None and s.pattern.search(name)), None)
    alike = [
        s
        for s in device_table()
        if capability
        and (s.compute_capability, s.multiprocessor_count) == (capability, multiprocessors)
        and (not memory_bytes or not s.memory_bytes or abs(memory_bytes / s.memory_bytes - 1) < _MEMORY_MARGIN)
    ]
    return alike[0] if len(alike) == 1 else None


def spec_called(text: str) -> DeviceSpec:
    """The device that the user means: by its name in the table, or as a driver writes it; XspError where it is none."""
    spec = spec_for(text) if text else None
    if spec is not None:
        return spec
    tokens = text.lower().split()
    having = [s for s in device_table() if all(token in s.name.lower() for token in tokens)] if tokens else []
    if len(having) == 1 or (having and having[0].name.lower() == text.lower()):
        return having[0]
    names = [s.name for s in having] or closest(text, [s.name for s in device_table()])
    advice = f"Did you mean {' or '.join(names)}? `xsp devices` lists them" if names else "`xsp devices` lists them"
    raise XspError(f"the table of devices has no {text!r}", advice=advice)


def is_nameless(name: str | None) -> bool:
    """Whether this, which a profiler wrote, names no device."""
    return not name or name in _GENERIC


def peaks_for(name: str | None) -> Mapping[str, Peak]:
    """Peaks by quantity of the device of this name; none where the table does not know it."""
    spec = spec_for(name)
    return {} if spec is None else spec.peaks


_PART = re.compile(r"\bMIG\b|-\d+[ABCQ]\b|Max-Q|Laptop")
"""A slice of a device (MIG, or a vGPU such as A40-48Q), or one with lower clocks: its rates are not the device's."""
_MEMORY_MARGIN = 0.1  # drivers keep some of it
_GENERIC = ("AMD Radeon Graphics",)  # what drivers call a device whose name they do not know
_FACTS = {
    *("name", "pattern", "source", "date", "multiprocessors", "compute_capability", "memory_gib", "boost_clock_mhz"),
    *("cache_mib", "lacks", "peaks"),
}
_OF_PEAK = {"value", "source", "dense", "accumulate", "clock_mhz", "note"}
_HZ_PER_MHZ = 1_000_000


def _specs(content: Mapping[str, object], path: Path, *, named: bool) -> tuple[DeviceSpec, ...]:
    listed = content.get("device")
    unknown = sorted(set(content) - {"device"})
    if unknown or not isinstance(listed, list) or not listed:
        what = f"it has {unknown[0]!r} where [[device]] was expected" if unknown else "it has no [[device]]"
        raise XspError(f"the device file is not understood: {what}", path=path)
    return tuple(_spec(entry, path, named=named) for entry in listed)


def _spec(entry: object, path: Path, *, named: bool) -> DeviceSpec:
    if not isinstance(entry, dict):
        raise XspError("the device file is not understood: `device` is no [[device]] table", path=path)
    name = entry.get("name", "")
    _only(entry, _FACTS, f"device {name!r}", path)
    pattern, source = entry.get("pattern"), entry.get("source", "" if named else f"user's file {path.name}")
    source = f"{source}, {entry['date']}" if "date" in entry else source
    clock = entry.get("boost_clock_mhz")
    peaks = entry.get("peaks")
    if not isinstance(peaks, dict) or not peaks:
        raise XspError(f"device {name!r} has no peaks: give [device.peaks] with fp32, dram, ...", path=path)
    return DeviceSpec(
        str(name),
        None if pattern is None else _pattern(pattern, path),
        {str(q): _peak(str(q), what, str(source), clock, path) for q, what in peaks.items()},
        str(source),
        _lacks(entry, name, peaks, path),
        None if "memory_gib" not in entry else entry["memory_gib"] << 30,
        entry.get("multiprocessors"),
        entry.get("compute_capability"),
        None if clock is None else round(clock * _HZ_PER_MHZ),
        None if "cache_mib" not in entry else round(entry["cache_mib"] * (1 << 20)),
    )


def _lacks(entry: Mapping[str, object], name: object, peaks: Mapping[str, object], path: Path) -> frozenset[str]:
    listed = entry.get("lacks", [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise XspError(f"device {name!r}: `lacks` is no list of quantities", path=path)
    for quantity in listed:
        if quantity not in QUANTITIES or quantity in peaks:
            why = "has a peak as well" if quantity in peaks else "is no quantity"
            raise XspError(f"device {name!r} lacks {quantity!r}, which {why}", path=path)
    return frozenset(listed)


def _only(entry: Mapping[str, object], allowed: set[str], where: str, path: Path) -> None:
    for key in entry:
        if key not in allowed:
            listed = ", ".join(sorted(allowed))
            raise XspError(f"{where} has {key!r}, which means nothing here", path=path, advice=f"Known: {listed}")


def _pattern(text: object, path: Path) -> re.Pattern[str]:
    try:
        return re.compile(str(text))
    except re.error as error:
        raise XspError(f"the pattern {text!r} is no regular expression: {error}", path=path) from error


def _peak(quantity: str, what: object, source: str, clock: object, path: Path) -> Peak:
    """A peak given as a number in base units, or as a table with `value` and what is said of it."""
    if quantity not in QUANTITIES:
        raise XspError(f"there is no peak of {quantity!r}", path=path, advice=f"Known: {', '.join(QUANTITIES)}")
    facts: Mapping[str, object] = what if isinstance(what, dict) else {"value": what}
    _only(facts, _OF_PEAK, f"the peak of {quantity}", path)
    value = facts.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise XspError(f"the peak of {quantity} is no positive number of {QUANTITIES[quantity]}: {value!r}", path=path)
    if facts.get("dense", True) is not True:
        raise XspError(f"the peak of {quantity} counts sparsity; give the dense one, usually half", path=path)
    return Peak(quantity, float(value), str(facts.get("source", source)), _detail(quantity, facts, clock))


def _detail(quantity: str, facts: Mapping[str, object], clock: object) -> str:
    details = ["dense"] if quantity.endswith("_tensor") or quantity == "tf32" else []
    if "accumulate" in facts:
        details.append(f"accumulates in {str(facts['accumulate']).upper()}")
    at = facts.get("clock_mhz", clock)
    if at is not None and quantity != "dram":
        details.append(f"at {at} MHz")
    if "note" in facts:
        details.append(str(facts["note"]))
    return ", ".join(details)


# Multiprocessors by generation of devices.
_AMD = re.compile(r"(?i)\b(?:amd|radeon|instinct|gfx\d)")


class Vendor(StrEnum):
    """Who made a device: both number their generations alike."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Its limits; registers are of 32 bits. See `data/multiprocessors.toml`."""

    warp_size: int
    warps: int
    blocks: int
    registers: int
    block_registers: int
    register_unit: int  # of a warp
    partitions: int  # among which registers are divided
    shared_bytes: int
    shared_unit: int  # of a block
    reserved_shared_bytes: int  # of each block


def vendor_of(device_name: str) -> Vendor:
    """By the name that a driver wrote, or of the table of devices."""
    return Vendor.AMD if _AMD.search(device_name) else Vendor.NVIDIA


def multiprocessor_of(vendor: Vendor, capability: str) -> Multiprocessor | None:
    """That of devices of this compute capability; None: not listed."""
    return _multiprocessors().get((vendor, capability))


@cache
def _multiprocessors() -> Mapping[tuple[Vendor, str], Multiprocessor]:
    text = resources.files("xsp_model").joinpath("data", "multiprocessors.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return {
        (vendor, capability): Multiprocessor(**{name: facts[name] for name in Multiprocessor.__slots__})
        for vendor in Vendor
        for generation in content[vendor]["generation"]
        for facts in (content[vendor]["common"] | generation,)
        for capability in generation["capabilities"]
    }


# What the devices of a trace can do at most: from the user, the file, or the table of devices, in this order.

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_model.trace import Trace

    _Device = tuple[int, int | None]  # device, and the process for which the number holds
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
