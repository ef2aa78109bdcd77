"""The tiles of the first screen: a number each, what it means, how it went over steps, and where more is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import result
from xsp_analyze.findings.facts import Facts
from xsp_analyze.frames.device_time import busy_without_start
from xsp_analyze.frames.model_time import load_test
from xsp_analyze.frames.step_values import (
    busy_by_step,
    coverage_by_step,
    latency_by_step,
    mean_of_several,
    peak_memory_by_step,
    throughput_by_step,
)
from xsp_analyze.pages.report import serving
from xsp_analyze.pages.report.overview import facts_by_label
from xsp_analyze.pages.report.step_bar import busiest
from xsp_analyze.pages.report.summary import over_ranks
from xsp_analyze.service import coverage_of, reached_sentence, reached_share
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count_of, duration, exact, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_analyze.frames.model_time import LoadTest
    from xsp_analyze.service import Answers
    from xsp_analyze.trace.runs import Runs

__all__ = [
    "mfu_by_step",
    "spark",
    "tiles",
    "tiles_of",
]

# What a load generator says of its test, for the first screen: is it valid, how fast, within its latency target?

_PERCENTILES = ("p50_00", "p99_00")
_Parts = tuple[str, str, str, str, str, str]  # identity, label, value, exact value, note, link


def tiles_of(test: LoadTest) -> Iterator[_Parts]:
    """Validity with its reason, the rate, the latency target, and percentiles of latency."""
    by = f"LoadGen says so of its {clean(test.test)} test."
    if test.valid is not None:
        yield "test", "Test", "valid" if test.valid else "INVALID", "", f"{by}{_why(test)}", "A01"
    if test.samples_per_s is not None:
        rate = test.samples_per_s
        yield "samples", "Throughput", quantity(rate, "samples/s"), f"{rate} samples/s", by, "A01"
    yield from _target(test)
    queue = " It counts from when a query was due, and holds its time in the queue." if test.has_queueing else ""
    for name in _PERCENTILES:
        if (latency := test.percentiles_ns.get(name)) is not None:
            label = f"Latency, {name.partition('_')[0]}"
            yield name, label, duration(latency), exact(latency, "ns"), f"{by}{queue}", "A01"


def _why(test: LoadTest) -> str:
    """Which rules the test broke, and what LoadGen adds to that."""
    rules = f" Not met: {', '.join(test.broken_rules)}." if test.broken_rules else ""
    return f"{rules} {clean(test.reason)}".rstrip()


def _target(test: LoadTest) -> Iterator[_Parts]:
    """Whether the percentile that counts was within the target, and how many queries were not."""
    target = test.target_latency_ns
    if target is None:
        return
    value = {True: "met", False: "MISSED", None: "not judged"}[test.meets_target]
    note = f"{_aim(test)} within {duration(target)}.{_percentile_sentence(test)}{_over(test)}"
    yield "target", f"Latency target {duration(target)}", value, exact(target, "ns"), note, "A01"


def _aim(test: LoadTest) -> str:
    return "Queries" if test.target_share is None else f"{share(test.target_share)} of queries are to be answered"


def _percentile_sentence(test: LoadTest) -> str:
    latency = test.percentiles_ns.get(test.target_name or "")
    return "" if latency is None else f" That percentile is {duration(latency)}."


def _over(test: LoadTest) -> str:
    part = test.over_target_share
    if part is None:
        return ""
    return f" {test.over_target_count:,} of {test.query_count:,} queries took longer ({share(part)})."


# Values of every step, which the tiles of the first screen draw as a line: latency, busy share, memory, coverage.

_MIN_STEPS = 2
_MAX_MARKS = 60  # of a line; of more steps each mark is of several


def mfu_by_step(answers: Answers) -> pl.DataFrame:
    """Step and value: model flop utilisation as B24 has it; no rows for a profile, whose runs have other steps."""
    if answers.is_leveled or not answers.step_count:
        return pl.DataFrame(schema={"step": pl.Int64, "value": pl.Float64})
    each = result(answers.per_step.of_each_step, "B24").table
    return each.filter(pl.col("scope") == "model").select("step", pl.col("mfu").alias("value")).drop_nulls()


def spark(answers: Answers, values: pl.DataFrame, runs: Runs, shown: Callable[[float], str]) -> dict[str, Any] | None:
    """The line over steps: a value a mark, and which are of ramp-up; None where fewer than two steps have one.

    `runs` are those that the values are of: profilers' stubs of steps are left out by them. Marks of many steps are
    means of several.
    """
    frames = answers.per_step
    if not frames.is_mean:
        return None
    worked, kept = (set(runs.of(steps)["step"]) for steps in (frames.worked_steps, frames.steps))
    rows = values.filter(pl.col("step").is_in(list(worked))).sort("step")
    if rows.height < _MIN_STEPS:
        return None
    rows = rows.with_columns(pl.col("step").is_in(list(kept)).not_().alias("is_left_out"))
    per_mark = -(-rows.height // _MAX_MARKS)
    marks = mean_of_several(rows, per_mark)
    return {
        "values": marks["value"].to_list(),
        "left_out": marks["is_left_out"].to_list(),
        "texts": [
            f"{_mark_name(int(step), per_mark)}: {shown(value)}{', ramp-up, left out of the mean' if left_out else ''}"
            for step, value, left_out in marks.select("step", "value", "is_left_out").iter_rows()
        ],
        "text": _line_description(rows, per_mark, shown),
    }


def _mark_name(step: int, per_mark: int) -> str:
    return f"step {step}" if per_mark == 1 else f"{per_mark} steps from {step} on, mean"


def _line_description(rows: pl.DataFrame, per_mark: int, shown: Callable[[float], str]) -> str:
    """What the line says, for who does not see it."""
    low, high = (float(v) for v in rows.select(pl.col("value").min(), pl.col("value").max().alias("high")).row(0))
    left_out = rows.filter("is_left_out").height
    ramp_up = f"; {count_of(left_out, 'step', 'steps')} of ramp-up, paler, left out of the mean" if left_out else ""
    marks = f"; a mark is the mean of {per_mark} steps" if per_mark > 1 else ""
    return f"Over {count_of(rows.height, 'step', 'steps')}: {shown(low)} to {shown(high)}{ramp_up}{marks}."


_Tile = dict[str, Any]


def tiles(answers: Answers) -> list[_Tile]:
    """The tiles whose number is known: step, throughput, busy, peak, memory, coverage."""
    makers = (_load_test, _step, _throughput, _busy, _peak, _memory, _coverage)
    return [tile for make in makers for tile in make(answers)]


def _tile(
    identity: str, label: str, value: str, exact: str, note: str, link: str, line: dict[str, Any] | None = None
) -> _Tile:
    return {
        "id": identity, "label": label, "value": value, "exact": exact, "note": clean(note.strip()), "link": link,
        "spark": line,
    }  # fmt: skip


def _load_test(answers: Answers) -> Iterator[_Tile]:
    """Of MLPerf's LoadGen, in its own words."""
    test = load_test(answers.trace)
    return (_tile(*parts) for parts in (tiles_of(test) if test is not None else ()))


