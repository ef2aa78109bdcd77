"""Kernels and the texts of their counters, from tables among whatever else program and profiler printed."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from xsp_ingest.counters.formula import is_unit
from xsp_ingest.files.content import MAX_LINE_CHARACTERS
from xsp_ingest.staging.raw import frame_of
from xsp_model.devices import Peak, fp32_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "ATTRIBUTE",
    "LAUNCH",
    "Collected",
    "Header",
    "Log",
    "NvtxRange",
    "as_csv",
    "collect",
    "devices",
    "is_header",
    "is_printed",
    "peaks",
    "records",
]

# Counters that say how a kernel was launched or what the device is: they go to `kernels`, `devices` and `peaks`.

ATTRIBUTE = "device__attribute_"
LAUNCH: Mapping[str, str] = {
    # column of `kernels`: the counter
    "registers_per_thread": "launch__registers_per_thread",
    "static_shared_bytes": "launch__shared_mem_per_block_static",
    "dynamic_shared_bytes": "launch__shared_mem_per_block_dynamic",
    **{f"{what}_{axis}": f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"},
}
_HZ_PER_KHZ = 1000
_KHZ_PER_MHZ = 1000
_DOUBLE_RATE = 2  # data moves on both edges of the memory clock
_BITS_PER_BYTE = 8


def devices(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The staging table `devices`: one row a device from its first kernel's attributes.

    `rows`: device_id, compute_capability and counters, one row a kernel; `names`: device_id, name.
    """
    first = _by_device(rows.drop("name", strict=False)).join(names, on="device_id", how="left", maintain_order="left")

    def attribute(name: str) -> pl.Expr:
        column = f"{ATTRIBUTE}{name}"
        return pl.col(column) if column in first.columns else pl.lit(None, pl.Float64)

    clock = attribute("clock_rate") * _HZ_PER_KHZ
    lanes = pl.col("compute_capability").map_elements(fp32_lanes, return_dtype=pl.Int64)
    rate = attribute("memory_clock_rate") * _HZ_PER_KHZ * _DOUBLE_RATE
    bandwidth = rate * attribute("global_memory_bus_width") / _BITS_PER_BYTE
    flop_per_s = attribute("multiprocessor_count") * lanes * 2 * clock
    at = pl.format(
        "derived at {} MHz: {} multiprocessors x {} FP32 lanes x 2; bandwidth from memory clock and bus width",
        (clock / 1e6).round().cast(pl.Int64, strict=False),
        attribute("multiprocessor_count").cast(pl.Int64, strict=False),
        lanes,
    )
    table = first.select(
        "device_id",
        "name",
        attribute("multiprocessor_count").alias("multiprocessor_count"),
        "compute_capability",
        clock.alias("clock_hz"),
        attribute("total_memory").alias("memory_bytes"),
        bandwidth.alias("dram_byte_per_s"),
        flop_per_s.alias("fp32_flop_per_s"),
        pl.when(flop_per_s.is_not_null() & bandwidth.is_not_null()).then(at).alias("peak_source"),
    )
    return frame_of("devices", table) if table.height else frame_of("devices")


_PER_CYCLE: Mapping[str, str] = {
    # quantity: the counter that holds its peak per cycle of the multiprocessors' clock
    "fp32": "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2",
    "fp64": "derived__sm__sass_thread_inst_executed_op_dfma_pred_on_x2",
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32_sparsity_off.sum.peak_sustained",
    "fp16_tensor": "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained",
    "bf16_tensor": "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained",
    "int8_tensor": "sm__ops_path_tensor_src_int8_sparsity_off.sum.peak_sustained",
}
_DRAM_PER_CYCLE, _DRAM_CLOCK = "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"
_SOURCE = "ncu, derived"


