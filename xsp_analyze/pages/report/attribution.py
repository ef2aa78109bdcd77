"""What the trace told and what it did not: where device time went, coverage, and parts that the page lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.frames import coverage
from xsp_analyze.frames.coverage import ATTRIBUTIONS
from xsp_analyze.frames.layers.nested_steps import nested_timelines
from xsp_analyze.pages import blocks
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of, duration, exact, share
from xsp_model import Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.frames.layers.nested_steps import Timeline
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = [
    "ids_of",
    "ledger",
    "longest",
    "overhead",
    "sentence",
    "split_sections",
]

# The part of a report that comes first: where device time went, and what the trace could not say.
_LABELS: Mapping[str, str] = {
    Attribution.LAYER: "in a layer",
    Attribution.MODEL_ONLY: "outside every layer",
    Attribution.GRAPH_REPLAY: "graph replay",
    Attribution.ORPHAN_BEFORE_WINDOW: "launched before the trace",
    Attribution.ORPHAN_NO_LAUNCH: "launch not in the trace",
    Attribution.ORPHAN_NO_CORRELATION: "no correlation id",
    Attribution.UNIFIED_MEMORY: "unified memory",
}


def ledger(answers: Answers) -> Section:
    """Where each nanosecond of device time went, then everything the trace could not say."""
    summary = answers.summary
    total = summary.device_time_ns
    bases = coverage.ways(answers.per_step.of_all_steps)
    parts = [_part(p.attribution, p.count, p.duration_ns, total, bases) for p in summary.attributed]
    drawn: list[Block] = [blocks.shares(parts)] if parts else [blocks.missing("No device work was recorded.")]
    rows = _findings(answers)
    if rows:
        drawn += [blocks.text("What could not be read, linked or attributed, and what to do about it:")]
        drawn += [blocks.findings(rows)]
    else:
        drawn += [blocks.text("Nothing else was lost or left out.")]
    return blocks.section("ledger", "Coverage", "What these numbers cover", _coverage_means(answers), drawn)


def _coverage_means(answers: Answers) -> str:
    parts = answers.summary.attributed
    if not parts:
        return "Where device time went, and what the trace could not say."
    total = answers.summary.device_time_ns
    time = "of unknown duration, which would be" if total is None else f"{duration(total)},"
    return (
        f"Every piece of device work in the trace is in exactly one of these places; together they are"
        f" {time} the sum of the durations of"
        f" {count(sum(p.count for p in parts))} activities.{answers.source_runs_sentence(kernels='all')}"
    )


def _part(attribution: str, number: int, time_ns: int | None, total_ns: int | None, bases: str) -> dict[str, Any]:
    kind = ATTRIBUTIONS[Attribution(attribution)]
    in_layer = attribution == Attribution.LAYER
    part = time_ns / total_ns if time_ns is not None and total_ns else None
    activities = count_of(number, "activity", "activities")
    return {
        "label": _LABELS[attribution],
        "tone": attribution,
        "severity": str(kind.severity),
        "share": part or 0,
        "shown": share(part),
        "value": duration(time_ns),
        "exact": activities if time_ns is None else f"{exact(time_ns, 'ns')} in {activities}",
        "sentence": f"{_capital(kind.sentence)}{bases if in_layer else ''}: {activities}.",
        "advice": "" if in_layer else kind.advice,
    }


def _findings(answers: Answers) -> list[dict[str, Any]]:
    """The ledger's other rows, the most serious first; what several runs have in common is said once."""
    rank = pl.col("severity").replace_strict(["error", "warning", "info"], [0, 1, 2], default=3)
    rows = coverage.ledger_entries(answers.per_step).sort(rank, maintain_order=True)
    several = len(answers.summary.runs) > 1
    return [
        {
            "severity": row["severity"],
            "count": count(row["count"]),
            "time": "" if row["duration_ns"] is None else duration(row["duration_ns"]),
            "text": _capital(row["detail"]).rstrip(".") + (_in_runs(row["run_id"], row["times"]) if several else ""),
            "advice": row["advice"].rstrip("."),
        }
        for row in rows.iter_rows(named=True)
    ]


def _in_runs(runs: list[int], times: int) -> str:
    if not runs:
        return f" (said {times} times)" if times > 1 else ""
    return f" (run {runs[0]})" if len(runs) == 1 else f" ({len(runs)} runs)"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


