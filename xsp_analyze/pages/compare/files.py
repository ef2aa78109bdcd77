"""A comparison as files for programs: JSON, whose keys docs/compare.md describes, and rules as JUnit XML for CI."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET  # written, not read

from xsp_analyze.compare.rules import Verdict
from xsp_analyze.pages.compare.sections import of_several, sections
from xsp_analyze.pages.compare.sentences import change, sentences, verdict
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.markdown import escape_markdown
from xsp_analyze.render.markdown import table_lines as markdown_lines
from xsp_analyze.render.terminal import table_lines, wrap_line
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import plain_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_analyze.compare.comparison import Comparison, Expected, Results
    from xsp_analyze.compare.parts import Waterfall
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.rules import Compared, RuleOutcome, Several

__all__ = [
    "document",
    "markdown",
    "markdown_of_several",
    "render",
    "render_junit",
    "render_several",
    "terminal",
    "terminal_of_several",
]

# Rules as JUnit XML, which CI systems show beside tests: a test case a rule.
_UNDECIDED = (Verdict.UNKNOWN, Verdict.INCONCLUSIVE)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(compared: Sequence[Compared]) -> bytes:
    """A suite a comparison, with a case for whether the sides compare and one a rule.

    A broken rule is a failure, one that is unknown or inconclusive is skipped.
    """
    suites = ET.Element("testsuites")
    for one in compared:
        _suite(suites, one)
    for key in ("tests", "failures", "errors", "skipped"):
        suites.set(key, str(sum(int(suite.get(key) or 0) for suite in suites)))
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(suites: ET.Element, one: Compared) -> None:
    c, verdicts = one.comparison, [o.verdict for o in one.outcomes]
    counts = {
        "tests": str(len(verdicts) + 1),
        "failures": str(verdicts.count(Verdict.VIOLATED) + (not c.comparable)),
        "errors": "0",
        "skipped": str(sum(map(_UNDECIDED.__contains__, verdicts))),
    }
    suite = ET.SubElement(suites, "testsuite", {"name": _text(one.name), **counts})
    case = _case(suite, "comparable")
    if not c.comparable:
        ET.SubElement(case, "failure", {"message": _text("; ".join(c.reasons)), "type": "not comparable"})
    ET.SubElement(case, "system-out").text = _text("\n".join([*sentences(c), f"latency {change(c.latency)}"]))
    for outcome in one.outcomes:
        _outcome(suite, outcome)


def _outcome(suite: ET.Element, outcome: RuleOutcome) -> None:
    case = _case(suite, outcome.rule.text)
    text = _text("\n".join(outcome.sentences))
    if outcome.verdict is Verdict.VIOLATED:
        first = _text(outcome.sentences[0])
        ET.SubElement(case, "failure", {"message": first, "type": "rule broken"}).text = text
    elif outcome.verdict in _UNDECIDED:
        ET.SubElement(case, "skipped", {"message": text})
    elif text:
        ET.SubElement(case, "system-out").text = text


def _case(suite: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": "xsp.compare", "name": _text(name)})


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


# A comparison as JSON; docs/compare.md describes every key.
_OF_MODEL = ("before_ns", "after_ns", "difference_ns", "ratio", "low", "high", "p_value", "rank_p_value",
             "significant", "conclusion")  # fmt: skip


def document(c: Comparison, outcomes: Sequence[RuleOutcome] = ()) -> dict[str, object]:
    """The comparison in JSON's own types; null is unknown, times are ns."""
    one, two = c.throughput
    latency, *others = c.model
    return {
        "comparable": c.comparable,
        "same_content": c.same_content,
        "failed": list(c.failed),
        "reasons": list(c.reasons),
        "differences": [_with_document_keys(asdict(d), kind="sort") for d in c.differences],
        "before": {"name": c.before.name, **asdict(c.before.facts)},
        "after": {"name": c.after.name, **asdict(c.after.facts)},
        "per": "input" if c.per_input else "step",
        "serving_phase": c.before.views[0].serving_phase,
        "match": {"layer": c.layer_match, "kernel": c.kernel_match, "layers_by": c.layer_pairing},
        "statistics": {
            "rows_tested": c.test_count,
            "rows_significant": sum(bool(row.significant) for row in c.rows),
            "false_discovery_rate": 0.05,
            "run_noise": c.run_noise,
            "run_noise_source": c.run_noise_source,
            "operator_times": c.operator_basis,
        },
        "model": {
            **_of_model(latency),
            **{row.name: _of_model(row) for row in others},
            "throughput_per_s": {"before": one, "after": two, "ratio": two / one if one and two else None},
        },
        "results": _results(c.results),
        "ranks": [asdict(pair) for pair in c.ranks],
        "expected": _expected_ratios(c.expected),
        "waterfall": _waterfall(c.waterfall),
        "waterfalls": [_waterfall(falls) for falls in c.waterfalls],
        "rows": [asdict(row) for row in c.rows],
        "moves": [asdict(one) for one in c.moves],
        "kernel_changes": [_with_document_keys(asdict(change), count="places") for change in c.changes],
        "regrouped_kernels": c.regrouped,
        "rules": [{"rule": o.rule.text, "verdict": str(o.verdict), "told": list(o.sentences)} for o in outcomes],
    }


