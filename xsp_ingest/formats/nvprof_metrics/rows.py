"""Rows of the tables that nvprof prints, and its metrics in the model's vocabulary."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_ingest.counters.formula import Formula, base_unit, same
from xsp_ingest.files.values import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["DESCRIPTIONS", "NVPROF", "Kernel", "Rows", "collect", "is_header", "is_printed", "value_of"]

# nvprof's metrics and what they are in the model's vocabulary.

_SECTOR_BYTES = 32  # of one transaction with device memory or L2


def _transactions(*names: str) -> Formula:
    return Formula(dict.fromkeys(names, _SECTOR_BYTES))


NVPROF: Mapping[str, Sequence[Formula]] = {
    **{
        name: (same(name),)
        for name in (
            "flop_count_sp",
            "flop_count_hp",
            "flop_count_dp",
            "achieved_occupancy",
            "sm_efficiency",
            "ipc",
            "dram_utilization",
            "l2_utilization",
            "flop_sp_efficiency",
            "flop_hp_efficiency",
            "flop_dp_efficiency",
            "invocations",
        )
    },
    "dram_read_bytes": (same("dram_read_bytes"), _transactions("dram_read_transactions")),
    "dram_write_bytes": (same("dram_write_bytes"), _transactions("dram_write_transactions")),
    "l2_bytes": (_transactions("l2_read_transactions", "l2_write_transactions"),),
    "l2_hit_rate": (same("l2_tex_hit_rate"),),
    "l1_hit_rate": (same("tex_cache_hit_rate"),),
    "l1_utilization": (same("tex_utilization"),),
    "warp_instruction_count": (same("inst_executed"),),
    "nvlink_receive_bytes": (same("nvlink_total_data_received"),),
    "nvlink_transmit_bytes": (same("nvlink_total_data_transmitted"),),
}
"""Each canonical counter's formulas, the best first."""
DESCRIPTIONS: Mapping[str, str] = {
    # what tables of single launches may have as headings: the metric's name
    "Multiprocessor Activity": "sm_efficiency",
    "Achieved Occupancy": "achieved_occupancy",
    "Executed IPC": "ipc",
    "Device Memory Read Transactions": "dram_read_transactions",
    "Device Memory Write Transactions": "dram_write_transactions",
    "Device Memory Utilization": "dram_utilization",
    "L2 Cache Utilization": "l2_utilization",
    "Unified Cache Utilization": "tex_utilization",
    "Unified Cache Hit Rate": "tex_cache_hit_rate",
    "L2 Read Transactions": "l2_read_transactions",
    "L2 Write Transactions": "l2_write_transactions",
    "Floating Point Operations(Single Precision)": "flop_count_sp",
    "Floating Point Operations(Half Precision)": "flop_count_hp",
    "Floating Point Operations(Double Precision)": "flop_count_dp",
    "FLOP Efficiency(Peak Single)": "flop_sp_efficiency",
    "FLOP Efficiency(Peak Half)": "flop_hp_efficiency",
    "FLOP Efficiency(Peak Double)": "flop_dp_efficiency",
    "Instructions Executed": "inst_executed",
}


# Collects kernels and metric values from nvprof's tables, among its log lines.