def _step(answers: Answers) -> Iterator[_Tile]:
    """A step's time, or how long was recorded; of reports of sums the device time, as nothing says how long it took."""
    fact = facts_by_label(answers).get("Latency")
    if not answers.step_count and not answers.per_step.of_trace.has_starts:
        if (of_device := facts_by_label(answers).get("Device time")) is not None:
            yield _tile("step", "Device time", *of_device, "kernels")
        return
    if fact is None:
        return
    value, of_exact, note = fact
    phase = answers.per_step.serving_phase
    label = (f"{phase} step".capitalize() if phase else "Step") if answers.step_count else "Time recorded"
    if answers.of_load_test():
        label = "Latency, mean"
    row = answers.first("A15") or answers.of_model()
    low, high = row.get("low_ns"), row.get("high_ns")
    interval = f" The mean is within {duration(low)} to {duration(high)} (95 %)." if low and high else ""
    by_phase = f" {sentence}" if (sentence := serving.sentence(answers)) else ""
    runs = answers.per_step.of_trace.model_runs
    line = _line(answers, "latency", runs) if answers.step_count > 1 else None
    yield _tile("step", label, value, of_exact, f"{note}{over_ranks(answers)}{interval}{by_phase}", "timeline", line)


def _line(answers: Answers, what: str, runs: Runs) -> dict[str, Any] | None:
    if what == "latency":
        return spark(answers, latency_by_step(answers.per_step), runs, duration)
    return spark(answers, busy_by_step(answers.per_step), runs, share)


def _throughput(answers: Answers) -> Iterator[_Tile]:
    """Output tokens of a server, else inputs."""
    tokens = serving.output_rate(answers)
    if tokens is not None:
        per_second, note = tokens
        yield _tile(
            "throughput", "Throughput", quantity(per_second, "tokens/s"), f"{per_second} token/s", note, "serving"
        )
        return
    fact = facts_by_label(answers).get("Throughput")
    rate = answers.first("A15").get("throughput_per_s") or answers.of_model().get("throughput_per_s")
    if fact is None or not rate or not answers.step_count or _states_rate(answers):
        return
    value, _, note = fact
    runs = answers.per_step.of_trace.model_runs
    latency = answers.of_model().get("latency_ns")
    line = None
    if answers.step_count > 1 and latency:
        line = spark(answers, throughput_by_step(answers.per_step, rate, latency), runs, _inputs)
    yield _tile("throughput", "Throughput", value, f"{rate} inputs/s", note, "model", line)


