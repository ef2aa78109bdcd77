"""Findings: what in a trace is worth doing next, and what to doubt, each by a rule with a threshold."""

from __future__ import annotations

from xsp_analyze.findings.advice import Advice, Evidence, Observation, Rule
from xsp_analyze.findings.registry import RULES, advise
from xsp_analyze.findings.verdict import Bound, Verdict, verdict

__all__ = ["RULES", "Advice", "Bound", "Evidence", "Observation", "Rule", "Verdict", "advise", "verdict"]
