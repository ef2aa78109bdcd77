"""The page of a history: what changed last, each series as a chart with its changes, and what explains each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_analyze.history.changes import Kind
from xsp_analyze.history.facts import MEASURES
from xsp_analyze.history.trends import cause_text, shown_value, summary_sentences
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import page_by_script, program_and_version
from xsp_analyze.render.markdown import escape_markdown
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.history.trends import Event, Trend
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.trace.step_view import StepView

__all__ = ["markdown", "render"]

_MAX_CHARTS = 40
_MAX_ENTRIES = 12  # changes of a series that are told below its chart
_DIGITS = 5  # of a value on the page: of more, nothing is seen
_FOOTER = (
    "Times are of a mean step; runs stand in order of time. Numbers are shown rounded; a dash stands for what runs do"
    " not say. This page holds all it needs and loads nothing."
)
_CHANGED = (
    "One row a change, the newest first. A search proposes where the mean changed, and a t test and a rank test must"
    " both hold it, at 5 % over all runs of a series; four runs on either side are needed. What it is made of is from"
    " the facts of up to eight runs on either side."
)
_SERIES = (
    "One row a model, system, batch size, phase and branch, of which runs are held against each other. Noise is how far"
    " runs scatter from one to the next (a standard deviation); a change below about three times of it takes many runs"
    " to be seen."
)
_CHART = "A point a run; the line is the mean between changes, in the band by which single runs scatter around it."


def render(series: Sequence[Trend], left_out: Sequence[str], *, title: str, link: Callable[[str], str | None]) -> str:
    """The page; `link` makes of where a report lies what the page links to."""
    charts = [_series_section(number, trend, link) for number, trend in enumerate(series[:_MAX_CHARTS])]
    data = {
        "kind": "XSP history: runs of the same work over time",
        "title": title,
        "short": summary_sentences(series),
        "sections": [
            *_changes_section(series, link),
            _table_of_series(series),
            *charts,
            *_unread_files_section(left_out),
        ],
        "footer": f"{program_and_version()} {_FOOTER}",
    }
    return page_by_script(data, ["history.js"], ["history.css"])


def markdown(series: Sequence[Trend], left_out: Sequence[str], max_rows: int) -> str:
    """A summary for chat and mail: sentences, then the last changes, newest first."""
    lines = [*map(escape_markdown, summary_sentences(series)), ""]
    every = sorted(
        ((trend, each) for trend in series for each in trend.changes), key=lambda one: -one[1].first_after["time_ns"]
    )
    if every:
        lines += ["| when | series | what changed | mostly | between the runs around it |", "|---|---|---|---|---|"]
    for trend, each in every[:max_rows]:
        cells = (
            f"{each.first_after['time']:%Y-%m-%d}",
            trend.name,
            each.sentence,
            each.cause.split("; ")[0],
            each.differing,
        )
        lines.append(f"| {' | '.join(map(escape_markdown, cells))} |")
    if every[max_rows:]:
        lines.append(f"\n... and {count_of(len(every) - max_rows, 'earlier change', 'earlier changes')}.")
    return "\n".join([*lines, *(f"\n{escape_markdown(sentence)}." for sentence in left_out)]).rstrip() + "\n"


def _result(title: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> Result:
    table = pl.DataFrame(list(rows), schema={c.name: c.type_of(averaged=True) for c in columns}, orient="row")
    ledger = pl.DataFrame(schema=pl.Schema(TABLES["ledger"].schema))
    return Result(Analysis("history", title, (), columns, _of_runs), table, columns, lambda: ledger)


def _of_runs(frames: StepView) -> pl.LazyFrame:
    raise XspError(f"this table is of many runs, not of {frames.trace.origin}", advice="Use xsp history show")


_CHANGE_COLUMNS = (
    Column("since", pl.String(), "Day of the first run after it.", role=Role.KEY),
    Column("series", pl.String(), "What the runs have in common.", role=Role.KEY),
    Column("measure", pl.String(), "What changed.", role=Role.KEY),
    Column("change", pl.Float64(), "After over before, less 1.", "share"),
    Column("means", pl.String(), "The mean of runs before and after."),
    Column("mostly", pl.String(), "What explains most of it, of the facts on both sides."),
    Column("between", pl.String(), "Labels and versions that differ from the last run before to the first after."),
)


def _changes_section(series: Sequence[Trend], link: Callable[[str], str | None]) -> list[Section]:
    every = [(trend, each) for trend in series for each in trend.changes]
    if not every:
        return []
    every.sort(key=lambda one: -one[1].first_after["time_ns"])
    rows = [_row(trend, each) for trend, each in every]
    links = {"since": [_report(each.first_after, link) for _, each in every]}
    table = blocks.table(_result("What changed last", _CHANGE_COLUMNS, rows), name="changes", links=links)
    return [blocks.section("changes", "What changed last", "What changed last", _CHANGED, [table])]


def _row(trend: Trend, each: Event) -> tuple[Any, ...]:
    change = each.change
    means = " to ".join(shown_value(each.measure, value) for value in (change.before, change.after))
    day = f"{each.first_after['time']:%Y-%m-%d}"
    cause = each.cause.split("; ")[0] or None
    label = MEASURES[each.measure][0] + (" (drift)" if change.kind is Kind.DRIFT else "")
    return (day, trend.name, label, change.ratio - 1, means, cause, each.differing or None)


_SERIES_COLUMNS = (
    Column("series", pl.String(), "What the runs have in common.", role=Role.KEY),
    Column("run_count", pl.Int64(), "Runs in the history."),
    Column("last_run", pl.String(), "Day of the last one.", role=Role.LABEL),
    Column("step_time", pl.Float64(), "Of the last run.", "ns"),
    Column("run_noise", pl.Float64(), "How far step times scatter from one run to the next.", "share"),
    Column("busy_share", pl.Float64(), "Part of the time in which the device worked, of the last run.", "share"),
    Column("peak_memory_bytes", pl.Float64(), "Most memory in use, of the last run.", "byte"),
    Column("change_count", pl.Int64(), "Changes found."),
)


def _table_of_series(series: Sequence[Trend]) -> Section:
    rows = []
    for trend in series:
        last = trend.runs.row(-1, named=True)
        measures = (last["latency_ns"], trend.scatter, last["busy_share"], last["peak_memory_bytes"])
        rows.append((trend.name, trend.runs.height, f"{last['time']:%Y-%m-%d}", *measures, len(trend.changes)))
    more = f"Charts are of the first {_MAX_CHARTS}." if len(series) > _MAX_CHARTS else None
    table = blocks.table(_result("Series", _SERIES_COLUMNS, rows), name="series", left_out=more)
    return blocks.section("series", "Series", "Series", _SERIES, [table])


def _series_section(number: int, trend: Trend, link: Callable[[str], str | None]) -> Section:
    events = [_entry(each, link) for each in reversed(trend.changes)]
    lines = [blocks.entries(events, max_entries=_MAX_ENTRIES, more="see xsp history show -f json.")] if events else []
    if not events:
        lines = [blocks.text(trend.no_change_text)]
    label = clean(trend.key["model"] or "") if number < 8 else str(number + 1)  # noqa: PLR2004 (names fill the line)
    return blocks.section(f"series-{number + 1}", label, trend.name, _CHART, [_chart(trend, link), *lines])


def _entry(each: Event, link: Callable[[str], str | None]) -> tuple[str, str | None, str]:
    """The first run after it (with its report), and all that is known of the change."""
    causes = f" What changed the same way: {'; '.join(map(cause_text, each.causes))}." if each.causes else ""
    differing = f" Between the runs around it changed {each.differing}." if each.differing else ""
    unexplained = "" if each.causes or each.measure != "latency_ns" else " Nothing that the runs keep explains it."
    name = f"{each.first_after['time']:%Y-%m-%d %H:%M}"
    return name, _report(each.first_after, link), f"{each.sentence}.{causes}{unexplained}{differing}"


def _report(run: dict[str, Any], link: Callable[[str], str | None]) -> str | None:
    return link(run["report"]) if run.get("report") else None


def _chart(trend: Trend, link: Callable[[str], str | None]) -> Block:
    """Values of each measure by run, and what the pointer reads of a run."""
    runs = trend.runs
    measures = [name for name in MEASURES if runs[name].is_not_null().any()]
    shown = ("label.commit", "xsp", "framework", "label.driver")
    labels = [name for name in shown if name in runs.columns and runs[name].n_unique() > 1]
    texts = runs.select(
        pl.concat_str(
            pl.col("time").dt.strftime("%Y-%m-%d %H:%M"),
            *(pl.col(name).fill_null("-") for name in labels),
            separator=", ",
        )
    ).to_series()
    reports = runs["report"].to_list() if "report" in runs.columns else []
    return {
        "type": "trend",
        "title": trend.name,
        "times": (runs["time_ns"] // 1_000_000_000).to_list(),
        "texts": [clean(text) for text in texts],
        "links": [report and link(report) for report in reports],
        "measures": [_measure(name, trend) for name in measures],
        "read": "; ".join([count_of(runs.height, "run", "runs"), *(each.sentence for each in trend.changes[-3:])]),
    }


def _measure(name: str, trend: Trend) -> dict[str, Any]:
    label, unit = MEASURES[name]
    values = trend.runs[name].to_list()
    ends = {"low": "latency_low_ns", "high": "latency_high_ns"} if name == "latency_ns" else {}
    return {
        "label": label,
        "unit": unit,
        "values": _round_all(values),
        "scatter": trend.scatter if name == "latency_ns" else None,
        **{end: _round_all(trend.runs[column].to_list()) for end, column in ends.items()},
        "changes": [_mark(each, trend) for each in trend.changes if each.measure == name],
    }


def _mark(each: Event, trend: Trend) -> dict[str, Any]:
    """Where the change is on the axis of all runs, as some may lack the measure."""
    rows_with_it = trend.runs.with_row_index("place").filter(pl.col(each.measure) > 0)["place"]
    positions = {name: rows_with_it[getattr(each.change, name)] for name in ("at", "begin", "end")}
    return {**positions, "drift": each.change.kind is Kind.DRIFT, "worse": each.is_worse, "text": each.sentence}


def _round_all(values: Sequence[float | None]) -> list[float | int | None]:
    return [None if value is None else _short(value) for value in values]


def _short(value: float) -> float | int:
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded


def _unread_files_section(sentences: Sequence[str]) -> list[Section]:
    if not sentences:
        return []
    entries = [("", None, sentence) for sentence in sentences]
    means = "Files of the store that could not be read; the rest of the page stands without them."
    listed = blocks.entries(entries, max_entries=_MAX_ENTRIES, more=f"{count(len(sentences))} in all.")
    return [blocks.section("left-out", "Left out", "Left out", means, [listed])]
