"""The tiles of the first screen: a number each, what it means, how it went over steps, and where more is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.formulas import quotient
from xsp_analyze.frames.model_time import load_test
from xsp_analyze.pages.report import serving, sparks
from xsp_analyze.pages.report.load_test import tiles_of
from xsp_analyze.pages.report.overview import facts_by_label
from xsp_analyze.pages.report.step_bar import busiest, has_starts
from xsp_analyze.pages.report.summary import over_ranks
from xsp_analyze.service.modelled_work import coverage_of, reached_share
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import duration, exact, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.service.answers import Answers
    from xsp_analyze.trace.runs import Runs

__all__ = ["tiles"]

_Tile = dict[str, Any]


def tiles(answers: Answers) -> list[_Tile]:
    """Those whose number is known: step, throughput, busy, peak, memory, coverage."""
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
    if not answers.step_count and not has_starts(answers):
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
        return sparks.spark(answers, sparks.latency_by_step(answers), runs, duration)
    return sparks.spark(answers, sparks.busy_by_step(answers), runs, share)


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
        of_step = pl.col("value")
        rates = (
            sparks.latency_by_step(answers)
            .filter(of_step > 0)
            .select("step", quotient(rate * latency, of_step).alias("value"))
        )
        line = sparks.spark(answers, rates, runs, _inputs)
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
    of_roof = f" Operators run at {share(roof)} of what their shapes allow on this device." if roof is not None else ""
    if (fact := facts_by_label(answers).get("MFU")) is not None:
        value, of_exact, note = fact
        line = sparks.spark(answers, sparks.mfu_by_step(answers), answers.per_step.of_trace.kernel_runs, share)
        yield _tile("peak", "Of peak (MFU)", value, of_exact, f"{note}{of_roof}{of_time}", "rooflines", line)
    elif roof is not None:
        note = "The least time that the shapes of operators need on this device, over the time that these took."
        yield _tile("peak", "Of the roof", share(roof), f"{roof}", f"{note}{of_time}", "gain")


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
    line = sparks.spark(
        answers, sparks.peak_memory_by_step(answers, row), answers.per_step.of_trace.runs([row["run_id"]]), size
    )
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
    """The part of device time that is tied to layers; of a trace without layers none was to be."""
    part = answers.summary.coverage
    if part is None or not answers.summary.layer_count:
        return
    note = "Of device time over the whole trace, what is tied to a layer of the model."
    runs = answers.per_step.of_trace.kernel_runs
    line = sparks.spark(answers, sparks.coverage_by_step(answers), runs, share) if part else None
    yield _tile("coverage", "Tied to layers", share(part), f"{part}", note, "ledger", line)