# What the page does not show for want of it in the trace: each part with why, and how to get it.
_ANSWERED_BY: Mapping[str, str] = {  # the analysis without which a section has nothing to show
    "tree": "A10", "timeline": "A10", "layers": "A02", "gpu": "A13", "types": "A06", "kernels": "A10", "devices": "B03",
    "modules": "B06", "overhead": "B02", "model": "A01", "ledger": "B01",
}  # fmt: skip
_OPTIONAL: Mapping[str, tuple[str, str]] = {  # made only where they have something: label, analysis
    "gain": ("Time to gain", "B23"), "overhead": ("Profiling overhead", "B02"),
    "serving": ("Prefill and decode", "B20"), "rooflines": ("Rooflines", "B11"),
}  # fmt: skip
_Missing = dict[str, Any]


def split_sections(answers: Answers, sections: Sequence[Section | None]) -> tuple[list[Section], list[_Missing]]:
    """The sections that show something; and of the others id, label, why it is not here and how to get it.

    Of every other analysis without an answer the same, by its id.
    """
    made = [one for one in sections if one is not None]
    empty = [one for one in made if one["blocks"] and all(block["type"] == "missing" for block in one["blocks"])]
    shown = [_without_unanswered(one) for one in made if one not in empty]
    missing = [_of_section(answers, one) for one in empty]
    missing += [
        _entry(identity, label, _why(answers, analysis), answers.advice_on(analysis))
        for identity, (label, analysis) in _OPTIONAL.items()
        if identity not in {one["id"] for one in made} and isinstance(answers.of(analysis), str)
    ]
    covered = {_ANSWERED_BY.get(one["id"]) or _OPTIONAL.get(one["id"], ("", ""))[1] for one in missing}
    return shown, missing + [one for one in _analyses(answers, made) if one["id"] not in covered]


def _of_section(answers: Answers, one: Section) -> _Missing:
    why = " ".join(dict.fromkeys(block["text"] for block in one["blocks"]))
    analysis = _ANSWERED_BY.get(one["id"])
    return _entry(one["id"], one["title"], why, answers.advice_on(analysis) if analysis else "")


def _why(answers: Answers, analysis: str) -> str:
    result = answers.of(analysis)
    return result if isinstance(result, str) else ""


def _without_unanswered(one: Section) -> Section:
    """The list of analyses without those that have no answer."""
    blocks = [
        {**block, "items": [item for item in block["items"] if not item["missing"]]}
        if block["type"] == "analyses"
        else block
        for block in one["blocks"]
    ]
    return {**one, "blocks": blocks}


def _analyses(answers: Answers, sections: Sequence[Section]) -> list[_Missing]:
    items = [
        item for one in sections for block in one["blocks"] if block["type"] == "analyses" for item in block["items"]
    ]
    return [
        _entry(item["id"], f"{item['id']} {item['title']}", item["missing"], answers.advice_on(item["id"]))
        for item in items
        if item["missing"]
    ]


def _entry(identity: str, label: str, why: str, how: str) -> _Missing:
    return {"id": identity, "label": label, "why": why, "how": f"{how.rstrip('.')}." if how else ""}


def ids_of(sections: Sequence[Section]) -> set[str]:
    """What links into the page may lead to: sections, and the analyses in them."""
    analyses = {
        item["id"]
        for one in sections
        for block in one["blocks"]
        if block["type"] == "analyses"
        for item in block["items"]
    }
    return {one["id"] for one in sections} | analyses


def longest(boxes: pl.DataFrame, max_rows: int) -> pl.DataFrame:
    """At most so many boxes, those that last longest, still in order of start."""
    if boxes.height <= max_rows:
        return boxes
    kept = boxes.with_row_index("place").sort("duration_ns", "place", descending=[True, False]).head(max_rows)
    return kept.sort("place").drop("place")


# The part of a report on what profiling itself cost: the nested timelines of a profile, and B02.

_MAX_BOXES = 3000  # of a kind on a timeline: more are narrower than a line
_MEANS = (
    "Profiling slows what it measures, and more the deeper it looks. Below, the mean step of the same work as each run"
    " saw it, drawn to one scale: a layer's box is its call, with the layers called in it below, and kernels beneath"
    " their layers. Red is what profiling at that level added: to the step at the end of its bar, to a layer at the end"
    " of its box. Elsewhere in this report each latency is from the run that disturbed it least."
)
_LINES: Mapping[str, tuple[str, str]] = {  # of each level: the name of its timeline, and what it adds
    "model": ("Model only (M)", "no profiler"),
    "layers": ("Layers profiled (ML)", "profiling layers"),
    "kernels": ("Kernels profiled (MLG)", "profiling kernels"),
}


