"""What devices can do: the peak rates of the device table, and what a multiprocessor holds at once."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_model.closest import closest
from xsp_model.errors import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "QUANTITIES",
    "DeviceSpec",
    "Multiprocessor",
    "Peak",
    "Vendor",
    "device_table",
    "is_nameless",
    "multiprocessor_of",
    "peaks_for",
    "read_device_file",
    "spec_called",
    "spec_for",
    "vendor_of",
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
