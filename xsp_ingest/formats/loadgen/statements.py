"""Reads what LoadGen states: `mlperf_log_detail.txt` (lines `:::MLLOG {json}`) and `mlperf_log_summary.txt`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from xsp_ingest.files.content import cut_off, lines, read_all
from xsp_ingest.files.values import natural, text
from xsp_ingest.formats.loadgen.run import LoggedTest, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_detail", "read_summary"]

_PREFIX = b":::MLLOG "
_MAX_SAMPLES = 1 << 31
_DETAIL_FIGURES = {
    "result_min_latency_ns": "latency_min_ns",
    "result_max_latency_ns": "latency_max_ns",
    "result_mean_latency_ns": "latency_mean_ns",
    "result_completed_samples_per_sec": "completed_sample_per_s",
    "result_scheduled_samples_per_sec": "scheduled_sample_per_s",
    "result_samples_per_second": "completed_sample_per_s",
    "result_qps_with_loadgen_overhead": "query_per_s_with_loadgen",
    "result_qps_without_loadgen_overhead": "query_per_s_without_loadgen",
    "result_query_count": "query_count",
    "result_overlatency_query_count": "overlatency_query_count",
}
_DETAIL_TARGETS = {  # 0: the scenario has none
    "effective_target_latency_ns": "target_latency_ns",
    "effective_target_latency_percentile": "target_latency_share",
    "effective_target_qps": "target_query_per_s",
}
_OF_QUERIES = {f"result_{what}_query_latency_ns" for what in ("min", "max", "mean")}
_DETAIL_PERCENTILE = re.compile(
    r"result_(first_token_|time_per_output_token_|)(\d+\.\d+)_percentile_(per_query_)?\w*ns"
)
_DETAIL_PREFIXES = {"": "latency", "first_token_": "first_token_latency", "time_per_output_token_": "output_token_time"}
_RULES = {
    "result_perf_constraints_met": "performance constraints",
    "result_min_duration_met": "min duration",
    "result_min_queries_met": "min queries",
    "early_stopping_met": "early stopping",
}
_KEYS = {
    *_DETAIL_FIGURES,
    *_RULES,
    *_OF_QUERIES,
    *_DETAIL_TARGETS,
    *("loadgen_version", "effective_scenario", "effective_test_mode", "effective_samples_per_query", "power_begin"),
    *("result_validity", "result_invalid_reason", "early_stopping_result"),
}


class _Metadata(msgspec.Struct):
    is_error: bool = False
    is_warning: bool = False


class _Entry(msgspec.Struct):
    key: str
    value: Any = None
    metadata: _Metadata | None = None


def read_detail(path: Path) -> LoggedTest:
    """What the file says; XspError where its last line is cut off."""
    values: dict[str, Any] = {}
    warnings = errors = 0
    decode = msgspec.json.Decoder(_Entry, strict=False).decode
    for block in lines(path):
        for line in block.splitlines():
            if not line.startswith(_PREFIX):
                continue
            try:
                entry = decode(line[len(_PREFIX) :].decode("utf-8", errors="replace"))
            except msgspec.DecodeError as error:
                raise cut_off(path, "a line of the log is no whole entry") from error
            if entry.key in _KEYS or _DETAIL_PERCENTILE.fullmatch(entry.key):
                values.setdefault(entry.key, entry.value)
            if entry.metadata is not None:
                warnings += entry.metadata.is_warning
                errors += entry.metadata.is_error
    if "result_validity" not in values and "effective_scenario" not in values:
        raise cut_off(path, "the log ends before it says which test was run")
    return _outcome(values, warnings, errors)


def _outcome(values: Mapping[str, Any], warnings: int, errors: int) -> LoggedTest:
    return LoggedTest(
        version=text(values.get("loadgen_version")),
        scenario=text(values.get("effective_scenario")),
        mode=text(values.get("effective_test_mode")),
        valid={"VALID": True, "INVALID": False}.get(str(values.get("result_validity"))),
        rules={name: values[key] for key, name in _RULES.items() if isinstance(values.get(key), bool)},
        figures=_figures_of_detail(values, of_queries=values.get("effective_scenario") == "MultiStream"),
        samples_per_query=_count(values.get("effective_samples_per_query")),
        reason=sentences(f"{values.get('result_invalid_reason', '')} {values.get('early_stopping_result', '')}"),
        warnings=warnings,
        errors=errors,
        epoch_ns=_epoch_ns(values.get("power_begin")),
    )


def _figures_of_detail(values: Mapping[str, Any], *, of_queries: bool) -> dict[str, float]:
    """Figures by metric; in MultiStream the latencies that count are those of queries, as in the summary."""
    figures: dict[str, float] = {}
    for key, value in values.items():
        plain = key.replace("query_latency", "latency") if of_queries else key
        name = _DETAIL_FIGURES.get(plain)
        if match := _DETAIL_PERCENTILE.fullmatch(key):
            name = f"{_DETAIL_PREFIXES[match[1]]}_p{match[2].replace('.', '_')}_ns"
        if of_queries and name and name.startswith("latency_") and "query_latency" not in key:
            continue
        if name and _is_number(value):
            figures[name] = float(value)
    return figures | _targets(values)


def _targets(values: Mapping[str, Any]) -> dict[str, float]:
    """What the test was held to; only Server is held to a latency, and its percentile says nothing without one."""
    numbers = {name: values.get(key) for key, name in _DETAIL_TARGETS.items()}
    targets = {name: float(value) for name, value in numbers.items() if _is_number(value) and value > 0}
    if "target_latency_ns" not in targets:
        targets.pop("target_latency_share", None)
    return targets


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _epoch_ns(value: object) -> int | None:
    """`07-26-2024 08:19:54.329`, in UTC and to the millisecond."""
    try:
        moment = datetime.strptime(str(value), "%m-%d-%Y %H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_SAMPLES else None


# Reads `mlperf_log_summary.txt`: `key : value` lines under headings.

_MAX_BYTES = 1 << 24
_LINE = re.compile(r"^[ *]*([^:\n]+?)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_SUMMARY_FIGURES = {
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
_SUMMARY_TARGETS = {"target_latency (ns)": "target_latency_ns", "target_qps": "target_query_per_s"}  # 0: there is none
_REMARKS = re.compile(r"^(?:Recommendations|Early Stopping Result):[ \r]*\n((?:(?!=|\w).*\n)*)", re.MULTILINE)
_SUMMARY_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?) percentile (first token |time to output token |)(?:latency )?\(ns\)")
_SUMMARY_PREFIXES = {"": "latency", "first token ": "first_token_latency", "time to output token ": "output_token_time"}
_RULE = re.compile(r"(performance constraints|min duration|min queries|early stopping) satisfied")
_COUNT = re.compile(r"^(?:(\d{1,18})|(No)) (warning|error)s?\b", re.MULTILINE | re.IGNORECASE)
_END = "samples_per_query"  # among the last section, which every version writes


def read_summary(path: Path) -> LoggedTest:
    """What the file says; XspError where the file ends before its parameters and counts do."""
    text = read_all(path, _MAX_BYTES).decode("utf-8", errors="replace")
    values = {key.lower(): value for key, value in reversed(_LINE.findall(text))}
    counts = {what.lower(): int(number or 0) for number, _, what in _COUNT.findall(text)}
    if _END not in values or "error" not in counts:
        raise cut_off(path, "a LoadGen summary ends with its parameters and its count of errors")
    return LoggedTest(
        scenario=values.get("scenario"),
        mode=values.get("mode"),
        valid={"VALID": True, "INVALID": False}.get(values.get("result is", "")),
        rules=_rules(values),
        figures=_figures_of_summary(values),
        samples_per_query=natural(values[_END]),
        reason=sentences(" ".join(_REMARKS.findall(text))),
        warnings=counts.get("warning", 0),
        errors=counts["error"],
    )


def _rules(values: Mapping[str, str]) -> dict[str, bool]:
    matches = ((_RULE.fullmatch(key), value.lower()) for key, value in values.items())
    return {match[1]: value == "yes" for match, value in matches if match and value in {"yes", "no"}}


def _figures_of_summary(values: Mapping[str, str]) -> dict[str, float]:
    targets = {name: _number(values.get(key, "")) for key, name in _SUMMARY_TARGETS.items()}
    figures = {name: value for name, value in targets.items() if value}
    for key, value in values.items():
        name = _SUMMARY_FIGURES.get(key)
        if match := _SUMMARY_PERCENTILE.fullmatch(key):
            name = f"{_SUMMARY_PREFIXES[match[2]]}_p{match[1].replace('.', '_')}_ns"
        if name and (number := _number(value)) is not None:
            figures[name] = number
    return figures


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d{1,18}(?:\.\d+)?(?:e[+-]?\d{1,2})?", text) else None