_LOG = re.compile(r"==(\d+)== ")
_DEVICE = re.compile(r"(.*) \((\d+)\)\Z")
_VALUE = re.compile(r"([+-]?\d+\.?\d*(?:[eE][+-]?\d+)?)\s*(%|[A-Za-z/]*)\Z")
_LEVEL = re.compile(r"(?:Idle|Low|Mid|High|Max) \((\d{1,18})\)\Z")
_LEVELS = 10  # utilization is in tenths of the peak
_SUMMARY = ("Kernel", "Invocations", "Avg")
_LAUNCHES = ("Device", "Context", "Stream", "Kernel")
_NAMES = ("Metric Name", "Event Name")
_NOT_METRICS = {*_LAUNCHES, "Correlation_ID", "Correlation ID"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of kernels: a launch, or all launches of a name on a device."""

    name: str
    process_id: int | None
    device_id: int | None
    context_id: int | None = None
    stream_id: int | None = None
    invocations: int | None = None


@dataclass(slots=True)
class Rows:
    """The kernels, and values as (kernel, metric, value, unit)."""

    kernels: list[Kernel] = field(default_factory=list)
    values: list[tuple[int, str, float, str]] = field(default_factory=list)
    devices: dict[int, str] = field(default_factory=dict)
    unreadable: int = 0
    is_cut_off: bool = False


def is_header(line: str) -> bool:
    """Whether the line is the header of a table of metrics or events."""
    cells = _cells(line)
    return _is_summary(cells) or _is_launches(cells)


def _is_summary(cells: Sequence[str]) -> bool:
    return all(name in cells for name in _SUMMARY) and any(name in cells for name in _NAMES)


def _is_launches(cells: Sequence[str]) -> bool:
    """The table of single launches, which is no timeline: it has no start."""
    return all(name in cells for name in _LAUNCHES) and not {"Start", "Duration"} & set(cells)


_PRINTED = re.compile(r"\s*Invocations\s+(Metric|Event) Name\s")
_PRINTED_DEVICE = re.compile(r'\s*Device "(.*)"\s*$')
_PRINTED_KERNEL = re.compile(r"\s*Kernel: (.*\S)\s*$")
_APART = re.compile(r"\s{2,}")


def is_printed(line: str) -> bool:
    """Whether the line is the header of such a table as it is printed without `--csv`."""
    return bool(_PRINTED.match(line))


def _printed_row(line: str, header: Sequence[str], device: str, kernel: str) -> dict[str, str] | None:
    """A row of a printed table as one of CSV; None for any other line. Values are right-aligned, two blanks apart."""
    cells = _APART.split(line.strip())
    values = [name for name in header if name not in {"Invocations", *_NAMES, "Metric Description"}]
    if len(cells) < 2 + len(values) or not cells[0].isdecimal():
        return None
    row = dict(zip(values, cells[-len(values) :], strict=True))
    return {"Device": device, "Kernel": kernel, "Invocations": cells[0], header[1]: cells[1], **row}


def collect(lines: Iterable[str]) -> Rows:
    """Every table of the file."""
    out = Rows()
    header: list[str] = []
    process: int | None = None
    printed: list[str] = []  # headings of a table that is not CSV
    device = kernel = ""
    row_of: dict[tuple[object, ...], int] = {}
    for line in lines:
        if match := _LOG.match(line):
            process = natural(match[1])
            continue
        if is_printed(line):
            header, printed = [], _APART.split(line.strip())
            continue
        if printed:
            device = match[1] if (match := _PRINTED_DEVICE.match(line)) else device
            kernel = match[1] if (match := _PRINTED_KERNEL.match(line)) else kernel
            row = _printed_row(line, printed, device, kernel)
            out.is_cut_off = row is None and not line.endswith("\n") and line.lstrip()[:1].isdigit()
            if row is not None and "Avg" in row:
                _read(row, {}, process, row_of, out)
            continue
        cells = _cells(line)
        if _is_summary(cells) or _is_launches(cells):
            header, units = cells, dict.fromkeys(cells, "")
        elif header and cells and len(cells) != len(header):
            out.is_cut_off = len(cells) < len(header) and _is_row(line, cells)
        elif header and cells and not cells[header.index("Kernel")]:
            units = dict(zip(header, cells, strict=True))
        elif header and cells:
            out.is_cut_off = not line.endswith("\n") and line.count('"') % 2 == 1
            _read(dict(zip(header, cells, strict=True)), units, process, row_of, out)
    return out


def _is_row(line: str, cells: Sequence[str]) -> bool:
    """Whether a line with too few cells was to be a row, and is not something the program printed."""
    return line.startswith('"') and (bool(_DEVICE.match(cells[0])) or line.count('"') % 2 == 1)


def _read(
    row: Mapping[str, str],
    units: Mapping[str, str],
    process: int | None,
    row_of: dict[tuple[object, ...], int],
    out: Rows,
) -> None:
    device = _DEVICE.match(row.get("Device", ""))
    device_id = natural(device[2]) if device else None
    if device and device_id is not None:
        out.devices[device_id] = device[1]
    if "Invocations" in row:
        kernel = Kernel(row["Kernel"], process, device_id, invocations=natural(row["Invocations"]))
        at = row_of.setdefault((process, device_id, row["Kernel"]), len(out.kernels))
        metrics = {row.get("Metric Name") or row.get("Event Name", ""): (row["Avg"], "")}
    else:
        kernel = Kernel(row["Kernel"], process, device_id, natural(row["Context"]), natural(row["Stream"]))
        at = len(out.kernels)
        metrics = {
            DESCRIPTIONS.get(name, name): (text, units[name]) for name, text in row.items() if name not in _NOT_METRICS
        }
    if at == len(out.kernels):
        out.kernels.append(kernel)
    for metric, (text, unit) in metrics.items():
        value = value_of(text, unit)
        if value is None:
            out.unreadable += bool(text)
        else:
            out.values.append((at, metric, *value))


def value_of(text: str, unit: str = "") -> tuple[float, str] | None:
    """A value in its base unit: `78.46%`, `4.75GB/s` (powers of 1024), `Low (1)` (tenths); None: no number."""
    if level := _LEVEL.match(text):
        return int(level[1]) / _LEVELS, "1"
    match = _VALUE.match(text)
    if match is None:
        return None
    base = base_unit(match[2] or unit, binary=True)
    value = float(match[1]) * base.multiply / base.divide
    return (value, base.name) if math.isfinite(value) else None


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\n")]), [])
    except csv.Error:  # a cell of more than 128 KiB, or a line end out of place
        return []
