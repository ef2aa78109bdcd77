"""What `--fail-on` says: `model.latency > +3%`, `layer["layer3.*"].latency > +10%`, `kernel["*gemm*"].time > +1ms`.

    RULE      = SUBJECT "." METRIC COMPARISON THRESHOLD
    SUBJECT   = "model" | ("layer" | "operator" | "kernel") [ "[" PATTERN "]" ]
    METRIC    = "latency" | "time" | "device_time" | "throughput" | "count"
    COMPARISON= ">" | ">=" | "<" | "<="
    THRESHOLD = a signed number with "%", "ns", "us", "ms" or "s" (a change), "x" (the ratio), or nothing (of a count)

A pattern is in quotes, with the wildcards of a shell: `*`, `?`, `[abc]`; it is held against names and paths.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rows import Row

__all__ = ["Outcome", "Rule", "Verdict", "absent", "check", "parse"]

_RULE = re.compile(
    r"""\s*(?P<subject>\w+)
        (?:\s*\[\s*(?P<quote>["'])(?P<pattern>.*?)(?P=quote)\s*\])?
        \s*\.\s*(?P<metric>\w+)
        \s*(?P<comparison>>=|<=|>|<)
        \s*(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)
        \s*(?P<unit>%|ns|us|\u00b5s|ms|s|x|)\s*""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_UNITS_NS = {"ns": 1.0, "us": 1e3, "\u00b5s": 1e3, "ms": 1e6, "s": 1e9}
_METRICS = {
    "model": ("latency", "device_time", "throughput"),
    "layer": ("latency", "time", "count"),
    "operator": ("time", "count"),
    "kernel": ("time", "count"),
}
_EXAMPLE = (
    'Write it like "model.latency > +3%", \'layer["layer3.*"].latency > +10%\' or \'kernel["*gemm*"].time > +1ms\''
)


class Verdict(StrEnum):
    """What became of a rule for one row."""

    KEPT = "kept"
    NOISE = "within noise"  # beyond the threshold, and no farther than noise reaches
    VIOLATED = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, parsed; `text` is as it was written."""

    text: str
    subject: str
    pattern: str | None
    metric: str
    comparison: str
    number: float
    unit: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule held against a comparison: the worst verdict of its rows, those rows, and sentences on them."""

    rule: Rule
    verdict: Verdict
    sentences: Sequence[str]
    rows: Sequence[Row]


def parse(text: str) -> Rule:
    """The rule; XspError that says what is wrong with it."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise XspError(f"{text!r} is no rule", advice=_EXAMPLE)
    part = match.groupdict()
    subject, metric, unit = part["subject"], part["metric"], part["unit"]
    if subject not in _METRICS:
        raise XspError(f"{text!r}: there is no {subject!r}", advice=f"A rule is about {_either(list(_METRICS))}")
    if metric not in _METRICS[subject]:
        raise XspError(f"{text!r}: a {subject} has no {metric!r}", advice=f"It has {_either(_METRICS[subject])}")
    if part["pattern"] is not None and subject == "model":
        raise XspError(f"{text!r}: there is one model", advice="Leave the pattern out")
    if unit == "" and metric != "count":
        raise XspError(f"{text!r}: the threshold has no unit", advice="Give %, x, ns, us, ms or s")
    if unit in _UNITS_NS and metric in {"count", "throughput"}:
        raise XspError(f"{text!r}: a {metric} is no time", advice="Give % or x")
    return Rule(text, subject, part["pattern"], metric, part["comparison"], float(part["number"]), unit)


def absent(rule: Rule, comparison: Comparison) -> bool:
    """Whether the comparison has no row that the rule is about."""
    return rule.subject != "model" and not _named(rule, comparison)


def check(rule: Rule, comparison: Comparison, *, strict: bool = False) -> Outcome:
    """The rule held against every row that it is about; XspError where there is no such row.

    A row breaks a rule where its estimate lies beyond the threshold and it is significant; where nothing is known of
    its noise, or with `strict`, by the estimate alone.
    """
    rows = _rows(rule, comparison)
    judged = [(_verdict(rule, row, comparison, strict=strict), row) for row in rows]
    order = (Verdict.VIOLATED, Verdict.NOISE, Verdict.UNKNOWN, Verdict.KEPT)
    worst = min((verdict for verdict, _ in judged), key=order.index)
    if worst is Verdict.UNKNOWN and any(verdict is Verdict.KEPT for verdict, _ in judged):
        worst = Verdict.KEPT  # rows that only one side has have no ratio
    shown = [(verdict, row) for verdict, row in judged if verdict is worst] if worst is not Verdict.KEPT else []
    return Outcome(rule, worst, [_sentence(rule, v, row, comparison) for v, row in shown], [row for _, row in shown])


def _rows(rule: Rule, comparison: Comparison) -> list[Row]:
    if rule.subject == "model":
        name = "device_time" if rule.metric == "device_time" else "latency"
        rows = [row for row in comparison.model if row.name == name]
        if not rows:
            raise XspError(f"{rule.text!r}: one of the sides recorded no device work")
        if None in _values(rule, rows[0], comparison):
            raise XspError(
                f"{rule.text!r}: {rule.metric} is not known on both sides",
                advice="Throughput needs a batch size: describe the runs in a run.json (docs/run-set.md)",
            )
        return rows
    every = comparison.level(rule.subject)
    rows = _named(rule, comparison)
    if not rows:
        none = f"there is no {rule.subject}" + (f" {rule.pattern!r}" if rule.pattern is not None else "")
        advice = f"Names are such as {every[0].path or every[0].name!r}" if every else ""
        raise XspError(f"{rule.text!r}: {none} on either side", advice=advice)
    return rows


def _named(rule: Rule, comparison: Comparison) -> list[Row]:
    return [row for row in comparison.level(rule.subject) if rule.pattern is None or _matches(rule.pattern, row)]


def _matches(pattern: str, row: Row) -> bool:
    return any(fnmatchcase(name, pattern) for name in (row.name, row.after_name, row.path) if name)


def _values(rule: Rule, row: Row, comparison: Comparison) -> tuple[float | None, float | None]:
    if rule.metric == "count":
        return row.before_count, row.after_count
    if rule.metric == "throughput":
        return tuple(comparison.throughput)  # type: ignore[return-value]
    return row.before_ns, row.after_ns


def _change(rule: Rule, row: Row, comparison: Comparison) -> float | None:
    """The change in the rule's unit; null: unknown."""
    before, after = _values(rule, row, comparison)
    if before is None and after is None:
        return None
    if rule.unit in {"%", "x"}:
        if not before or after is None:
            return None
        return (after / before - 1) * 100 if rule.unit == "%" else after / before
    difference = (after or 0.0) - (before or 0.0)
    return difference / _UNITS_NS[rule.unit] if rule.unit else difference


def _verdict(rule: Rule, row: Row, comparison: Comparison, *, strict: bool) -> Verdict:
    change = _change(rule, row, comparison)
    if change is None:
        return Verdict.UNKNOWN
    if not _COMPARISONS[rule.comparison](change, rule.number):
        return Verdict.KEPT
    by_estimate = strict or row.significant is None or rule.metric == "count"
    return Verdict.VIOLATED if by_estimate or row.significant else Verdict.NOISE


def _sentence(rule: Rule, verdict: Verdict, row: Row, comparison: Comparison) -> str:
    subject = "model" if row.level == "model" else f"{row.level} {row.name}"
    change = _change(rule, row, comparison)
    if change is None:
        return f"{subject}: {rule.metric} is not known on both sides"
    measured = f"{change:+.4g}{' ' if rule.unit else ''}{rule.unit}" if rule.unit != "x" else f"{change:.4g} x"
    if verdict is Verdict.NOISE:
        return f"{subject}: {rule.metric} changed by {measured}, no farther than noise reaches"
    unsure = "; nothing is known of its noise" if row.significant is None and rule.metric != "count" else ""
    return f"{subject}: {rule.metric} {'changed by' if rule.unit != 'x' else 'is at'} {measured}{unsure}"


def _either(choices: Sequence[str]) -> str:
    return " or ".join(choices)
