"""A history as people ask it: its series, where each changed, what explains that, and what differs on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.history.causes import hold
from xsp_analyze.history.changes import MIN_SIDE, Kind, changes_in, scatter_of
from xsp_analyze.history.facts import MEASURES, SERIES, labels_in
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count_of, duration, quantity, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xsp_analyze.compare.rows import Row
    from xsp_analyze.history.changes import Change

__all__ = [
    "Event",
    "Trend",
    "cause_text",
    "document",
    "earlier_runs",
    "shown_value",
    "summary_sentences",
    "trends",
]

_FOLLOWED = ("latency_ns", "peak_memory_bytes")
"""What changes are looked for in: more measures would say the same thing in other words, and be wrong more often."""
_BETTER_IF_LESS = {"latency_ns", "device_time_ns", "peak_memory_bytes", "energy_j"}
_HELD = 8  # runs on either side of a change whose facts explain it
_CAUSES = 5
_EXPLAINED = 20  # changes of a series, newest first, that are explained: each reads the facts of some runs
_NOT_NAMED = {"label.report", "label.model", "label.system", "label.branch", "label.batch", "label.phase"}
_MAX_LABEL = 60


@dataclass(frozen=True)
class Event:
    """A change of a measure: the last run before and the first after it, what differs of them, and what explains it."""

    measure: str
    change: Change
    last_before: dict[str, Any]
    first_after: dict[str, Any]
    labels: Sequence[tuple[str, str | None, str | None]]
    causes: Sequence[Row] = ()

    @property
    def is_worse(self) -> bool:
        """Whether the measure went the way that nobody wants."""
        return (self.change.ratio > 1) == (self.measure in _BETTER_IF_LESS)

    @property
    def sentence(self) -> str:
        """`Step time rose by 5.1 % (4.6 % to 5.7 %), from 10.2 ms to 10.7 ms`."""
        change, label = self.change, MEASURES[self.measure][0]
        verb = "rose" if change.ratio > 1 else "fell"
        ends = sorted((abs(change.low - 1), abs(change.high - 1)))
        drift = "steadily " if change.kind is Kind.DRIFT else ""
        values = " to ".join(shown_value(self.measure, value) for value in (change.before, change.after))
        by = f"{share(abs(change.ratio - 1))} ({share(ends[0])} to {share(ends[1])})"
        return f"{label} {drift}{verb} by {by}, from {values}"

    @property
    def cause(self) -> str:
        """The causes in a sentence; empty where none is known."""
        return "; ".join(cause_text(row) for row in self.causes)

    @property
    def differing(self) -> str:
        """`commit 1a2b to 3c4d; driver 550 to 560`."""
        return "; ".join(f"{clean(name)} {_short(before)} to {_short(after)}" for name, before, after in self.labels)


@dataclass(frozen=True)
class Trend:
    """One series: its runs in order of time (a row each), and its changes in that order."""

    key: dict[str, str | None]
    runs: pl.DataFrame
    changes: Sequence[Event]

    @property
    def name(self) -> str:
        """What its runs have in common, in words."""
        parts = [self.key[name] for name in SERIES]
        batch = f"batch size {self.key['batch']}" if self.key["batch"] else None
        return clean(", ".join(filter(None, (parts[0], parts[1], batch, *parts[3:]))))

    @property
    def scatter(self) -> float | None:
        """How far step times scatter from one run to the next, as a share."""
        return scatter_of(self.runs.filter(pl.col("latency_ns") > 0)["latency_ns"].to_numpy())

    @property
    def no_change_text(self) -> str:
        """What is said of it where no change was found."""
        if self.runs.height < 2 * MIN_SIDE:
            return f"These are too few runs to tell a change by: it takes {MIN_SIDE} before it and as many after."
        return "No change was found: what these runs differ by is within their noise."


def cause_text(row: Row) -> str:
    """`aten::mm (operator) +1.2 ms`, or of a part of the step `idle: host +1.2 ms`."""
    kind = None if row.level == "part" else row.level.replace("_", " ")
    notes = [note for note in (kind, row.change if row.change in {"appeared", "vanished"} else None) if note]
    about = f" ({', '.join(notes)})" if notes else ""
    sign = "+" if (row.difference_ns or 0) > 0 else "-"
    return f"{clean(row.name)}{about} {sign}{duration(abs(row.difference_ns or 0))}"


def shown_value(measure: str, value: float | None) -> str:
    """The value with its unit, as people read it."""
    unit = MEASURES[measure][1]
    if value is None:
        return "unknown"
    if unit == "share":
        return share(value)
    return quantity(value, unit)


def _short(text: str | None) -> str:
    cleaned = clean(text) if text is not None else "unknown"
    return cleaned if len(cleaned) <= _MAX_LABEL else f"{cleaned[:_MAX_LABEL]}..."


def trends(runs: pl.DataFrame, facts_of: Callable[[Iterable[str]], list[pl.DataFrame]]) -> list[Trend]:
    """The series of `runs` (see `runs_of`), that which ran last first; `facts_of` gives all rows of some runs."""
    groups = runs.group_by(SERIES, maintain_order=True)
    series = [Trend(dict(zip(SERIES, key, strict=True)), part, _changes(part, facts_of)) for key, part in groups]
    return sorted(series, key=lambda trend: (-trend.runs["time_ns"][-1], trend.name))


def _changes(runs: pl.DataFrame, facts_of: Callable[[Iterable[str]], list[pl.DataFrame]]) -> list[Event]:
    events = []
    for measure in _FOLLOWED:
        runs_with_it = runs.filter(pl.col(measure) > 0)
        points = changes_in(runs_with_it[measure].to_numpy())
        ends = [0, *(point.at for point in points), runs_with_it.height]
        for at, change in enumerate(points):
            is_explained = len(points) - at <= _EXPLAINED
            events.append(
                _event(measure, runs_with_it, change, (ends[at], ends[at + 2]), facts_of if is_explained else None)
            )
    return sorted(events, key=lambda one: (one.first_after["time_ns"], _FOLLOWED.index(one.measure)))


def _event(
    measure: str,
    runs: pl.DataFrame,
    change: Change,
    around: tuple[int, int],
    facts_of: Callable[[Iterable[str]], list[pl.DataFrame]] | None,
) -> Event:
    """Of a step the runs beside it; of a drift those at its ends."""
    last, first = (change.begin, change.end) if change.kind is Kind.DRIFT else (change.at - 1, change.at)
    one, two = runs.row(last, named=True), runs.row(first, named=True)
    labels = [
        (name.removeprefix("label."), one[name], two[name])
        for name in labels_in(runs)
        if name not in _NOT_NAMED and one[name] != two[name]
    ]
    causes: Sequence[Row] = ()
    if facts_of is not None and measure == "latency_ns":
        begin, end = (last, first + 1) if change.kind is Kind.DRIFT else around
        half = (begin + end) // 2 if change.kind is Kind.DRIFT else change.at
        sides = runs["run"][max(begin, half - _HELD) : half], runs["run"][half : min(end, half + _HELD)]
        if change.kind is Kind.DRIFT:
            beside = _HELD // 2  # half of them level, as where nothing moves yet, or no more
            sides = (
                runs["run"][max(around[0], begin - beside) : min(begin + beside, half)],
                runs["run"][max(half, end - beside) : min(around[1], end + beside)],
            )
        causes = hold(*(facts_of(side.to_list()) for side in sides)).causes(_CAUSES)
    return Event(measure, change, one, two, labels, causes)


_BEFORE_GATE = 30


def earlier_runs(runs: pl.DataFrame, key: dict[str, str | None], time_ns: int, identity: str) -> list[str]:
    """The runs of a series that one of that time is held against: those since its last change, at most 30."""
    alike = [pl.col(name).eq_missing(pl.lit(key[name], pl.String)) for name in SERIES]
    before = runs.filter(*alike, pl.col("time_ns") <= time_ns, pl.col("run") != identity, pl.col("latency_ns") > 0)
    steps = [each.at for each in changes_in(before["latency_ns"].to_numpy()) if each.kind is Kind.STEP]
    since = before[steps[-1] :] if steps else before
    ids: list[str] = since["run"].tail(_BEFORE_GATE).to_list()
    return ids


# The history for programs, and in sentences.


def document(series: Sequence[Trend], left_out: Sequence[str]) -> dict[str, Any]:
    """The document of `-f json`: series with their runs' count, noise and changes."""
    return {"schema_version": 1, "series": list(map(_of_trend, series)), "left_out": list(left_out)}


