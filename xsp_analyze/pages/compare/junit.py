"""Rules as JUnit XML, which CI systems show beside tests: a test case a rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET  # written, not read

from xsp_analyze.compare.rules import Verdict
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.pages.compare.texts import change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.rules import Compared, Outcome

__all__ = ["render"]

_UNDECIDED = (Verdict.UNKNOWN, Verdict.INCONCLUSIVE)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(compared: Sequence[Compared]) -> bytes:
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


def _outcome(suite: ET.Element, outcome: Outcome) -> None:
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
