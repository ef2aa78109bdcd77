"""Rules of `--fail-on`, as `model.latency > +3%` or `kernel["*gemm*"].time > +1ms`, on one comparison or several."""

from __future__ import annotations

import json
import math
import operator
import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from xsp_analyze.compare.rows import Conclusion
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rows import Row

__all__ = [
    "Baseline",
    "Compared",
    "Rule",
    "RuleOutcome",
    "Several",
    "Verdict",
    "absent",
    "check",
    "parse",
    "read",
    "with_baseline",
]

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
    "layer_type": ("latency", "time", "count"),
    "layer_block": ("latency", "time", "count"),
    "layer": ("latency", "time", "count"),
    "operator": ("time", "count"),
    "kernel_class": ("time", "count"),
    "kernel": ("time", "count"),
}
_EXAMPLE = (
    'Write it like "model.latency > +3%", \'layer["layer3.*"].latency > +10%\' or \'kernel["*gemm*"].time > +1ms\''
)


class Verdict(StrEnum):
    """What became of a rule for one row."""

    KEPT = "kept"
    VIOLATED = "broken"
    INCONCLUSIVE = "inconclusive"  # noise reaches across the threshold, or nothing is known of it
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
class RuleOutcome:
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
    return rule.subject != "model" and not _rows_of_rule(rule, comparison)


def check(rule: Rule, comparison: Comparison, *, strict: bool = False) -> RuleOutcome:
    """The rule held against every row that it is about; XspError where there is no such row.

    A row breaks a rule where its estimate lies beyond the threshold and it is significant, and keeps it where its whole
    interval does not lie beyond; else it is inconclusive. Where nothing is known of its noise the estimate can break a
    rule and not keep it. With `strict` the estimate alone decides, as it does of counts and of equal files.
    """
    rows = _rows(rule, comparison)
    judged = [(_verdict(rule, row, comparison, strict=strict), row) for row in rows]
    order = (Verdict.VIOLATED, Verdict.INCONCLUSIVE, Verdict.UNKNOWN, Verdict.KEPT)
    worst = min((verdict for verdict, _ in judged), key=order.index)
    if worst is Verdict.UNKNOWN and any(verdict is Verdict.KEPT for verdict, _ in judged):
        worst = Verdict.KEPT  # rows that only one side has have no ratio
    shown = [(verdict, row) for verdict, row in judged if verdict is worst] if worst is not Verdict.KEPT else []
    return RuleOutcome(
        rule, worst, [_sentence(rule, v, row, comparison) for v, row in shown], [row for _, row in shown]
    )


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
    rows = _rows_of_rule(rule, comparison)
    if not rows:
        none = f"there is no {rule.subject}" + (f" {rule.pattern!r}" if rule.pattern is not None else "")
        advice = f"Names are such as {every[0].path or every[0].name!r}" if every else ""
        raise XspError(f"{rule.text!r}: {none} on either side", advice=advice)
    return rows


def _rows_of_rule(rule: Rule, comparison: Comparison) -> list[Row]:
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
        return None if not before or after is None else _in_unit(rule, before, after)
    return _in_unit(rule, before or 0.0, after or 0.0)


def _in_unit(rule: Rule, before: float, after: float) -> float:
    if rule.unit in {"%", "x"}:
        return (after / before - 1) * 100 if rule.unit == "%" else after / before
    return (after - before) / _UNITS_NS[rule.unit] if rule.unit else after - before


def _verdict(rule: Rule, row: Row, comparison: Comparison, *, strict: bool) -> Verdict:
    change = _change(rule, row, comparison)
    if change is None:
        return Verdict.UNKNOWN
    is_beyond = _COMPARISONS[rule.comparison](change, rule.number)
    if strict or comparison.same_content or rule.metric == "count":
        return Verdict.VIOLATED if is_beyond else Verdict.KEPT
    if is_beyond:
        return Verdict.VIOLATED if row.significant is not False else Verdict.INCONCLUSIVE
    ends = _ends(rule, row, comparison)
    held = ends is not None and not any(_COMPARISONS[rule.comparison](end, rule.number) for end in ends)
    return Verdict.KEPT if held else Verdict.INCONCLUSIVE


def _ends(rule: Rule, row: Row, comparison: Comparison) -> tuple[float, ...] | None:
    """The ends of the row's interval in the rule's unit; null where nothing is known of its noise."""
    before, _ = _values(rule, row, comparison)
    if row.low is None or row.high is None or not before:
        return None
    ratios = (1 / row.high, 1 / row.low) if rule.metric == "throughput" else (row.low, row.high)
    return tuple(_in_unit(rule, before, before * ratio) for ratio in ratios)