def render(c: Comparison, outcomes: Sequence[RuleOutcome] = ()) -> str:
    """The document with one row a line."""
    parts = (f"{json.dumps(key)}: {_value(plain(value))}" for key, value in document(c, outcomes).items())
    return "{" + ",\n ".join(parts) + "}\n"


def render_several(several: Several) -> str:
    """`{"pairs": [a comparison's document with its `name`], "only_before": [...], "only_after": [...]}`."""
    documents = ",\n".join(_json_with_name(c) for c in several.compared)
    rest = {"only_before": list(several.only_before), "only_after": list(several.only_after)}
    return f'{{"pairs": [\n{documents}],\n {json.dumps(rest, ensure_ascii=False)[1:]}\n'


def _json_with_name(one: Compared) -> str:
    return f'{{"name": {json.dumps(one.name, ensure_ascii=False)},\n {render(one.comparison, one.outcomes)[1:]}'


def _of_model(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in _OF_MODEL}


def _results(came_to: Results) -> dict[str, object]:
    """Accuracies, and outputs with the distance from before to after."""
    return {
        "input_match": str(came_to.input_match),
        "accuracies": [{**asdict(p), "difference": p.difference, "is_worse": p.is_worse} for p in came_to.accuracies],
        "outputs": [
            {"name": p.name, **asdict(p.distance), "before_step": p.before.step, "after_step": p.after.step}
            for p in came_to.outputs
        ],
        "unmatched": list(came_to.unmatched),
    }


def _expected_ratios(one: Expected | None) -> dict[str, object] | None:
    """The ratios that the devices' peaks let expect."""
    if one is None:
        return None
    bounds = {
        name: None if bound is None else {**asdict(bound), "ratio": bound.ratio}
        for name, bound in (("memory", one.memory), ("compute", one.compute))
    }
    return {**bounds, "by_class": {"ratio": one.by_class, "modelled_share": one.modelled_share}}


def _waterfall(falls: Waterfall | None) -> dict[str, object] | None:
    if falls is None:
        return None
    parts = [_with_document_keys(asdict(part), kind="sort") for part in falls.parts]
    return {**asdict(falls), "parts": parts, "difference_ns": falls.difference_ns}


def _with_document_keys(values: Mapping[str, object], **key_of: str) -> dict[str, object]:
    """The values under the keys that the document has always had for these fields."""
    return {key_of.get(name, name): value for name, value in values.items()}


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[\n  {_lines(value)}\n ]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(values: Iterable[object]) -> str:
    return ",\n  ".join(json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values)


# A comparison for a terminal, fitted to its width, or as Markdown for a pull request.

_MARKS = {
    Verdict.KEPT: "ok",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.VIOLATED: "FAILED",
    Verdict.UNKNOWN: "unknown",
}
_MARK_WIDTH = 14
_IN_SUMMARY = 5


