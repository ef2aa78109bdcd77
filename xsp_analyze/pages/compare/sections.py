"""Comparisons as tables of text, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.compare.parts import leading
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE
from xsp_analyze.core import Column
from xsp_analyze.pages.compare.sentences import (
    change,
    change_columns,
    interval,
    percent_change,
    rank_tables,
    results_table,
    signed_duration,
    unit_of_time,
    verdict,
    with_sign,
)
from xsp_analyze.text.table import Table, clean, of_rows, short_name
from xsp_analyze.text.units import apart, apart_in, count, count_of, cut, duration, number, scale_of, share, with_total
from xsp_model.devices import QUANTITIES

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison, Expected
    from xsp_analyze.compare.level_rows import Change
    from xsp_analyze.compare.parts import Contribution, Waterfall
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.rules import Compared, Several
    from xsp_analyze.text.units import Scale

__all__ = ["PageTable", "model_table", "of_several", "pairs_table", "parts", "peaks_table", "sections"]

# Which layer of one side was taken for which of the other, as a table.

_NONE = "-"


def pairs_table(c: Comparison, max_rows: int | None) -> Table:
    """One row a pair in the order in which layers run, with each side's name; those without a partner too."""
    labels = [side.layers[0].labels for side in (c.before, c.after)]
    measured = {row.layer_index: row for row in c.level("layer") if row.change == "same"}
    rows = []
    for i, j in c.pairs.rows[:max_rows]:
        row = measured.get(labels[0]["key"][i]) if i is not None and j is not None else None
        times = ["", "", "", ""]
        if row is not None:
            times = [*apart((row.before_ns, row.after_ns), "ns"), signed_duration(row.difference_ns), change(row)]
        rows.append([_of(labels[0], i, "layer_name"), _of(labels[1], j, "layer_name"), _type(labels, i, j), *times])
    before, after, difference, ratio, *_ = change_columns("")
    columns = [("layer before", "", False, 0), ("layer after", "", False, 0), ("type", "", False, 4), before, after,
               difference, ratio]  # fmt: skip
    title = f"Layers that were taken for one another ({count(len(c.pairs.rows))})"
    return of_rows(title, columns, rows, _notes(c, rows))


def _notes(c: Comparison, rows: list[list[str]]) -> list[str]:
    notes = [f"Layers are paired by {c.layer_pairing}: {share(c.pairs.rate)} of the longer side have a partner."]
    if left := len(c.pairs.rows) - len(rows):
        notes.append(f"{count(left)} more; --rows 0 shows all.")
    return notes


def _of(labels: pl.DataFrame, at: int | None, column: str) -> str:
    return _NONE if at is None else clean(str(labels[column][at]))


def _type(labels: list[pl.DataFrame], i: int | None, j: int | None) -> str:
    types = [_of(side, at, "layer_type") for side, at in zip(labels, (i, j), strict=True) if at is not None]
    return " and ".join(dict.fromkeys(types))


# The tables of the model: its latency and throughput with what is known of noise, and what peaks let expect.

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


_DIFFERENCE = "difference"
_PARTS = 10
_LEVELS = {
    "layer_type": ("layer type", "Types of layers"),
    "operator": ("operator", "Operators"),
    "kernel_class": ("class", "Classes of kernels"),
    "layer_block": ("layer of a block", "Layers of repeated blocks"),
    "layer": ("layer", "Layers"),
    "kernel": ("kernel", "Kernels"),
}
"""Of each level what a row is called and the title of its table; what sums up others first."""
_MOVED_SHOWN = 2
_LONGEST = 48

