"""Rules as JUnit XML, which CI systems show beside tests: a test case a rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET  # written, not read

from xsp_analyze.compare.rules import Verdict
from xsp_analyze.compare.sections import change, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome

__all__ = ["render"]

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(c: Comparison, outcomes: Sequence[Outcome]) -> bytes:
    """One suite, with a case for whether the sides compare and one a rule; broken is a failure, unknown is skipped."""
    broken = [o for o in outcomes if o.verdict is Verdict.BROKEN]
    unknown = [o for o in outcomes if o.verdict is Verdict.UNKNOWN]
    counts = {
        "tests": str(len(outcomes) + 1),
        "failures": str(len(broken) + (not c.comparable)),
        "errors": "0",
        "skipped": str(len(unknown)),
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "xsp compare", **counts})
    case = _case(suite, "comparable")
    if not c.comparable:
        ET.SubElement(case, "failure", {"message": _text("; ".join(c.reasons)), "type": "not comparable"})
    ET.SubElement(case, "system-out").text = _text("\n".join([*sentences(c), f"latency {change(c.latency)}"]))
    for outcome in outcomes:
        _outcome(suite, outcome)
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _outcome(suite: ET.Element, outcome: Outcome) -> None:
    case = _case(suite, outcome.rule.text)
    told = _text("\n".join(outcome.sentences))
    if outcome.verdict is Verdict.BROKEN:
        first = _text(outcome.sentences[0])
        ET.SubElement(case, "failure", {"message": first, "type": "rule broken"}).text = told
    elif outcome.verdict is Verdict.UNKNOWN:
        ET.SubElement(case, "skipped", {"message": told})
    elif told:
        ET.SubElement(case, "system-out").text = told


def _case(suite: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": "xsp.compare", "name": _text(name)})


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