def _of_trend(trend: Trend) -> dict[str, Any]:
    runs, last = trend.runs, trend.runs.row(-1, named=True)
    return {
        **trend.key,
        "run_count": runs.height,
        "first_time": _time(runs.row(0, named=True)),
        "last_time": _time(last),
        "last": {name: last[name] for name in MEASURES},
        "run_noise": trend.scatter,
        "changes": [_of_change(each) for each in trend.changes],
    }


def _of_change(event: Event) -> dict[str, Any]:
    change = event.change
    return {
        "measure": event.measure,
        "kind": str(change.kind),
        "is_worse": event.is_worse,
        "before": change.before,
        "after": change.after,
        **{name: getattr(change, name) for name in ("ratio", "low", "high", "p_value", "rank_p_value")},
        "last_before": _of_run(event.last_before),
        "first_after": _of_run(event.first_after),
        "differing": [{"name": name, "before": one, "after": two} for name, one, two in event.labels],
        "causes": [
            {"level": row.level, "name": row.name, "change": row.change, "before_ns": row.before_ns,
             "after_ns": row.after_ns, "difference_ns": row.difference_ns, "q_value": row.q_value}
            for row in event.causes
        ],
    }  # fmt: skip


def _of_run(run: dict[str, Any]) -> dict[str, Any]:
    return {"run": run["run"], "time": _time(run), "report": run.get("report")}


