"""Comparisons as people read them: sentences and tables of text, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.compare.facts import DifferenceKind
from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE
from xsp_analyze.compare.waterfall import leading
from xsp_analyze.core import Column
from xsp_analyze.render.names import cut
from xsp_analyze.render.shown import clean, short_name
from xsp_analyze.render.table import Table, of_rows
from xsp_analyze.render.units import UNKNOWN, count, duration, number, quantity, scale_of
from xsp_model.device_table import QUANTITIES

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.expected import Expected
    from xsp_analyze.compare.facts import Facts
    from xsp_analyze.compare.kernel_changes import Change
    from xsp_analyze.compare.moves import ClassMoves
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.several import Compared, Several
    from xsp_analyze.compare.side import Side
    from xsp_analyze.compare.waterfall import Part as WaterfallPart
    from xsp_analyze.render.units import Scale

__all__ = [
    "WATERFALL",
    "Part",
    "change",
    "interval",
    "of_several",
    "parts",
    "sections",
    "sentences",
    "side_line",
    "signed_duration",
    "verdict",
]

WATERFALL = "difference"
"""The id of the part that a page draws the waterfall in."""

_PARTS = 10
_LEVELS = {
    "layer_type": ("layer type", "Types of layers"),
    "operator": ("operator", "Operators"),
    "kernel_class": ("class", "Classes of kernels"),
    "layer": ("layer", "Layers"),
    "kernel": ("kernel", "Kernels"),
}
"""Of each level what a row is called and the title of its table; what sums up others first."""
_MOVED_SHOWN = 2
_MOVED_TOLD = 3
_CLASSES_TOLD = 3
_LONGEST = 48
_STEPS_FOR_NOISE = 3


def sentences(c: Comparison) -> list[str]:
    """What stands above all tables: whether the two compare, in what they differ, how well they match.

    Of the same content that it is the same, and nothing else.
    """
    if c.same_content:
        return [clean(f"{c.before.name} and {c.after.name} hold the same: there is nothing to compare.")]
    lines = [f"before: {side_line(c.before)}", f"after:  {side_line(c.after)}"]
    if not c.comparable:
        lines.append(f"NOT COMPARABLE: {'; '.join(c.reasons)}. The ratios below compare different work.")
    other = [d for d in c.differences if d.kind is not DifferenceKind.WORK]
    differences = "; ".join(f"{d.what} ({d.before} before, {d.after} after)" for d in other)
    if differences:
        lines.append(f"Different: {differences}.")
    elif c.comparable:
        lines.append("Model, system and settings are the same, as far as the files tell.")
    else:
        lines.append("Nothing else that the files tell is different.")
    lines.append(_match(c))
    lines += [_moved(one) for one in c.moves[:_CLASSES_TOLD]]
    return [clean(line) for line in lines]


def side_line(side: Side) -> str:
    """One side in a line: its file, what ran, on what, how often."""
    facts: Facts = side.facts
    batch = f"batch {facts.batch_size}" if facts.batch_size else None
    framework = " ".join(filter(None, (facts.framework, facts.framework_version)))
    steps = f"{facts.steps} {'step' if facts.steps == 1 else 'steps'}" if facts.steps else "taken whole"
    if facts.captures > 1:
        steps += f" in each of {facts.captures} captures"
    parts = (facts.model, batch, facts.precision, framework, facts.device, steps)
    return f"{side.name} ({', '.join(part for part in parts if part)})"


def _match(c: Comparison) -> str:
    layers = (
        "unknown (a side has no layers)" if c.layer_match is None else f"{_percent(c.layer_match)} by {c.matched_by}"
    )
    kernels = "unknown (a side has none)" if c.kernel_match is None else _percent(c.kernel_match)
    return f"Counterparts found: layers {layers}; kernels {kernels} by name and launch."


def _moved(one: ClassMoves) -> str:
    per = f"{duration(one.before_ns)} before and {duration(one.after_ns)} after"
    less, more = (", ".join(_lost(part) for part in parts[:_MOVED_TOLD]) for parts in (one.losses, one.gains))
    return f"Time moved: of class {one.kernel_class}, {per} a step, there is less in {less}, and more in {more}."


def _lost(part: tuple[str, float]) -> str:
    return f"{part[0]} ({signed_duration(part[1])})"


@dataclass(frozen=True, slots=True)
class Part:
    """A table with its id and label on a page."""

    identity: str
    label: str
    table: Table


def parts(c: Comparison, max_rows: int | None = 10) -> list[Part]:
    """Every table, with at most so many rows each; none where the two hold the same."""
    if c.same_content:
        return []
    every = [Part("model", "Model", _model(c))]
    if c.expected is not None:
        every.append(Part("peaks", "Peaks", _by_peaks(c, c.expected)))
    if c.waterfall is not None:
        every.append(Part(WATERFALL, "Difference", _waterfall(c, max_rows)))
    every += [Part(level, title, _level(c, level, max_rows)) for level, (_, title) in _LEVELS.items() if c.level(level)]
    if c.changes:
        every.append(Part("changes", "Changes", _changes(c, max_rows)))
    return every


def sections(c: Comparison, max_rows: int | None = 10) -> list[Table]:
    """The tables of `parts`."""
    return [part.table for part in parts(c, max_rows)]


def of_several(several: Several) -> Table:
    """A row a model, the largest change first; those that are not comparable last, with the reason."""
    ordered = sorted(several.compared, key=lambda c: (not c.comparison.comparable, -_size(c), c.name))
    notes = [
        f"Only {side}: {', '.join(names)}."
        for side, names in (("before", several.only_before), ("after", several.only_after))
        if names
    ]
    before, after, _, *rest = _changed("")
    columns = [("model", "", False, 0), before, after, *rest, ("rows changed", "", True, 3),
               ("most of it in", "", False, 6)]  # fmt: skip
    return of_rows(f"Models ({len(ordered):,})", columns, [_model_row(c) for c in ordered], notes)


def _size(one: Compared) -> float:
    return abs((one.comparison.latency.ratio or 1.0) - 1.0)


def _model_row(one: Compared) -> list[str]:
    c, row = one.comparison, one.comparison.latency
    significant = sum(bool(r.significant) for r in c.rows)
    rows = f"{significant:,} of {c.tested:,}" if c.tested else ""
    cause = _largest_part(c) if c.comparable else "; ".join(c.reasons)
    return [clean(one.name), duration(row.before_ns), duration(row.after_ns), change(row), interval(row), verdict(row),
            rows, clean(cause)]  # fmt: skip


def _largest_part(c: Comparison) -> str:
    """The part of the difference that is largest among those with its sign."""
    parts = {part.name: float(part.difference_ns) for part in c.waterfall.parts} if c.waterfall else {}
    largest = leading(parts, float(c.waterfall.difference_ns) if c.waterfall else 0.0)
    return largest[0] if largest else ""


def _model(c: Comparison) -> Table:
    per = "an input" if c.per_input else "a step" if c.before.views[0].averaged else "the whole trace"
    rows = [
        [{"latency": f"latency of {per}", "device_time": f"device time of {per}"}[row.name],
         duration(row.before_ns), duration(row.after_ns), signed_duration(row.difference_ns), change(row),
         interval(row), verdict(row)]
        for row in c.model
    ]  # fmt: skip
    one, two = c.throughput
    if one and two:
        rows.append(["throughput", f"{one:,.1f}/s", f"{two:,.1f}/s", f"{two - one:+,.1f}/s", _percent_change(two / one),
                     "", ""])  # fmt: skip
    return of_rows("Model", [("model", "", False, 0), *_changed("")], rows, _on_noise(c))


def _by_peaks(c: Comparison, peaks: Expected) -> Table:
    """What the devices' peaks let expect of the same work, beside what was measured."""
    rows = []
    for what, bound in (("bound by memory", peaks.memory), ("bound by compute", peaks.compute)):
        if bound is not None:
            unit = QUANTITIES[bound.quantity]
            rates = quantity(bound.before, unit), quantity(bound.after, unit)
            rows.append([f"expected if {what} ({bound.quantity})", *rates, _percent_change(bound.ratio)])
    if peaks.by_class is not None:
        share = _percent(peaks.modelled_share or 0.0)
        what = f"expected by what bounds each operator ({share} of device time is modelled)"
        rows.append([what, "", "", _percent_change(peaks.by_class)])
    rows += [
        [f"measured: {row.name.replace('_', ' ')}", duration(row.before_ns), duration(row.after_ns), change(row)]
        for row in c.model
    ]
    columns = [("time, by the devices' peaks", "", False, 0), ("before", "", True, 1), ("after", "", True, 1),
               ("change of time", "", True, 1)]  # fmt: skip
    return of_rows("What the devices' peaks let expect", columns, rows)