def peaks(rows: pl.DataFrame) -> Iterator[tuple[int, Peak]]:
    """Peaks of each device from the peak counters of a roofline section, at the device's highest clock."""
    for row in _by_device(rows).iter_rows(named=True):
        device, clock_khz = row["device_id"], row.get(f"{ATTRIBUTE}clock_rate")
        for quantity, counter in _PER_CYCLE.items():
            if clock_khz and row.get(counter):
                detail = f"derived at {clock_khz / _KHZ_PER_MHZ:.0f} MHz from {counter}"
                yield device, Peak(quantity, row[counter] * clock_khz * _HZ_PER_KHZ, _SOURCE, detail)
        if row.get(_DRAM_PER_CYCLE) and row.get(_DRAM_CLOCK) and not row.get(f"{ATTRIBUTE}memory_clock_rate"):
            detail = f"derived at {row[_DRAM_CLOCK] / 1e6:.0f} MHz, the memory clock while profiled"
            yield device, Peak("dram", row[_DRAM_PER_CYCLE] * row[_DRAM_CLOCK], _SOURCE, detail)


def _by_device(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a device: of each column the first value that is not null."""
    devices = rows.drop_nulls("device_id").group_by("device_id", maintain_order=True)
    return devices.agg(pl.all().drop_nulls().first())


_NAMES = ("Kernel Name", "Function Name", "Demangled Name")
_HEADER = re.compile(r'\s*"?(?:ID|Process ID)"?\s*[,;\t].*(?:Kernel|Function|Demangled) Name')
_RECORD = re.compile(r'\s*(?:"\d*\s*"|\d*)\s*[,;\t]')  # a kernel's number, or nothing before a row of units
_LOG_LINE = re.compile(r"==[A-Z]+==")


def is_header(line: str) -> bool:
    """Whether the line is the header of a table of kernels."""
    return bool(_HEADER.match(line.lstrip("\ufeff")))


@dataclass(frozen=True, slots=True)
class Header:
    """One table's columns and what separates them; `number` counts the tables of the file."""

    columns: Sequence[str]
    separator: str
    number: int


@dataclass(slots=True)
class Log:
    """What was met besides records, counted while reading."""

    complaints: list[str] = field(default_factory=list)  # lines of the profiler's that say ERROR or WARNING
    unclosed: int = 0  # records that no quote closes
    is_cut_off: bool = False  # the last one is such


# The details page as ncu prints it without --csv: a line for each launch, below it tables whose columns dashes mark.
_LAUNCH_LINE = re.compile(
    r"\s{2}(?P<name>\S.*?)(?: \((?P<grid>\d+, \d+, \d+)\)x\((?P<block>\d+, \d+, \d+)\))?,"
    r"(?: \d{4}-\w{3}-\d{2} \d{2}:\d{2}:\d{2},)? Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+), CC (?P<cc>\d+\.\d+))?\s*$"
)
_PROCESS_LINE = re.compile(r"\[(\d+)\] (\S.*)@(\S+)\s*$")
_SECTION = re.compile(r"\s+Section: (.+?)\s*$")
_DASHES = re.compile(r"\s+(-+) (-+) (-+)\s*$")
_DETAILS = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"),
    *("Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
)


def is_printed(line: str) -> bool:
    """Whether the line introduces a launch on the details page as it is printed."""
    return bool(_LAUNCH_LINE.match(line))


def as_csv(lines: Iterable[str]) -> Iterator[str]:
    """The lines of the details page as CSV has them; lines that are no part of it stay."""
    process = ("", "", "")
    launch: list[str] | None = None
    count, section, widths = 0, "", (0, 0, 0)
    for line in lines:
        if match := _LAUNCH_LINE.match(line):
            if not count:
                yield _csv_line(_DETAILS)
            keys = ("context", "stream", "block", "grid", "device", "cc")
            sizes = {key: f"({match[key]})" if key in {"block", "grid"} and match[key] else match[key] for key in keys}
            launch = [str(count), *process, match["name"], *(sizes[key] or "" for key in keys)]
            count, section, widths = count + 1, "", (0, 0, 0)
        elif match := _PROCESS_LINE.match(line):
            process = (match[1], match[2], match[3])
        elif match := _SECTION.match(line):
            section, widths = match[1], (0, 0, 0)
        elif match := _DASHES.match(line):
            widths = (match.start(2), match.start(3), match.end(3))
        elif launch is not None and widths[2] and line.startswith("    ") and line[widths[1] :].strip():
            cells = (line[: widths[0]], line[widths[0] : widths[1]], line[widths[1] :])
            if cells[0].strip() != "Metric Name":
                row = _csv_line([*launch, section, *(cell.strip() for cell in cells)])
                yield row if line.endswith("\n") else row[:-2]  # a line without its end leaves a quote open
        elif launch is None or line.startswith("=="):
            yield line
        else:
            widths = widths if line.strip() else (0, 0, 0)


def _csv_line(cells: Iterable[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


def records(lines: Iterator[str], log: Log) -> Iterator[tuple[Header, list[str]]]:
    """Each record with the header above it; a record may run over several lines inside quotes."""
    header: Header | None = None
    pending = ""
    for line in lines:
        if pending and not _starts_anew(line, header):
            pending += line
        else:
            log.unclosed += _is_lost(pending, header)
            pending = line
        if pending.count('"') % 2:
            if len(pending) > MAX_LINE_CHARACTERS:
                log.unclosed += _is_lost(pending, header)
                pending = ""
            continue
        text, pending = pending, ""
        if is_header(text):
            header = _header(text, 0 if header is None else header.number + 1)
        elif header is not None and _RECORD.match(text) and not _LOG_LINE.match(text):
            log.is_cut_off = text.endswith(header.separator)  # without even a line's end
            cells = _cells(text, header.separator)
            log.unclosed += not cells
            yield header, cells
        elif _LOG_LINE.match(text) and ("ERROR" in text or "WARNING" in text):
            log.complaints.append(text.strip())
    log.is_cut_off |= _is_lost(pending, header)


def _is_lost(pending: str, header: Header | None) -> bool:
    """Whether these lines were a record that nothing closes, not something the program printed."""
    return header is not None and bool(_RECORD.match(pending))


def _starts_anew(line: str, header: Header | None) -> bool:
    """Whether the line surely begins something new, so that the record before it was cut off."""
    return header is None or bool(_LOG_LINE.match(line)) or is_header(line) or bool(re.match(r'"\d+","\d+","', line))


def _header(line: str, number: int) -> Header:
    separator = next(c for c in line if c in ",;\t")
    return Header([cell.strip() for cell in _cells(line.lstrip("\ufeff"), separator)], separator, number)


def _cells(text: str, separator: str) -> list[str]:
    """The cells; none where the line is no CSV, as with a cell of more than 128 KiB or a line end out of place."""
    try:
        return next(csv.reader([text.rstrip("\n")], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []


# Collects kernels and the texts of their counters from the pages that Nsight Compute prints and exports.
_FACTS: Mapping[str, Sequence[str]] = {
    # fact: the columns that may hold it, the best first
    "id": ("ID",),
    "process": ("Process ID",),
    "name": ("Kernel Name", "Demangled Name", "Function Name"),
    "context": ("Context",),
    "stream": ("Stream",),
    "block": ("Block Size",),
    "grid": ("Grid Size",),
    "device": ("Device",),
    "capability": ("CC",),
    "invocations": ("Invocations",),
}
_NOT_COUNTERS = {name for names in _FACTS.values() for name in names} | {
    "Process Name",
    "Host Name",
    "Kernel Time",
    "Section Name",
    "Estimated Speedup",
    "Estimated Speedup Type",
    "Runtime Improvement",
    "GPU",
}
_HEADING = re.compile(r"(.+?)\s*(?:\[([^\]]*)\])?[\"\s]*(?:\((?P<total>[\d.,+-]+(?:[eE][+-]?\d+)?)\))?\s*\Z", re.DOTALL)
_INTERFACE_UNITS = {"Duration": "us", "Compute Throughput": "%", "Memory Throughput": "%"}
"""What the user interface shows in its summary; over it headings have totals of their columns and may have no unit."""
_PUSHED = "Push/Pop_Range"
# One pushed range of a cell: domain, name, and six fields of payload, colour and message.
_RANGE = re.compile(r'"([^":]*):(.*?)(?::[^":]*){6}"', re.DOTALL)
_INTEGER = re.compile(r"\d+\Z")
_VALUES = ("Metric Value", "Average")


class NvtxRange(NamedTuple):
    """A range of NVTX that was pushed when a kernel was launched; domain None: the default one."""

    domain: str | None
    text: str

    @classmethod
    def of(cls, domain: str, text: str) -> NvtxRange:
        """The range as Nsight Compute writes its domain."""
        return cls(None if domain in {"", "<default domain>"} else domain, text)


@dataclass(slots=True)
class Collected:
    """Kernels as columns of texts, and for each counter and unit the kernels that have it, with its texts."""

    kernels: dict[str, list[str | None]] = field(default_factory=lambda: {name: [] for name in (*_FACTS, "table")})
    values: dict[tuple[str, str], tuple[list[int], list[str]]] = field(default_factory=dict)
    cut_off: int = 0  # records with fewer cells than they need
    is_cut_off: bool = False  # the last one is such
    ranges: list[Sequence[NvtxRange]] = field(default_factory=list)  # of each kernel those around it, outermost first
    advice: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # messages by rule and title, one a kernel
    decimal_sign: str | None = None  # where it is known; else the texts tell
    annotations: int = 0  # columns of NVTX state that are not read
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _devices: set[str | None] = field(default_factory=set)

    def add_kernel(
        self,
        facts: Mapping[str, str | None],
        table: int,
        key: tuple[object, ...] | None = None,
        ranges: Sequence[NvtxRange] = (),
    ) -> int:
        """The number of the kernel, which is new unless its key was met before."""
        number = len(self.kernels["name"])
        if key is not None and self._numbers.setdefault(key, number) != number:
            return self._numbers[key]
        for name in _FACTS:
            self.kernels[name].append(facts.get(name))
        self.kernels["table"].append(str(table))
        self.ranges.append(ranges)
        return number

    def add(self, kernel: int, counter: str, unit: str, text: str) -> None:
        """One value."""
        kernels, texts = self.values.setdefault((counter, unit), ([], []))
        kernels.append(kernel)
        texts.append(text)

    def is_complete(self, *, complete: bool) -> bool:
        """Notes whether the record that was met has all its cells."""
        self.cut_off += not complete
        self.is_cut_off = not complete
        return complete

    def is_new_device(self, device: str | None) -> bool:
        """Whether this is the first kernel on the device: its attributes are the same for all others."""
        new = device not in self._devices
        self._devices.add(device)
        return new


def collect(rows: Iterable[tuple[Header, list[str]]]) -> Collected:
    """All kernels and values of the file."""
    out = Collected()
    layout: _Details | _Raw | None = None
    number = -1
    for header, cells in rows:
        if layout is None or header.number != number:
            number = header.number
            layout = _Details(header) if "Metric Name" in header.columns else _Raw(header)
        layout.read(cells, out)
    return out


class _Layout:
    """Where a table has the facts about its kernels."""

    def __init__(self, header: Header) -> None:
        self.table = header.number
        self.columns = header.columns
        at = {name: n for n, name in reversed(list(enumerate(header.columns)))}
        index_of = {fact: next((at[n] for n in names if n in at), None) for fact, names in _FACTS.items()}
        self.index_of = {fact: index for fact, index in index_of.items() if index is not None}
        self.at = at
        self.pushed = [n for n, column in enumerate(header.columns) if _PUSHED in column]
        self.annotations = sum(map(_is_annotation, header.columns)) - len(self.pushed)

    def ranges(self, cells: Sequence[str]) -> list[NvtxRange]:
        """The ranges of NVTX that the kernel was launched in, outermost first."""
        return [NvtxRange.of(*parts) for n in self.pushed for parts in _RANGE.findall(_at(cells, n))]

    def facts(self, cells: Sequence[str]) -> dict[str, str | None]:
        return {fact: cells[at] if at < len(cells) else None for fact, at in self.index_of.items()}

    def is_row(self, facts: Mapping[str, str | None]) -> bool:
        """Whether it is a kernel's row: what a program printed meanwhile has no number and name there."""
        number = facts.get("id") if "id" in self.index_of else facts.get("process")
        return bool(number and _INTEGER.match(number.strip()) and facts.get("name"))


class _Details(_Layout):
    """A row a kernel and counter; also the summary per kernel name, whose value is the average of `Invocations`."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self.name, self.unit = self.at["Metric Name"], self.at.get("Metric Unit")
        self.value = next((self.at[name] for name in _VALUES if name in self.at), None)

    def read(self, cells: Sequence[str], out: Collected) -> None:
        facts = self.facts(cells)
        if self.value is None or not self.is_row(facts):
            return
        if not out.is_complete(complete=len(cells) > self.value):
            return
        key = ("id", "process") if "id" in self.index_of else ("process", "name", "grid", "block", "device")
        out.annotations = max(out.annotations, self.annotations)
        identity = (self.table, *(facts.get(name) for name in key))
        kernel = out.add_kernel(facts, self.table, identity, self.ranges(cells))
        if cells[self.name]:  # else a rule's row
            out.add(kernel, cells[self.name], "" if self.unit is None else cells[self.unit], cells[self.value])


class _Raw(_Layout):
    """A row a kernel, a column a counter; a row before the first holds units, unless the header has them in brackets.

    In that row the user interface also puts something below what is no counter, such as `block` below the grid.
    """

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self.units: Sequence[str] | None = None
        self.counters: list[tuple[int, str, str]] = []
        self.assumed: dict[int, str] = {}  # by column, the unit where nothing else says one
        has_totals = any((match := _HEADING.match(column)) and match["total"] for column in header.columns)
        for n, column in enumerate(header.columns):
            match = _HEADING.match(column)
            name, unit = (match[1], match[2] or "") if match else (column, "")
            if has_totals and name in _INTERFACE_UNITS:
                self.assumed[n] = _INTERFACE_UNITS[name]
            if name and name not in _NOT_COUNTERS and not _is_annotation(name):
                self.counters.append((n, name, unit))

    def read(self, cells: Sequence[str], out: Collected) -> None:
        facts = self.facts(cells)
        if not self.is_row(facts):
            if self.units is None and (not any(facts.values()) or self._holds_units(cells)):
                self.units = cells
                self.counters = [(n, name, unit or _at(cells, n)) for n, name, unit in self.counters]
            return
        if self.units is None:  # it stands above the kernels or not at all
            self.units = ()
        if self.assumed:
            self.counters = [(n, name, unit or self.assumed.get(n, "")) for n, name, unit in self.counters]
            self.assumed = {}
        out.annotations = max(out.annotations, self.annotations)
        if not out.is_complete(complete=len(cells) >= len(self.columns)):
            return
        kernel = out.add_kernel(facts, self.table, ranges=self.ranges(cells))
        attributes = out.is_new_device(facts.get("device"))
        for n, name, unit in self.counters:
            if cells[n] and (attributes or not name.startswith(ATTRIBUTE)):
                out.add(kernel, name, unit, cells[n])

    def _holds_units(self, cells: Sequence[str]) -> bool:
        """Whether it is a row of units, not something that a program printed."""
        below = [_at(cells, n) for n, _, _ in self.counters]
        return not cells[0].strip() and any(map(is_unit, below))


def _at(cells: Sequence[str], index: int) -> str:
    return cells[index].strip() if index < len(cells) else ""


def _is_annotation(column: str) -> bool:
    """Whether the column holds NVTX state: `thread Domain:Push/Pop_Range:...`."""
    return ":" in column
