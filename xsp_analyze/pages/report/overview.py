"""The parts of a report on the model: its few numbers, flop utilisation (B24), and batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.frames.kernels.measured_work import MIXED, MODELLED
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.figures import figure
from xsp_analyze.pages.report.roofline import over_batch_sizes
from xsp_analyze.service import coverage_of
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of, duration, exact, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.service import Answers, Summary

__all__ = ["batches", "facts_by_label", "model", "of_layer_types", "utilisation"]

# Model and hardware flop utilisation (B24) as a report tells them.

_ALL = 0.995  # from there on a share is shown as all of it
_MAX_TYPES = 6


def utilisation(answers: Answers) -> Iterator[tuple[str, str, str, str]]:
    """MFU, and HFU where what was computed again makes it another; nothing where no peak is known."""
    row = answers.first("B24")
    mfu, hfu = row.get("mfu"), row.get("hfu")
    if row.get("scope") != "model" or mfu is None:
        return
    counted = row["counted_share"]
    is_low = counted is not None and counted < _ALL
    lacks = (
        f" Flop of {share(counted)} of the time of such kernels are known, so it is at least this." if is_low else ""
    )
    note = (
        "Model flop utilisation: the flop of matrix products, convolutions and attention"
        f"{'' if hfu is None or hfu == mfu else ' without those computed again'}, by their shapes, at the peak of"
        f" {row['precision'] or 'their precision'}, over {'a step' if answers.step_count else 'the trace'}, idle time"
        f" included.{lacks}"
    )
    at_least = "at least " if is_low else ""
    yield "MFU", f"{at_least}{share(mfu)}", f"{mfu}", note
    if hfu is not None and hfu != mfu:
        yield (
            "HFU",
            f"{at_least}{share(hfu)}",
            f"{hfu}",
            "Hardware flop utilisation: the same with what was computed again.",
        )


def of_layer_types(answers: Answers) -> str | None:
    """`MFU while they run: Linear 4.1 %, Conv2d 20.3 %`: by flop, most first; None where no peak is known."""
    result = answers.of("B24")
    if isinstance(result, str):
        return None
    rows = result.table.filter(pl.col("scope") == "layer type").drop_nulls(["name", "mfu"])
    if rows.is_empty():
        return None
    first = rows.select("name", "mfu", pl.col("counted_share").fill_null(0) < _ALL).head(_MAX_TYPES)
    named = [f"{clean(name)} {'at least ' if is_low else ''}{share(mfu)}" for name, mfu, is_low in first.iter_rows()]
    more = f" and {rows.height - _MAX_TYPES} more types (B24)" if rows.height > _MAX_TYPES else ""
    return (
        f"Model flop utilisation of a type's device time, those with most flop first: {', '.join(named)}{more}."
        " Modelled from shapes; types without products have none."
    )


# The model in a few numbers.


def model(answers: Answers) -> Section:
    """Key numbers of the model, a sentence each."""
    means = f"The model as a whole, {answers.basis}."
    items = list(_facts(answers))
    block = blocks.facts(items) if items else blocks.missing("The trace holds neither steps nor device work.")
    return blocks.section("model", "Model", "The model", means, [block])


def facts_by_label(answers: Answers) -> dict[str, tuple[str, str, str]]:
    """Value, exact value and what it means, by the label that the section gives to each."""
    return {label: (value, exact, note) for label, value, exact, note in _facts(answers)}


def _facts(answers: Answers) -> Iterator[tuple[str, str, str, str]]:
    row, summary = {**answers.of_model(), **answers.first("A15")}, answers.summary
    latency = row.get("model_latency_ns", row.get("latency_ns"))
    if latency is not None:
        note = (
            _basis(row.get("latency_basis"))
            if answers.step_count or answers.of_load_test()
            else "From the first start to the last end of anything in the trace, as no steps are marked."
        )
        yield "Latency", duration(latency), _exact(latency), note + answers.source_runs_sentence(model="taken")
    if (busy := row.get("kernel_duration_ns")) is not None:
        note = "Sum of the durations of all kernels, copies and memsets."
        yield "Device time", duration(busy), _exact(busy), note + answers.source_runs_sentence(kernels="taken")
    if (part := row.get("gpu_share")) is not None:
        devices = row.get("device_count") or 1
        of = f"the {devices} devices'" if devices > 1 else "the device's"
        note = f"Time in which work ran, over {of} time in a step; idle for the rest."
        if answers.is_leveled:
            note = "Device time of the kernels run over the latency of the model run; see How the numbers were taken."
        yield "GPU share", share(part), f"{part}", note
    if (number := row.get("kernel_count")) is not None:
        yield (
            "Kernels and copies",
            count(number),
            "",
            "Pieces of device work; many short ones make a launch-bound model.",
        )
    if summary.layer_count:
        where = "all" if answers.is_leveled else "the whole trace"
        calls = f"called {count_of(summary.layer_call_count, 'time', 'times')} in {where}"
        yield (
            "Layers",
            count(summary.layer_count),
            "",
            f"With work of their own, {calls}{_caveat(summary)}.{answers.source_runs_sentence(layers='taken')}",
        )
    if row.get("throughput_per_s") is not None:
        by_load_test = answers.of_load_test()
        inputs = "1 input" if row["batch_size"] == 1 else f"{row['batch_size']} inputs"
        note = "As the load generator states." if by_load_test and not row["batch_size"] else f"With {inputs} a step."
        yield "Throughput", quantity(row["throughput_per_s"], "inputs/s"), "", note
    yield from _counter_tiles(row) if row.get("work_basis") != MODELLED else _model_tiles(answers, row)
    yield from utilisation(answers)


def _caveat(summary: Summary) -> str:
    return f"; {summary.layer_caveat}" if summary.layer_caveat else ""


def _counter_tiles(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What hardware counters say of the model; nothing where there were none."""
    if (flop := row.get("flop_count")) is not None:
        mixed = " Partly modelled from shapes." if row.get("work_basis") == MIXED else ""
        note = (
            f"FP32 operations, at {quantity(row['flop_per_s'], 'flop/s')} over the time of the kernels counted.{mixed}"
        )
        yield "Work", quantity(flop, "flop"), exact(flop, "flop"), note
    read, written = row.get("dram_read_bytes"), row.get("dram_write_bytes")
    if read is not None and written is not None:
        note = f"Of device memory: {size(read)} read, {size(written)} written."
        yield "Memory traffic", size(read + written), exact(read + written, "bytes"), note
    if (intensity := row.get("arithmetic_intensity")) is not None:
        bound = {True: "Memory bound.", False: "Compute bound.", None: "The device's peaks are unknown."}
        note = f"FP32 operations per byte of memory traffic. {bound[row['memory_bound']]}"
        yield "Arithmetic intensity", quantity(intensity, "flop/byte"), exact(intensity, "flop/byte"), note
    if (occupancy := row.get("achieved_occupancy")) is not None:
        note = "Active warps over the most possible, weighted by the durations of kernels."
        yield "Achieved occupancy", share(occupancy), f"{occupancy}", note


