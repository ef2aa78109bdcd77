"""Events of a kind as they stand in the file, with all their arguments: the scanners keep known ones only."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.counters.ncu_names import doubts, ncu_table, unit_of
from xsp_ingest.files.content import read_all
from xsp_ingest.files.values import characters, finite, int64, json_integer, nanoseconds
from xsp_ingest.formats.torch_profiler import categories as cat
from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.formats.torch_profiler.categories import COUNTER, PROFILER_RANGE
from xsp_ingest.formats.torch_profiler.scan_plain import integer
from xsp_ingest.link.spans import matches
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_NS_PER_US = 1000
__all__ = ["captured_launches", "range_metrics", "raw_events", "samples"]


def raw_events(
    path: Path,
    head: re.Pattern[str],
    is_one: Callable[[dict[str, Any]], bool],
    *,
    expected: int | None = None,
    parse_float: Callable[[str], Any] = float,
) -> Iterator[dict[str, Any]]:
    """The events that begin as Kineto writes them (`head`), found in the text; not finite numbers are null.

    Where none does, or another number than `expected`, another program wrote the file, with its keys in another order:
    then `is_one` chooses among all events.
    """
    text = read_all(path, damaged=refusal.cut_off).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_float=parse_float, parse_int=json_integer, parse_constant=lambda _: None)
    starts = [match.start() for match in head.finditer(text)]
    if starts and expected in (None, len(starts)):
        for start in starts:
            yield decoder.raw_decode(text, start)[0]
        return
    document = decoder.decode(text)
    entries = document.get("traceEvents") if isinstance(document, dict) else document
    yield from (event for event in entries or () if isinstance(event, dict) and is_one(event))


# What launches that were captured into a graph were of: ROCm writes it beside the call, for it has no kernel yet.

_BEGINS = r"(?i)^(cuda|cu|hip)StreamBeginCapture"
_CALL_HEAD = re.compile(
    r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(cat.CALL) + r')"\s*,\s*"name"\s*:\s*"[^"]*Launch'
)
_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_KEYS = ("process_id", "correlation_id", "name")
_FACTS: dict[str, pl.DataType] = {
    "process_id": pl.Int64(),
    "correlation_id": pl.Int64(),
    "name": pl.String(),
    "kernel_name": pl.String(),
    **{axis: pl.Int64() for axis in _AXES},
}


def captured_launches(spans: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The staging table `launches`; empty unless a graph was captured, as it takes the file's text once more."""
    if not matches(spans["name"], _BEGINS).any():
        return frame_of("launches")
    facts = pl.DataFrame(
        [_launch_facts(event) for event in raw_events(path, _CALL_HEAD, _is_call)], schema=_FACTS, orient="row"
    )
    named = facts.drop_nulls(["correlation_id", "kernel_name"])
    calls = spans.select("row", "process_id", "correlation_id", pl.col("name").cast(pl.String))
    first = named.unique(list(_KEYS), keep="first", maintain_order=True)
    return frame_of("launches", calls.join(first, on=list(_KEYS), how="inner", maintain_order="left"))


def _is_call(event: Mapping[str, object]) -> bool:
    return event.get("cat") in cat.CALL


def _launch_facts(event: Mapping[str, object]) -> tuple[object, ...]:
    written = event.get("args")
    args = written if isinstance(written, dict) else {}
    kernel = args.get("kernel")
    sizes = [_three(args.get(what)) for what in ("grid", "block")]
    return (
        int64(event.get("pid")),
        int64(args.get("correlation")),
        characters(str(event.get("name", ""))),
        characters(kernel) if isinstance(kernel, str) and kernel else None,
        *sizes[0],
        *sizes[1],
    )


def _three(value: object) -> tuple[int | None, int | None, int | None]:
    if not isinstance(value, list) or len(value) != len("xyz"):
        return None, None, None
    x, y, z = (int64(each) for each in value)
    return x, y, z


# Hardware counters sampled over time: events of phase C, each with values of several counters of one device.

_COUNTED_DEVICE = re.compile(r"GPU (\d+) Counters$")
_SAMPLE_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"C"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(COUNTER) + ')"')


class _Number(str):
    """A number as the file writes it: times are exact, and counters take what a float holds of it."""

    __slots__ = ()