def _states_rate(answers: Answers) -> bool:
    """Whether a load generator states how many samples were completed, which has a tile of its own."""
    test = load_test(answers.trace)
    return test is not None and test.samples_per_s is not None


def _inputs(rate: float) -> str:
    return quantity(rate, "inputs/s")


def _busy(answers: Answers) -> Iterator[_Tile]:
    fact = facts_by_label(answers).get("GPU share")
    if fact is None or (busiest(answers) is None and not answers.is_leveled):
        return
    value, of_exact, note = fact
    is_of_all = not answers.step_count and not answers.is_leveled
    if is_of_all and (part := busy_without_start(Facts(answers.per_step).devices)) is not None:
        note = f"Of the time without start-up and end; {value} of all that was recorded."
        value, of_exact = share(part), f"{part}"
    devices = answers.first("A15").get("device_count") or 1
    label = f"{devices} devices busy" if devices > 1 else "Device busy"
    runs = answers.per_step.of_trace.kernel_runs
    line = _line(answers, "busy", runs) if answers.step_count > 1 and not answers.is_leveled else None
    yield _tile("busy", label, value, of_exact, note, "devices", line)


def _peak(answers: Answers) -> Iterator[_Tile]:
    """MFU where it is known, else how near to their roofs operators run."""
    covered = coverage_of(answers)
    of_time = f" Modelled for {share(covered.modelled_share)} of device time." if covered else ""
    roof = reached_share(answers)
    of_roof = f" {sentence}." if (sentence := reached_sentence(answers)) else ""
    if (fact := facts_by_label(answers).get("MFU")) is not None:
        value, of_exact, note = fact
        line = spark(answers, mfu_by_step(answers), answers.per_step.of_trace.kernel_runs, share)
        value = value if covered is None or value.startswith(covered.at_least) else f"{covered.at_least}{value}"
        value = value.replace("at least ", "\u2265\u202f")  # in few letters: it is written large
        yield _tile("peak", "Of peak (MFU)", value, of_exact, f"{note}{of_roof}{of_time}", "rooflines", line)
    elif roof is not None:
        note = "The least time that the shapes of operators need on this device, over the time that these took."
        yield _tile("peak", "Of the roof", share(roof), f"{roof}", f"{note}{of_roof}", "gain")


def _memory(answers: Answers) -> Iterator[_Tile]:
    """The device memory that was most in use: what tensors hold, where that was counted."""
    result = answers.of("B09")
    if isinstance(result, str):
        return
    rows = result.table.filter(pl.col("device_id").is_not_null()).drop_nulls("peak_bytes")
    allocated = rows.filter(pl.col("counter").str.starts_with("allocated"))
    best = (allocated if allocated.height else rows).sort("peak_bytes", descending=True, maintain_order=True)
    if best.is_empty():
        return
    row = best.row(0, named=True)
    layer = f", in layer {row['peak_layer_name']}" if row["peak_layer_name"] is not None else ""
    what = " ".join(part for part in row["counter"].split("_") if part not in {"bytes", "memory"})
    note = f"Most {what} memory on device {row['device_id']}, {duration(row['peak_time_ns'])} from the start{layer}."
    held = _allocator_sentence(rows, row)
    peaks = peak_memory_by_step(answers.per_step, row)
    line = spark(answers, peaks, answers.per_step.of_trace.runs([row["run_id"]]), size)
    yield _tile(
        "memory",
        "Memory peak",
        size(row["peak_bytes"]),
        exact(row["peak_bytes"], "bytes"),
        f"{note}{held}",
        "B09",
        line,
    )


def _allocator_sentence(rows: pl.DataFrame, row: dict[str, Any]) -> str:
    """What the framework's allocator held at most, where that was counted too."""
    same = rows.filter(
        pl.col("run_id") == row["run_id"],
        pl.col("device_id") == row["device_id"],
        pl.col("counter") == "reserved_bytes",
    )
    return f" The allocator held {size(same['peak_bytes'][0])} at most." if same.height else ""


def _coverage(answers: Answers) -> Iterator[_Tile]:
    """The part of device time that is in layers; of a trace without layers none was to be."""
    part = answers.summary.coverage
    if part is None or not answers.summary.layer_count:
        return
    note = "Of device time over the whole trace, what is in a layer of the model."
    runs = answers.per_step.of_trace.kernel_runs
    line = spark(answers, coverage_by_step(answers.per_step), runs, share) if part else None
    yield _tile("coverage", "In layers", share(part), f"{part}", note, "ledger", line)
