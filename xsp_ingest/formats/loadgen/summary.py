"""Reads `mlperf_log_summary.txt`: `key : value` lines under headings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.files.content import cut_off, read_all
from xsp_ingest.files.values import natural
from xsp_ingest.formats.loadgen.outcome import Outcome, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["IS_SUMMARY", "read_summary"]

IS_SUMMARY = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*={8,}\r?\nMLPerf Results Summary\r?\n")
_MAX_BYTES = 1 << 24
_LINE = re.compile(r"^[ *]*([^:\n]+?)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_FIGURES = {
    "min latency (ns)": "latency_min_ns",
    "max latency (ns)": "latency_max_ns",
    "mean latency (ns)": "latency_mean_ns",
    "completed samples per second": "completed_sample_per_s",
    "scheduled samples per second": "scheduled_sample_per_s",
    "samples per second": "completed_sample_per_s",
    "qps w/ loadgen overhead": "query_per_s_with_loadgen",
    "qps w/o loadgen overhead": "query_per_s_without_loadgen",
    "completed tokens per second": "completed_token_per_s",
    "tokens per second": "completed_token_per_s",
}
_TARGETS = {"target_latency (ns)": "target_latency_ns", "target_qps": "target_query_per_s"}  # 0: there is none
_REMARKS = re.compile(r"^(?:Recommendations|Early Stopping Result):[ \r]*\n((?:(?!=|\w).*\n)*)", re.MULTILINE)
_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?) percentile (first token |time to output token |)(?:latency )?\(ns\)")
_OF = {"": "latency", "first token ": "first_token_latency", "time to output token ": "output_token_time"}
_RULE = re.compile(r"(performance constraints|min duration|min queries|early stopping) satisfied")
_COUNT = re.compile(r"^(?:(\d{1,18})|(No)) (warning|error)s?\b", re.MULTILINE | re.IGNORECASE)
_END = "samples_per_query"  # among the last section, which every version writes


def read_summary(path: Path) -> Outcome:
    """What the file says; XspError where the file ends before its parameters and counts do."""
    text = read_all(path, _MAX_BYTES).decode("utf-8", errors="replace")
    values = {key.lower(): value for key, value in reversed(_LINE.findall(text))}
    counts = {what.lower(): int(number or 0) for number, _, what in _COUNT.findall(text)}
    if _END not in values or "error" not in counts:
        raise cut_off(path, "a LoadGen summary ends with its parameters and its count of errors")
    return Outcome(
        scenario=values.get("scenario"),
        mode=values.get("mode"),
        valid={"VALID": True, "INVALID": False}.get(values.get("result is", "")),
        rules=_rules(values),
        figures=_figures(values),
        samples_per_query=natural(values[_END]),
        reason=sentences(" ".join(_REMARKS.findall(text))),
        warnings=counts.get("warning", 0),
        errors=counts["error"],
    )


def _rules(values: Mapping[str, str]) -> dict[str, bool]:
    matches = ((_RULE.fullmatch(key), value.lower()) for key, value in values.items())
    return {match[1]: value == "yes" for match, value in matches if match and value in {"yes", "no"}}


def _figures(values: Mapping[str, str]) -> dict[str, float]:
    targets = {name: _number(values.get(key, "")) for key, name in _TARGETS.items()}
    figures = {name: value for name, value in targets.items() if value}
    for key, text in values.items():
        name = _FIGURES.get(key)
        if match := _PERCENTILE.fullmatch(key):
            name = f"{_OF[match[2]]}_p{match[1].replace('.', '_')}_ns"
        if name and (number := _number(text)) is not None:
            figures[name] = number
    return figures


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d{1,18}(?:\.\d+)?(?:e[+-]?\d{1,2})?", text) else None