def terminal(
    c: Comparison, outcomes: Sequence[RuleOutcome] = (), *, width: int | None = None, rows: int | None = 10
) -> str:
    """Sentences, tables, and what became of the rules; null width: as wide as needed."""
    lines = [part for line in sentences(c) for part in wrap_line(line, width)]
    for each in sections(c, rows):
        lines += ["", each.title, *table_lines(each, width)]
    if outcomes:
        lines += ["", "Rules", *(part for o in outcomes for line in _rule_lines(o) for part in wrap_line(line, width))]
    return plain_spaces("\n".join(line.rstrip() for line in lines) + "\n")


def terminal_of_several(several: Several, *, width: int | None = None) -> str:
    """One table of models, and what became of the rules of each."""
    shown = of_several(several)
    lines = [shown.title, *table_lines(shown, width)]
    for one in several.compared:
        if one.outcomes:
            lines += ["", f"Rules, {clean(one.name)}"]
            lines += [part for o in one.outcomes for line in _rule_lines(o) for part in wrap_line(line, width)]
    return plain_spaces("\n".join(line.rstrip() for line in lines) + "\n")


def markdown_of_several(several: Several) -> str:
    """The table of models, then the summary of each model of which a rule is broken."""
    shown = of_several(several)
    violated = [c for c in several.compared if any(o.verdict is Verdict.VIOLATED for o in c.outcomes)]
    headline = (
        f"{len(violated)} of {len(several.compared)} models break performance rules" if violated else "Performance"
    )
    lines = [f"### {headline}", "", *markdown_lines(shown), "", *(escape_markdown(line) for line in shown.notes)]
    for one in violated:
        lines += ["", f"#### {escape_markdown(clean(one.name))}", "", markdown(one.comparison, one.outcomes)]
    return "\n".join(lines) + "\n"


def markdown(c: Comparison, outcomes: Sequence[RuleOutcome] = (), *, rows: int | None = _IN_SUMMARY) -> str:
    """A summary for a pull request: the verdict first, tables folded away below it."""
    lines = [f"### {_headline(c, outcomes)}", ""]
    lines += [f"- {escape_markdown(line)}" for line in sentences(c)]
    for outcome in outcomes:
        _, *lines_below = _rule_lines(outcome)
        lines.append(f"- **{_MARKS[outcome.verdict]}** {escape_markdown(outcome.rule.text)}")
        lines += [f"  - {escape_markdown(line.strip())}" for line in lines_below]
    tables = sections(c, rows)
    for first in tables[:1]:
        lines += ["", *markdown_lines(first), *([""] if first.notes else []), *map(escape_markdown, first.notes)]
    for each in tables[1:]:
        lines += ["", f"<details><summary>{escape_markdown(each.title)}</summary>", "", *markdown_lines(each), ""]
        lines += [*map(escape_markdown, each.notes), "</details>"]
    return "\n".join(lines) + "\n"


def _headline(c: Comparison, outcomes: Sequence[RuleOutcome]) -> str:
    violated = sum(o.verdict is Verdict.VIOLATED for o in outcomes)
    undecided = sum(o.verdict in {Verdict.INCONCLUSIVE, Verdict.UNKNOWN} for o in outcomes)
    text = "Performance rules kept"
    if violated or undecided:
        count, what = (violated, "broken") if violated else (undecided, "inconclusive")
        text = f"{count} of {len(outcomes)} performance rules {what}"
    latency = (
        "no difference"
        if c.same_content
        else ", ".join(filter(None, (f"latency {change(c.latency)}", verdict(c.latency))))
    )
    return escape_markdown(f"{text}: {latency}" if outcomes else f"Performance: {latency}")


def _rule_lines(outcome: RuleOutcome) -> list[str]:
    mark = _MARKS[outcome.verdict]
    more = len(outcome.sentences) - _IN_SUMMARY
    lines = [f"{mark:{_MARK_WIDTH}}{outcome.rule.text}"]
    lines += [f"{'':{_MARK_WIDTH}}{clean(sentence)}" for sentence in outcome.sentences[:_IN_SUMMARY]]
    return [*lines, f"{'':{_MARK_WIDTH}}and {more} more"] if more > 0 else lines
