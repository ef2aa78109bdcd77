"""The part of a report on batch sizes: what grows with them, which is optimal, and the model under its roof at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.figures import figure
from xsp_analyze.pages.report.roofline import over_batch_sizes
from xsp_analyze.text.units import quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.service.answers import Answers

__all__ = ["batches"]

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
