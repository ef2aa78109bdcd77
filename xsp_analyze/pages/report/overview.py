"""The model in a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.frames.kernels.measured_work import MIXED, MODELLED
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.utilisation import utilisation
from xsp_analyze.service.modelled_work import coverage_of
from xsp_analyze.text.units import count, duration, exact, quantity, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.service.answers import Answers
    from xsp_analyze.service.contents import Summary

__all__ = ["facts_by_label", "model"]


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
        calls = (
            f"called {count(summary.layer_call_count)} times in {'all' if answers.is_leveled else 'the whole trace'}"
        )
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
