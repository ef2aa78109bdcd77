"""CUPTI's counters in a trace: one `cuda_profiler_range` a kernel in the order of launches, tied to what it counted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.doubts import doubts
from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.counters.ncu_names import ncu_table, unit_of
from xsp_ingest.files.content import read_all
from xsp_ingest.files.json_values import characters, finite, json_integer
from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.formats.torch_profiler.categories import PROFILER_RANGE
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["range_metrics"]

_TOOL = "CUPTI in Kineto"
_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"' + PROFILER_RANGE[0] + '"')
_LAUNCH = r"^(cuda|cu|hip)(Module)?Launch(Cooperative)?Kernel"
_UNNAMED = "__missing__"  # what Kineto writes where CUPTI gave no name
_ADVICE = "Profile with CUPTI_PROFILER_ENABLE_PER_KERNEL=YES and no other profiler beside it"


def range_metrics(expected: int, spans: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `metrics` from the ranges, of which so many are expected, and what did not fit `spans`.

    A range has no correlation id: CUPTI made it by running one kernel after the other, so the n-th range is of the
    n-th kernel, or of the n-th launch where kernels were not recorded.
    """
    if not expected:
        return frame_of("metrics"), []
    ranges = sorted(_ranges(path), key=lambda r: r[0])
    targets, what = _targets(spans)
    if len(ranges) != targets.height:
        detail = f"profiler ranges could not be tied to {what}, of which there are {targets.height}; not read"
        return frame_of("metrics"), [Finding(LedgerKind.PROFILER_RANGES_UNMATCHED, detail, expected, advice=_ADVICE)]
    wide = _wide([counters for _, _, counters in ranges], targets)
    other = _renamed([name for _, name, _ in ranges], targets) if what == "kernels" else 0
    measured = Measured(wide, {name: unit_of(name).name for name in wide.columns if name != "row"}, _TOOL)
    detail = f"profiler ranges were tied to {what} by their order; their own times are not those of kernels"
    return frame_of("metrics", canonical(measured, ncu_table(wide.columns))), [
        Finding(LedgerKind.PROFILER_RANGES_TIED, detail, len(ranges)),
        Finding(LedgerKind.PROFILER_RANGES_RENAMED, count=other),
        *doubts(wide.with_columns(pl.lit(None, pl.String).alias("compute_capability")), wide.columns),
    ]


def _ranges(path: Path) -> Iterator[tuple[float, str, dict[str, object]]]:
    """Start, name and counters of each range; read from the text, as the scanners keep known arguments only."""
    text = read_all(path, damaged=refusal.truncated).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_int=json_integer)
    events = [decoder.raw_decode(text, match.start())[0] for match in _HEAD.finditer(text)]
    if not events:  # written by another program, with its keys in another order
        document = decoder.decode(text)
        entries = document["traceEvents"] if isinstance(document, dict) else document
        events = [e for e in entries if isinstance(e, dict) and e.get("cat") in PROFILER_RANGE and e.get("ph") == "X"]
    for event in events:
        args = event.get("args")
        counters = {characters(name): value for name, value in args.items()} if isinstance(args, dict) else {}
        yield finite(event.get("ts")) or 0.0, str(event.get("name", "")), counters


def _targets(spans: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The kernels in the order of their launches, else the launches; one call each where the driver's is inside."""
    kernels = spans.filter(pl.col("kind") == Kind.KERNEL)
    calls = spans.filter(pl.col("level") == Level.RUNTIME, pl.col("kind") == Kind.CALL)
    launches = (
        calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCH))
        .sort("start_ns", -pl.col("duration_ns"), "row")
        .unique(["process_id", "correlation_id"], keep="first", maintain_order=True)
    )
    if kernels.is_empty():
        return launches.select("row", "name"), "kernel launches"
    begun = launches.select("process_id", "correlation_id", pl.col("start_ns").alias("launched_ns"))
    ordered = kernels.join(begun, on=["process_id", "correlation_id"], how="left", maintain_order="left")
    return ordered.sort(pl.coalesce("launched_ns", "start_ns"), "start_ns", "row").select("row", "name"), "kernels"


def _wide(counters: list[dict[str, object]], targets: pl.DataFrame) -> pl.DataFrame:
    """One row a range with its counters in base units."""
    names = sorted({name for one in counters for name in one})
    units = {name: unit_of(name) for name in names}
    columns = {name: [finite(one.get(name)) for one in counters] for name in names}
    wide = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.Float64))
    return wide.with_columns(
        targets["row"], *(pl.col(name) * units[name].multiply / units[name].divide for name in names)
    ).select("row", *names)


def _renamed(names: list[str], targets: pl.DataFrame) -> int:
    """How many ranges have a name that is not the kernel's in the same position."""
    return sum(
        name not in {_UNNAMED, "", kernel} for name, kernel in zip(names, targets["name"].cast(pl.String), strict=True)
    )
