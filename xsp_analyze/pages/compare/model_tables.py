"""The tables of the model: its latency and throughput with what is known of noise, and what peaks let expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE
from xsp_analyze.pages.compare.texts import (
    change,
    change_columns,
    interval,
    percent_change,
    signed_duration,
    unit_of_time,
    verdict,
    with_sign,
)
from xsp_analyze.text.table import Table, of_rows
from xsp_analyze.text.units import apart, count, share
from xsp_model.devices import QUANTITIES

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison, Expected

__all__ = ["model_table", "peaks_table"]

_STEPS_FOR_NOISE = 3


def model_table(c: Comparison) -> Table:
    per = unit_of_time(c)
    rows = [
        [{"latency": f"latency of {per}", "device_time": f"device time of {per}"}[row.name],
         *apart((row.before_ns, row.after_ns), "ns"), signed_duration(row.difference_ns), change(row),
         interval(row), verdict(row)]
        for row in c.model
    ]  # fmt: skip
    one, two = c.throughput
    if one and two:
        change_per_s = with_sign(two - one, f"{count(two - one)}/s")
        rates = (f"{rate}/s" for rate in apart((one, two), ""))
        rows.append(["throughput", *rates, change_per_s, percent_change(two / one), "", ""])
    return of_rows("Model", [("model", "", False, 0), *change_columns("")], rows, _on_noise(c))


def peaks_table(c: Comparison, peaks: Expected) -> Table:
    """What the devices' peaks let expect of the same work, beside what was measured."""
    rows = []
    for what, bound in (("bound by memory", peaks.memory), ("bound by compute", peaks.compute)):
        if bound is not None:
            unit = QUANTITIES[bound.quantity]
            rates = apart((bound.before, bound.after), unit)
            rows.append([f"expected if {what} ({bound.quantity})", *rates, percent_change(bound.ratio)])
    if peaks.by_class is not None:
        modelled = share(peaks.modelled_share or 0.0)
        what = f"expected by what bounds each operator ({modelled} of device time is modelled)"
        rows.append([what, "", "", percent_change(peaks.by_class)])
    rows += [
        [f"measured: {row.name.replace('_', ' ')}", *apart((row.before_ns, row.after_ns), "ns"), change(row)]
        for row in c.model
    ]
    columns = [("time, by the devices' peaks", "", False, 0), ("before", "", True, 1), ("after", "", True, 1),
               ("change of time", "", True, 1)]  # fmt: skip
    return of_rows("What the devices' peaks let expect", columns, rows)


def _on_noise(c: Comparison) -> list[str]:
    """What the intervals hold, in a sentence or two."""
    one, two = c.before.facts, c.after.facts
    if c.latency.p_value is None and not c.test_count:
        min_steps = min(one.steps, two.steps)
        why = (
            "a side was taken whole"
            if min_steps == 0
            else f"a side has {min_steps} {'step' if min_steps == 1 else 'steps'}"
        )
        return [
            f"No intervals: {why}, and noise shows in {_STEPS_FOR_NOISE} or more. Which changes are noise is unknown."
        ]
    lines = []
    lines += _on_ranks(c)
    if c.run_noise is not None and c.run_noise_source != "captures":
        lines.append(f"One capture a side: intervals hold the noise of the steps, and {share(c.run_noise)} between"
                     f" captures ({c.run_noise_source}). Give more captures to measure it.")  # fmt: skip
    return lines


def _on_ranks(c: Comparison) -> list[str]:
    """What a rank test says of latency, whatever the shape of noise; nothing where so few values can decide nothing."""
    row, min_p = c.latency, c.latency.rank_min_p
    if row.rank_p_value is None or min_p is None or min_p > FALSE_DISCOVERY_RATE:
        return []
    what = "capture" if c.before.facts.captures > 1 or c.after.facts.captures > 1 else "step"
    text = f"By rank alone (an exact Mann-Whitney test of {what}s) p is {row.rank_p_value:.2g}"
    if row.rank_p_value <= min_p and row.ratio is not None:
        text += f": every {what} after took {'longer' if row.ratio > 1 else 'less time'} than every one before"
    return [f"{text}."]