def samples(expected: int, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `counters` from the file's samples, of which so many are expected, and what is unusable.

    Read from the text, as the scanners keep known arguments only. Counters of CUPTI are in base units.
    """
    if not expected:
        return frame_of("counters"), []
    rows, lost = [], 0
    for event in raw_events(path, _SAMPLE_HEAD, _is_sample, expected=expected, parse_float=_Number):
        args, time_ns = event.get("args"), nanoseconds(event.get("ts"), _NS_PER_US)
        own = str(event.get("name", ""))  # of the event: the counter's, where its argument has none
        values = {characters(n or own): _value(value) for n, value in args.items()} if isinstance(args, dict) else {}
        usable = {name: value for name, value in values.items() if value is not None and time_ns is not None}
        lost += max(len(values), 1) - len(usable)
        process = event.get("pid")
        named = _COUNTED_DEVICE.match(process) if isinstance(process, str) else None
        device = integer(named[1] if named else process)
        rows += [(time_ns, name, device, value) for name, value in usable.items()]
    schema = {"time_ns": pl.Int64, "counter": pl.String, "device_id": pl.Int64, "value": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row").join(_counter_units(rows), on="counter", how="left")
    table = table.with_columns(pl.col("value") * pl.col("multiply") / pl.col("divide"))
    detail = "samples of hardware counters without a time or a value, left out"
    return frame_of("counters", table.select("time_ns", "counter", "device_id", "value", "unit")), (
        [Finding(LedgerKind.GPU_METRIC_UNUSABLE, detail, lost)] if lost else []
    )


def _is_sample(event: dict[str, Any]) -> bool:
    return event.get("ph") == "C" and event.get("cat") in COUNTER


def _value(value: object) -> float | None:
    return None if isinstance(value, str) and not isinstance(value, _Number) else finite(value)


def _counter_units(rows: list[tuple[int | None, str, int | None, float]]) -> pl.DataFrame:
    """Each counter's unit, and by what its values are multiplied and divided."""
    names = sorted({name for _, name, _, _ in rows})
    units = [unit_of(name) for name in names]
    shares = [unit.name == "1" and unit.multiply != unit.divide for unit in units]  # that came as percentages
    return pl.DataFrame(
        {
            "counter": pl.Series(names, dtype=pl.String),
            "unit": pl.Series(
                ["share" if share else unit.name for unit, share in zip(units, shares, strict=True)], dtype=pl.String
            ),
            "multiply": pl.Series([float(unit.multiply) for unit in units], dtype=pl.Float64),
            "divide": pl.Series([float(unit.divide) for unit in units], dtype=pl.Float64),
        }
    )


# CUPTI's counters in a trace: one `cuda_profiler_range` a kernel in the order of launches, tied to what it counted.

_TOOL = "CUPTI in Kineto"
_RANGE_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"' + PROFILER_RANGE[0] + '"')
_LAUNCH_NAME = r"^(cuda|cu|hip)(Module)?Launch(Cooperative)?Kernel"
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
    other = _count_renamed([name for _, name, _ in ranges], targets) if what == "kernels" else 0
    measured = Measured(wide, {name: unit_of(name).name for name in wide.columns if name != "row"}, _TOOL)
    detail = f"profiler ranges were tied to {what} by their order; their own times are not those of kernels"
    return frame_of("metrics", canonical(measured, ncu_table(wide.columns))), [
        Finding(LedgerKind.PROFILER_RANGES_TIED, detail, len(ranges)),
        Finding(LedgerKind.PROFILER_RANGES_RENAMED, count=other),
        *doubts(wide.with_columns(pl.lit(None, pl.String).alias("compute_capability")), wide.columns),
    ]


def _ranges(path: Path) -> Iterator[tuple[float, str, dict[str, object]]]:
    """Start, name and counters of each range."""
    for event in raw_events(path, _RANGE_HEAD, _is_range):
        args = event.get("args")
        counters = {characters(name): value for name, value in args.items()} if isinstance(args, dict) else {}
        yield finite(event.get("ts")) or 0.0, str(event.get("name", "")), counters


def _is_range(event: dict[str, Any]) -> bool:
    return event.get("cat") in PROFILER_RANGE and event.get("ph") == "X"


def _targets(spans: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The kernels in the order of their launches, else the launches; one call each where the driver's is inside."""
    kernels = spans.filter(pl.col("kind") == Kind.KERNEL)
    calls = spans.filter(pl.col("level") == Level.RUNTIME, pl.col("kind") == Kind.CALL)
    launches = (
        calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCH_NAME))
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


def _count_renamed(names: list[str], targets: pl.DataFrame) -> int:
    """How many ranges have a name that is not the kernel's in the same position."""
    return sum(
        name not in {_UNNAMED, "", kernel} for name, kernel in zip(names, targets["name"].cast(pl.String), strict=True)
    )