def _time(run: dict[str, Any]) -> str:
    return f"{run['time']:%Y-%m-%dT%H:%M:%SZ}"


def summary_sentences(series: Sequence[Trend]) -> list[str]:
    """What the history is, and what changed last, in a few sentences."""
    every = [(trend, each) for trend in series for each in trend.changes]
    runs = sum(trend.runs.height for trend in series)
    first = min(trend.runs["time"][0] for trend in series)
    last = max(trend.runs["time"][-1] for trend in series)
    in_series = f"{count_of(runs, 'run', 'runs')} in {count_of(len(series), 'series', 'series')}"
    sentences = [f"{in_series}, {first:%d %b %Y} to {last:%d %b %Y}."]
    if not every:
        longest = max(series, key=lambda trend: trend.runs.height)
        return [*sentences, longest.no_change_text]
    trend, newest = max(every, key=lambda one: one[1].first_after["time_ns"])
    after = trend.runs.filter(pl.col("time_ns") >= newest.first_after["time_ns"]).height
    when = f"on {newest.first_after['time']:%d %b %Y} ({count_of(after, 'run', 'runs')} since)"
    if newest.change.kind is Kind.DRIFT:
        when = f"from {newest.last_before['time']:%d %b} to {newest.first_after['time']:%d %b %Y}"
    sentences.append(f"{count_of(len(every), 'change', 'changes')} found. The last, of {trend.name}:")
    sentences.append(f"{newest.sentence}, {when}.")
    if newest.cause:
        sentences.append(f"It is mostly {newest.cause.split('; ')[0]}.")
    if newest.differing:
        sentences.append(f"Between the runs around it changed: {newest.differing}.")
    return sentences