_BY = {"layer": "by layer", "layer_type": "by type of layer", "kernel_class": "by class of kernels"}


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table with its id and label on a page, and the waterfall that a page draws above it."""

    identity: str
    label: str
    table: Table
    waterfall: Waterfall | None = None


def parts(c: Comparison, max_rows: int | None = 10) -> list[PageTable]:
    """Every table of a page, with at most so many rows each; none where the two hold the same."""
    if c.same_content:
        return []
    every = [PageTable("model", "Model", model_table(c))]
    came_to = results_table(c)
    if came_to is not None:
        every.append(PageTable("results", "Results", came_to))
    every += [PageTable(f"ranks-{at}", "Ranks", table) for at, table in enumerate(rank_tables(c))]
    if c.expected is not None:
        every.append(PageTable("peaks", "Peaks", peaks_table(c, c.expected)))
    for at, falls in enumerate(c.waterfalls):
        identity = f"{_DIFFERENCE}-{falls.by}" if at else _DIFFERENCE
        every.append(PageTable(identity, f"Difference {_BY[falls.by]}", _waterfall(falls, max_rows), falls))
    every += [
        PageTable(level, title, _level(c, level, max_rows)) for level, (_, title) in _LEVELS.items() if c.level(level)
    ]
    if c.pairs.rate is not None:
        every.append(PageTable("pairs", "Pairs", pairs_table(c, max_rows)))
    if c.changes:
        every.append(PageTable("changes", "Changes", _changes(c, max_rows)))
    return every


def sections(c: Comparison, max_rows: int | None = 10) -> list[Table]:
    """The tables of `parts` that are read as text: one waterfall of several, and no pairs."""
    of_pages = {"pairs", *(f"{_DIFFERENCE}-{falls.by}" for falls in c.waterfalls[1:])}
    return [part.table for part in parts(c, max_rows) if part.identity not in of_pages]


def of_several(several: Several) -> Table:
    """A row a model, the largest change first; those that are not comparable last, with the reason."""
    ordered = sorted(several.compared, key=lambda c: (not c.comparison.comparable, -_size(c), c.name))
    notes = [
        f"Only {side}: {', '.join(names)}."
        for side, names in (("before", several.only_before), ("after", several.only_after))
        if names
    ]
    before, after, _, *rest = change_columns("")
    columns = [("model", "", False, 0), before, after, *rest, ("rows changed", "", True, 3),
               ("most of it in", "", False, 6)]  # fmt: skip
    return of_rows(f"Models ({count(len(ordered))})", columns, [_model_row(c) for c in ordered], notes)


def _size(one: Compared) -> float:
    return abs((one.comparison.latency.ratio or 1.0) - 1.0)


def _model_row(one: Compared) -> list[str]:
    c, row = one.comparison, one.comparison.latency
    significant = sum(bool(r.significant) for r in c.rows)
    rows = f"{count(significant)} of {count(c.test_count)}" if c.test_count else ""
    cause = _largest_part(c) if c.comparable else "; ".join(c.reasons)
    return [clean(one.name), *apart((row.before_ns, row.after_ns), "ns"), change(row), interval(row), verdict(row),
            rows, clean(cause)]  # fmt: skip


def _largest_part(c: Comparison) -> str:
    """The part of the difference that is largest among those with its sign."""
    parts = {part.name: float(part.difference_ns) for part in c.waterfall.parts} if c.waterfall else {}
    largest = leading(parts, float(c.waterfall.difference_ns) if c.waterfall else 0.0)
    return largest[0] if largest else ""


def _waterfall(falls: Waterfall, max_rows: int | None) -> Table:
    rest = falls.parts[-1]
    shown, left = falls.parts[:-1][:max_rows], falls.parts[:-1][max_rows or len(falls.parts) :]
    rows = [_part(part) for part in shown if part.difference_ns or len(shown) < _PARTS]
    differences = [part.difference_ns for part in shown if part.difference_ns or len(shown) < _PARTS]
    if left:
        rows.append([f"{count(len(left))} other parts", "", "", ""])
        differences.append(sum(p.difference_ns for p in left))
    rows += [_part(rest), ["all together", *apart((falls.before_ns, falls.after_ns), "ns"), ""]]
    differences += [rest.difference_ns, falls.difference_ns]
    texts = map(with_sign, differences, with_total(differences, "ns"))
    rows = [[*row[:3], text, row[3]] for row, text in zip(rows, texts, strict=True)]
    basis = "device time" if falls.basis == "device" else "time on the host"
    columns = [("part", "", False, 0), *change_columns("")[:3], ("most of it in", "", False, 6)]
    return of_rows(f"What the difference is made of, {_BY[falls.by]} ({basis})", columns, rows)


def _part(part: Contribution) -> list[str]:
    cause = short_name(part.kernel, _LONGEST) if part.kernel and part.difference_ns else ""
    return [clean(part.name), *apart((part.before_ns, part.after_ns), "ns"), cause]


def _level(c: Comparison, level: str, max_rows: int | None) -> Table:
    every = c.level(level)
    rows = every[:max_rows]
    significant = sum(bool(row.significant) for row in every)
    tested = sum(row.p_value is not None for row in every)
    scale = scale_of(Column("ns", pl.Float64(), "", "ns"), [v for r in rows for v in (r.before_ns, r.after_ns)])
    label, title = _LEVELS[level]
    columns = [(label, "", False, 0), *change_columns(scale.unit)]
    if level == "layer":
        columns.append(("most of it in", "", False, 6))
    below = [f"{count(len(every) - len(rows))} more rows; --rows 0 shows all."] if len(every) > len(rows) else []
    if tested:
        below.append(
            f"{count(significant)} of {count(tested)} tested rows are significant, at a false discovery rate of 5 %"
            f" over all {count(c.test_count)} rows."
        )
    if level == "kernel" and c.regrouped:
        below.append(f"{_kernels(c.regrouped)} the same time on both sides and another layer or attribution.")
    if level == "operator":
        title = f"{title} ({_BASIS[c.operator_basis]})"
    return of_rows(title, columns, [_row(row, scale, level) for row in rows], below)


_BASIS = {"device": "device time they launched", "host": "their own time on the host"}


def _row(row: Row, scale: Scale, level: str) -> list[str]:
    name = _name(row)
    difference = with_sign(row.difference_ns, number(row.difference_ns, scale))
    cells = [name, *apart_in((row.before_ns, row.after_ns), scale), difference, *_verdict_cells(row)]
    if level == "layer":
        cells.append(short_name(row.kernel, _LONGEST) if row.kernel and row.difference_ns else "")
    return cells


def _verdict_cells(row: Row) -> list[str]:
    """Change, interval and verdict; of time that moved where to, as it is neither slower nor faster."""
    others = row.moved_to or row.moved_from
    if not others:
        return [change(row), interval(row), verdict(row)]
    spell = short_name if row.level == "kernel" else clean
    names = " and ".join(cut(spell(name), _LONGEST) for name in others[:_MOVED_SHOWN])
    more = f" and {count(len(others) - _MOVED_SHOWN)} more" if len(others) > _MOVED_SHOWN else ""
    return ["moved", "", f"moved {'to' if row.moved_to else 'from'} {names}{more}"]


def _name(row: Row) -> str:
    if row.level != "kernel":
        return clean(row.path or row.name)
    name = short_name(row.name)
    return name if row.after_name is None else f"{name} -> {short_name(row.after_name)}"


def _changes(c: Comparison, max_rows: int | None) -> Table:
    rows = [_change_row(one) for one in c.changes[:max_rows]]
    below = [f"{count(len(c.changes) - len(rows))} more; --rows 0 shows all."] if len(c.changes) > len(rows) else []
    columns = [("kernels", "", False, 0), ("count", "", True, 2), *change_columns("")[:2], ("was", "", False, 1),
               ("is", "", False, 1), ("first in", "", False, 3)]  # fmt: skip
    return of_rows("Kernels that changed, in one step", columns, rows, below)


def _kernels(number: int) -> str:
    return count_of(number, "kernel has", "kernels have")


def _change_row(one: Change) -> list[str]:
    sides = ("; ".join(short_name(name, _LONGEST) for name in names) for names in (one.before, one.after))
    times = (duration(ns) if names else "" for ns, names in ((one.before_ns, one.before),
                                                             (one.after_ns, one.after)))  # fmt: skip
    return [str(one.kind), count(one.count), *times, *sides, clean(one.layers[0])]
