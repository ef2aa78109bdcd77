"""The reports in a file of `nsys stats` or `nsys recipe`: which each is, and its cells by heading."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from xsp_ingest.files.content import lines
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["PARQUET", "Report", "Section", "has_headings", "report_of", "sections"]

PARQUET = b"PAR1"
_MARK = "\ufeff"
_BLANKS = b" \r\n"
_ENDS = (b"\n", b"\r")
_CUT = b"cut"  # stands for a last line without its end
_MAX_BYTES = 1 << 20  # of a row


class Report(StrEnum):
    """The reports of single events, which are read, and SUM for those of sums, which cannot be."""

    GPU = "cuda_gpu_trace"
    API = "cuda_api_trace"
    EXEC = "cuda_kern_exec_trace"
    RANGES = "nvtx_pushpop_trace"
    PROJECTED = "nvtx_gpu_proj_trace"
    SUM = "sum"


_HEADINGS: dict[Report, frozenset[str]] = {
    Report.GPU: frozenset({"Start", "Duration", "CorrId", "GrdX", "Strm", "Name"}),
    Report.API: frozenset({"Start", "Duration", "Name", "Result", "CorrID", "Pid", "Tid"}),
    Report.EXEC: frozenset({"API Start", "API Dur", "Kernel Start", "Kernel Dur", "PID", "TID", "Kernel Name"}),
    Report.RANGES: frozenset({"Start", "Duration", "DurNonChild", "Name", "PID", "TID", "RangeId"}),
    Report.PROJECTED: frozenset({"Name", "Projected Start", "Orig Start", "Orig Duration", "Style", "PID", "TID"}),
}
_SUMS = (
    {"Time", "Total Time"},  # cuda_gpu_kern_sum, cuda_api_sum, nvtx_sum, osrt_sum, ...
    {"Total", "Count", "Operation"},  # cuda_gpu_mem_size_sum
    {"Count", "TAvg", "KAvg"},  # cuda_kern_exec_sum
    {"Total Proj Time", "Range Instances"},  # nvtx_gpu_proj_sum
    {"NVTX Range", "Kern Inst"},  # nvtx_kern_sum
    {"Count", "Mean", "Sum"},  # all_stats.parquet, rank_stats.parquet, stats.parquet of recipes
)

_MAY_BE_HEADINGS = re.compile(rb"Start|Time|Count|Kern Inst")  # one of these is in every set above


@dataclass(frozen=True)
class Section:
    """One report: its cells by heading (without the unit), and the unit of each heading ("" for none)."""

    report: Report
    units: dict[str, str]
    columns: dict[str, list[str]] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))


def report_of(headings: Sequence[str]) -> Report | None:
    """The report with these headings; None where it is none of nsys'."""
    names = {_split(heading)[0] for heading in headings}
    for report, columns in _HEADINGS.items():
        if columns <= names:
            return report
    return Report.SUM if any(columns <= names for columns in _SUMS) else None


def has_headings(head: bytes) -> bool:
    """Whether one of the lines that a file begins with is the headings of a report."""
    lines_of_it = head.splitlines()[:-1] or [head]
    return any(report_of(_cells(line)) for line in lines_of_it if b"," in line and _MAY_BE_HEADINGS.search(line))


def sections(path: Path) -> Iterator[Section]:
    """Every report of a file, in order; XspError where a row does not fit its headings, as where a file is cut."""
    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET)) == PARQUET
    yield from _of_parquet(path) if is_parquet else _of_csv(path)


def _of_parquet(path: Path) -> Iterator[Section]:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise XspError("the Parquet file is damaged or cut off", path=path, advice="Run the recipe again") from error
    report = report_of(table.column_names)
    if report is not None:
        texts = {name: ["" if v is None else str(v) for v in table[name].to_pylist()] for name in table.column_names}
        yield Section(report, dict.fromkeys(texts, ""), texts)


def _of_csv(path: Path) -> Iterator[Section]:
    """Reports one after another, each ending with a blank line, with what nsys says of its work in between."""
    current: Section | None = None
    for line in _records(path):
        if not line.strip(_BLANKS):
            if current is not None:
                yield current
            current = None
        elif current is None:
            current = _begin_section(_cells(line))
        else:
            _add(current, _cells(line), path)
    if current is not None:
        yield current


def _records(path: Path) -> Iterator[bytes]:
    """The lines; a name in quotes may go over several. XspError where the file ends within one."""
    held = b""
    for piece in lines(path):
        for line in piece.splitlines(keepends=True):
            held += line
            # A quote that never closes must not hold the rest of the file.
            if held.count(b'"') % 2 == 0 or len(held) > _MAX_BYTES:
                yield held
                held = b"" if held.endswith(_ENDS) else _CUT
    if held:
        raise XspError("the file ends within a line", path=path, advice="Run nsys stats again")


def _begin_section(headings: Sequence[str]) -> Section | None:
    report = report_of(headings)
    if report is None:
        return None
    named = [_split(heading) for heading in headings]
    return Section(report, dict(named), {name: [] for name, _ in named})


def _add(section: Section, cells: Sequence[str], path: Path) -> None:
    if len(cells) != len(section.columns):
        raise XspError(
            f"row {section.height + 1:,} of {section.report} has {len(cells)} cells, not {len(section.columns)}",
            path=path,
            advice="Run nsys stats again",
        )
    for column, cell in zip(section.columns.values(), cells, strict=True):
        column.append(cell)


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line.decode(errors="replace").lstrip(_MARK), newline="")), [])
    except csv.Error:
        return []


def _split(heading: str) -> tuple[str, str]:
    """Heading and unit of `Start (ns)`."""
    name, opened, rest = heading.strip().rpartition(" (")
    return (name, rest[:-1]) if opened and rest.endswith(")") else (heading.strip(), "")