def _model_tiles(answers: Answers, row: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What the shapes of operators say of the model, where no counter measured it."""
    covered = coverage_of(answers)
    of_time = f" for {share(covered.modelled_share)} of device time" if covered else ""
    wording = f"Modelled from the shapes of operators{of_time}, not measured"
    products = answers.first("B24")
    if (flop := products.get("hardware_flop")) is not None:
        note = f"Products in {products['precision'] or 'unknown precisions'}, two flop a multiply-add. {wording}."
        yield "Work", quantity(flop, "flop"), exact(flop, "flop"), note
    read, written = row.get("dram_read_bytes"), row.get("dram_write_bytes")
    if read is not None and written is not None:
        note = f"The least that operators must move: {size(read)} read, {size(written)} written. {wording}."
        yield "Least memory traffic", size(read + written), exact(read + written, "bytes"), note


def _basis(bases: str | None) -> str:
    """What latency is measured by, in a sentence: of several bases that of most steps."""
    of_steps = [basis for basis in StepBasis if basis in (bases or "").split(" and ")]
    return f"{of_steps[0].sentence.capitalize()}." if of_steps else ""


def _exact(time_ns: float) -> str:
    return exact(round(time_ns), "ns")


# The part of a report on batch sizes: what grows with them, which is optimal, and the model under its roof at each.

_MEANS = (
    "The same work at each batch size that was run. Throughput is inputs per second of the latency that A01 takes; GPU"
    " share, flop and arithmetic intensity are there for the batch sizes whose device work was recorded."
)


def batches(answers: Answers) -> Section | None:
    """Sentences, figures over batch sizes and the table; None where the trace is of a single one."""
    result = answers.of("B38")
    if isinstance(result, str):
        return None
    lines = [*_which_is_shown(answers), *_sentences(result.table)]
    return blocks.section(
        "batches",
        "Batch sizes",
        "Batch sizes",
        _MEANS,
        [
            *map(blocks.text, lines),
            *figure(answers, result),
            *over_batch_sizes(answers),
            blocks.table(result, name="batch-sizes"),
        ],
    )


def _which_is_shown(answers: Answers) -> Iterator[str]:
    own = answers.of_model().get("batch_size")
    if answers.per_step.of_trace.has_other_batches and own is not None:
        yield (
            f"Everything else on this page is of batch size {own}; another one is chosen when the runs are merged, with"
            " --batch-size."
        )


def _sentences(table: pl.DataFrame) -> Iterator[str]:
    rows = table.drop_nulls("throughput_per_s").to_dicts()
    if rows:
        yield _on_throughput(rows)
    bounds = table.drop_nulls("bound")
    if bounds.height:
        yield _on_intensity(bounds.to_dicts())


def _on_throughput(rows: Sequence[dict[str, Any]]) -> str:
    optimal = next((row for row in rows if row["is_optimal"]), None)
    if optimal is None:
        fastest = max(rows, key=lambda row: row["throughput_per_s"])
        why = (
            "every doubling that was measured raised throughput by more than 5 %"
            if any(row["doubling_gain"] is not None for row in rows)
            else "no batch size and its double were both measured"
        )
        return (
            f"No optimal batch size by throughput: {why}. The most is"
            f" {quantity(fastest['throughput_per_s'], 'inputs/s')} at batch size {fastest['batch_size']}."
        )
    gain = optimal["doubling_gain"]
    changed = f"raises throughput by {share(gain)}" if gain >= 0 else f"lowers throughput by {share(-gain)}"
    return (
        f"The optimal batch size by throughput is {optimal['batch_size']}, with"
        f" {quantity(optimal['throughput_per_s'], 'inputs/s')}: doubling it {changed}, and up to 5 % is too little."
    )


def _on_intensity(rows: Sequence[dict[str, Any]]) -> str:
    first = next((row for row in rows if row["is_first_compute_bound"]), None)
    basis = (
        "by modelled work"
        if {row["work_basis"] for row in rows} == {"modelled"}
        else "by flop per byte of memory traffic"
    )
    what = f"In {rows[0]['precision']}, {basis},"
    if len({row["bound"] for row in rows}) == 1:
        return f"{what} the model is {rows[0]['bound']} bound at every batch size whose work is known."
    if first is None:
        bound = ", ".join(f"{row['bound']} at {row['batch_size']}" for row in rows)
        return f"{what} the model is not compute bound from any batch size on: {bound}."
    return f"{what} the model is compute bound from batch size {first['batch_size']} on, and memory bound just below."