def overhead(answers: Answers) -> Section | None:
    """The figure of nested timelines, then B02 as a table; None where the trace is no profile."""
    if not answers.is_leveled:
        return None
    result = answers.of("B02")
    title = ("overhead", "Overhead", "Profiling overhead", _MEANS)
    if isinstance(result, str):
        return blocks.section(*title, [blocks.missing(result)])
    lines = nested_timelines(answers.per_step)
    drawn: list[Block] = [_figure(lines, result)] if lines else []
    if any(max(t.layers.height, t.kernels.height) > _MAX_BOXES for t in lines):
        drawn.append(
            blocks.text(f"Of each timeline only the {count(_MAX_BOXES)} longest layers and kernels are drawn.")
        )
    return blocks.section(*title, [*drawn, blocks.table(result)])


def sentence(answers: Answers) -> str | None:
    """What profiling added to a step in total, for the page's head; None in a plain trace."""
    result = answers.of("B02")
    rows = [] if isinstance(result, str) else result.table.filter(level="total", scope="model").to_dicts()
    if not rows or rows[0]["overhead_ns"] is None:
        return None
    added, part = rows[0]["overhead_ns"], rows[0]["overhead_share"]
    what = f"Profiling down to kernels made a step {share(part)} longer ({duration(added)})"
    return f"{what}; the latency above is from the run without it." if added > 0 else None


def _figure(lines: Sequence[Timeline], result: Result) -> Block:
    names: dict[str, int] = {}
    costs = _costs(result.table)
    before: float | None = None
    drawn = []
    for line in lines:
        title, what = _LINES[line.level]
        boxes = _Boxes(names, costs)
        rows = boxes.layers(longest(line.layers, _MAX_BOXES))
        boxes.kernels(longest(line.kernels, _MAX_BOXES), rows)
        about = {"title": title, "what": what, "kernels": line.level == "kernels"}
        drawn.append({**about, "time": line.duration_ns, "before": before, **boxes.data})
        before = line.duration_ns
    return {"type": "timelines", "names": list(map(clean, names)), "lines": drawn, "layers": list(costs.values())}


def _costs(table: pl.DataFrame) -> dict[int, dict[str, Any]]:
    """Of each layer, by its index: latency without and with kernels profiled, and the difference."""
    rows = table.filter(level="kernel").drop_nulls("layer_index").iter_rows(named=True)
    keys = ("layer_index", "baseline_ns", "measured_ns", "overhead_ns", "overhead_share")
    return {row["layer_index"]: {key.removesuffix("_ns"): row[key] for key in keys} for row in rows}


class _Boxes:
    """The boxes of one timeline in columns: name (a number), kind, start and time in ns, row from the top, layer."""

    def __init__(self, names: dict[str, int], costs: Mapping[int, object]) -> None:
        self._names = names
        self._row_of = {index: row for row, index in enumerate(costs)}
        columns = ("name", "kind", "start", "duration", "row", "layer", "in")
        self.data: dict[str, list[Any]] = {column: [] for column in columns}

    def layers(self, rows: pl.DataFrame) -> int:
        """Adds the layers; returns how many rows they stand in."""
        columns = ("layer_index", "layer_name", "start_ns", "duration_ns", "depth")
        for index, name, start, time, depth in rows.select(columns).iter_rows():
            self._add(name, "layer", start, time, depth, index, None)
        return 0 if rows.is_empty() else 1 + max(rows["depth"].to_list())

    def kernels(self, rows: pl.DataFrame, row: int) -> None:
        """Adds the kernels, all in one row."""
        columns = ("name", "kind", "layer_index", "layer_name", "start_ns", "duration_ns")
        for name, kind, index, layer, start, time in rows.select(columns).iter_rows():
            self._add(name, kind, start, time, row, index, layer)

    def _add(
        self, name: str, kind: str, start: float, time: float, row: int, layer: int | None, inside: str | None
    ) -> None:
        index = None if layer is None else self._row_of.get(layer)
        values = (self._number(name), kind, round(start), round(time), row, index, inside and self._number(inside))
        for column, value in zip(self.data.values(), values, strict=True):
            column.append(value)

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))