def _changed(unit: str) -> list[tuple[str, str, bool, int]]:
    """The columns of a change; where there is no room the interval goes first, then the difference."""
    return [
        ("before", unit, True, 1),
        ("after", unit, True, 1),
        ("difference", unit, True, 4),
        ("change", "", True, 1),
        ("95 % interval", "", True, 5),
        ("significance", "", False, 2),
    ]


def _on_noise(c: Comparison) -> list[str]:
    """What the intervals hold, in a sentence or two."""
    one, two = c.before.facts, c.after.facts
    if c.latency.p_value is None and not c.tested:
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
        lines.append(f"One capture a side: intervals hold the noise of the steps, and {_percent(c.run_noise)} between"
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


def _waterfall(c: Comparison, max_rows: int | None) -> Table:
    falls = c.waterfall
    if falls is None:
        raise AssertionError
    rest = falls.parts[-1]
    shown, left = falls.parts[:-1][:max_rows], falls.parts[:-1][max_rows or len(falls.parts) :]
    rows = [_part(part) for part in shown if part.difference_ns or len(shown) < _PARTS]
    if left:
        rows.append([f"{len(left):,} other parts", "", "", signed_duration(sum(p.difference_ns for p in left)), ""])
    rows.append(_part(rest))
    rows.append(["all together", duration(falls.before_ns), duration(falls.after_ns),
                 signed_duration(falls.difference_ns), ""])  # fmt: skip
    basis = "device time" if falls.basis == "device" else "time on the host"
    columns = [("part", "", False, 0), *_changed("")[:3], ("most of it in", "", False, 6)]
    return of_rows(f"What the difference is made of ({basis})", columns, rows)


def _part(part: WaterfallPart) -> list[str]:
    cause = short_name(part.kernel, _LONGEST) if part.kernel and part.difference_ns else ""
    return [clean(part.name), duration(part.before_ns), duration(part.after_ns), signed_duration(part.difference_ns),
            cause]  # fmt: skip


def _level(c: Comparison, level: str, max_rows: int | None) -> Table:
    every = c.level(level)
    rows = every[:max_rows]
    significant = sum(bool(row.significant) for row in every)
    tested = sum(row.p_value is not None for row in every)
    scale = scale_of(Column("ns", pl.Float64(), "", "ns"), [v for r in rows for v in (r.before_ns, r.after_ns)])
    label, title = _LEVELS[level]
    columns = [(label, "", False, 0), *_changed(scale.unit)]
    if level == "layer":
        columns.append(("most of it in", "", False, 6))
    below = [f"{len(every) - len(rows):,} more rows; --rows 0 shows all."] if len(every) > len(rows) else []
    if tested:
        below.append(
            f"{significant:,} of {tested:,} tested rows are significant, at a false discovery rate of 5 % over all"
            f" {c.tested:,} rows."
        )
    if level == "operator":
        title = f"{title} ({_BASIS[c.operator_basis]})"
    return of_rows(title, columns, [_row(row, scale, level) for row in rows], below)


_BASIS = {"device": "device time they launched", "host": "their own time on the host"}


def _row(row: Row, scale: Scale, level: str) -> list[str]:
    name = _name(row)
    cells = [name, number(row.before_ns, scale), number(row.after_ns, scale), _signed(row.difference_ns, scale),
             *_judged(row)]  # fmt: skip
    if level == "layer":
        cells.append(short_name(row.kernel, _LONGEST) if row.kernel and row.difference_ns else "")
    return cells


def _judged(row: Row) -> list[str]:
    """Change, interval and verdict; of time that moved where to, as it is neither slower nor faster."""
    others = row.moved_to or row.moved_from
    if not others:
        return [change(row), interval(row), verdict(row)]
    spell = short_name if row.level == "kernel" else clean
    names = " and ".join(cut(spell(name), _LONGEST) for name in others[:_MOVED_SHOWN])
    more = f" and {len(others) - _MOVED_SHOWN:,} more" if len(others) > _MOVED_SHOWN else ""
    return ["moved", "", f"moved {'to' if row.moved_to else 'from'} {names}{more}"]


def _name(row: Row) -> str:
    if row.level != "kernel":
        return clean(row.path or row.name)
    name = short_name(row.name)
    return name if row.after_name is None else f"{name} -> {short_name(row.after_name)}"


def _changes(c: Comparison, max_rows: int | None) -> Table:
    rows = [_change_row(one) for one in c.changes[:max_rows]]
    below = [f"{len(c.changes) - len(rows):,} more; --rows 0 shows all."] if len(c.changes) > len(rows) else []
    columns = [("kernels", "", False, 0), ("count", "", True, 2), *_changed("")[:2], ("was", "", False, 1),
               ("is", "", False, 1), ("first in", "", False, 3)]  # fmt: skip
    return of_rows("Kernels that changed, in one step", columns, rows, below)


def _change_row(one: Change) -> list[str]:
    sides = ("; ".join(short_name(name, _LONGEST) for name in names) for names in (one.before, one.after))
    times = (duration(ns) if names else "" for ns, names in ((one.before_ns, one.before),
                                                             (one.after_ns, one.after)))  # fmt: skip
    return [str(one.kind), count(one.count), *times, *sides, clean(one.layers[0])]


def change(row: Row) -> str:
    """The change in percent, or in words where one side has none; large ones as a factor."""
    if row.change in {"appeared", "vanished"}:
        return "new" if row.change == "appeared" else "gone"
    return UNKNOWN if row.ratio is None else _percent_change(row.ratio)


_AS_FACTOR = 10.0
_UNBOUNDED = 1e4  # an interval this wide says nothing


def _percent_change(ratio: float) -> str:
    return f"{ratio:,.1f} x" if ratio >= _AS_FACTOR else f"{(ratio - 1) * 100:+.1f} %"


def interval(row: Row) -> str:
    """The ends of the interval as changes; empty where they are not known."""
    if row.low is None or row.high is None:
        return ""
    if row.high > _UNBOUNDED * row.low:
        return "unbounded"
    low, high = _percent_change(row.low), _percent_change(row.high)
    return f"{low.removesuffix(' %')} to {high}" if high.endswith("%") else f"{low} to {high}"


_VERDICTS = {
    Conclusion.CHANGED: "significant",
    Conclusion.UNCHANGED: "within noise",
    Conclusion.INCONCLUSIVE: "inconclusive",
}


def verdict(row: Row) -> str:
    """Whether the change is more than noise, in a word; empty where that is not known."""
    return "" if row.conclusion is None else _VERDICTS[row.conclusion]


def _signed(value: float | None, scale: Scale) -> str:
    return _with_sign(value, number(value, scale))


def signed_duration(value: float | None) -> str:
    """A difference of times, with its sign and the unit that suits it."""
    return _with_sign(value, duration(value))


def _with_sign(value: float | None, text: str) -> str:
    return f"+{text}" if value is not None and value > 0 else text


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"