def _sentence(rule: Rule, verdict: Verdict, row: Row, comparison: Comparison) -> str:
    subject = "model" if row.level == "model" else f"{row.level} {row.name}"
    change = _change(rule, row, comparison)
    if change is None:
        return f"{subject}: {rule.metric} is not known on both sides"
    measured = f"{change:+.4g}{' ' if rule.unit else ''}{rule.unit}" if rule.unit != "x" else f"{change:.4g} x"
    unsure = "; nothing is known of its noise" if row.significant is None and rule.metric != "count" else ""
    if verdict is Verdict.INCONCLUSIVE and not unsure:
        unsure = f"; noise reaches from {_reach(rule, row, comparison)}"
    return f"{subject}: {rule.metric} {'changed by' if rule.unit != 'x' else 'is at'} {measured}{unsure}"


def _reach(rule: Rule, row: Row, comparison: Comparison) -> str:
    low, high = _ends(rule, row, comparison) or (-math.inf, math.inf)
    unit = f" {rule.unit}" if rule.unit else ""
    return f"{low:+.4g} to {high:+.4g}{unit}" if rule.unit != "x" else f"{low:.4g} to {high:.4g} x"


def _either(choices: Sequence[str]) -> str:
    return " or ".join(choices)


# Many comparisons together: models of two batches, each compared.


@dataclass(frozen=True, slots=True)
class Compared:
    """A model of both batches, compared, with what became of the rules."""

    name: str
    comparison: Comparison
    outcomes: Sequence[RuleOutcome] = ()


@dataclass(frozen=True, slots=True)
class Several:
    """Models of two batches; those that only one of them has are named, not compared."""

    compared: Sequence[Compared]
    only_before: Sequence[str] = ()
    only_after: Sequence[str] = ()

    @property
    def any_violated(self) -> bool:
        """Whether a rule is broken."""
        return any(o.verdict is Verdict.VIOLATED for one in self.compared for o in one.outcomes)

    @property
    def any_undecided(self) -> bool:
        """Whether of a rule, or where a comparison has none of its latency, noise leaves open what to say."""
        return any(_is_open(one) for one in self.compared)


def _is_open(one: Compared) -> bool:
    if one.comparison.same_content:
        return False
    if one.outcomes:
        return any(o.verdict in {Verdict.INCONCLUSIVE, Verdict.UNKNOWN} for o in one.outcomes)
    return one.comparison.latency.conclusion in {None, Conclusion.INCONCLUSIVE}


# Named baselines: a TOML file that says which captures a name stands for.

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ADVICE = 'It holds tables such as [baselines.main] with inputs = ["before.json.gz"] (docs/compare.md)'


@dataclass(frozen=True, slots=True)
class Baseline:
    """A name's captures, as paths; relative ones in the file are relative to it."""

    name: str
    inputs: Sequence[str]
    note: str = ""


def read(file: Path) -> dict[str, Baseline]:
    """The baselines of the file, by name; XspError where it is none."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise XspError(
            "there is no such file of baselines", path=file, advice="Make one with --save-baseline"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise XspError(f"cannot be read as TOML ({error})", path=file, advice=_ADVICE) from error
    tables = content.get("baselines", {})
    if not isinstance(tables, dict):
        raise XspError("`baselines` is no table", path=file, advice=_ADVICE)
    return {name: _baseline(file, name, table) for name, table in tables.items()}


def _baseline(file: Path, name: str, table: object) -> Baseline:
    inputs = table.get("inputs") if isinstance(table, dict) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(i, str) and i for i in inputs):
        raise XspError(f"the baseline {name!r} names no inputs", path=file, advice=_ADVICE)
    note = table.get("note", "") if isinstance(table, dict) else ""
    return Baseline(name, [str(file.parent / i) for i in inputs], str(note))


def with_baseline(text: str, name: str, inputs: Sequence[str], note: str) -> str:
    """The text of a file of baselines with this one in it, in place of one of that name; the rest stays as it is."""
    if not _NAME.fullmatch(name):
        raise XspError(f"{name!r} cannot name a baseline", advice="Use letters, digits, - and _")
    lines = [f"[baselines.{name}]", f"inputs = [{', '.join(_toml_string(i) for i in inputs)}]"]
    lines += [f"note = {_toml_string(note)}"] if note else []
    entry = "\n".join(lines) + "\n"
    old = re.compile(rf"^\[baselines\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*", re.MULTILINE)
    match = old.search(text)
    if match is None:
        return f"{text.rstrip()}\n\n{entry}" if text.strip() else entry
    rest = text[match.end() :]
    return text[: match.start()] + entry + (f"\n{rest}" if rest else "")


def _toml_string(text: str) -> str:
    """A basic string of TOML: JSON's escapes are its own, but for the character 127."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
