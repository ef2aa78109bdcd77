"""Makes a model-level run of what a client states of its load test: requests, tokens, latencies and rates."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.files.content import cut_off, read_all
from xsp_ingest.files.values import UNITS_NS, finite, int64, integer, json_integer, nanoseconds, text
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["LoadResult", "Request", "add_experiments", "add_records", "read_flat", "read_summary", "run_of"]

_S, _MS = 1_000_000_000, 1_000_000
_CLIENT_UNITS_NS = {**UNITS_NS, "sec": _S, "seconds": _S}
_MEASURED, _WORKED_OUT = "measured by the client", "derived from its requests"
_RATES = {
    "request_throughput": "completed_sample_per_s",
    "request_goodput": "good_sample_per_s",
    "output_throughput": "completed_token_per_s",
    "output_token_throughput": "completed_token_per_s",
    "total_token_throughput": "total_token_per_s",
    "completed": "query_count",
    "request_count": "query_count",
    "total_input_tokens": "input_token_count",
    "total_output_tokens": "output_token_count",
}
_FLAT = re.compile(r"(mean|median|min|max|p\d{1,2}(?:\.\d{1,3})?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_QUANTITIES = {
    "e2el": "latency",
    "e2e_latency": "latency",
    "request_latency": "latency",
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",  # of a request on average, which vLLM calls time per output token
    "inter_chunk_latency": "itl",
}
_STATISTIC = re.compile(r"(?:avg|min|max|p\d{1,2}(?:\.\d{1,3})?)\Z")
_DIFFERS = 0.01  # of the stated figure: clients round, and some count chunks for tokens
_MAX_VALUES = 20_000_000  # of intervals between tokens


@dataclass(slots=True)
class Request:
    """A request that was answered, in ns; `start_ns` null: the file does not say when it was sent."""

    latency_ns: int
    start_ns: int | None = None
    ttft_ns: int | None = None
    output_tokens: int | None = None
    intervals_ns: list[int] = field(default_factory=list)

    @property
    def tpot_ns(self) -> float | None:
        """Per token after the first."""
        if self.ttft_ns is None or self.output_tokens is None or self.output_tokens < 2:  # noqa: PLR2004
            return None
        return (self.latency_ns - self.ttft_ns) / (self.output_tokens - 1)


@dataclass(slots=True)
class LoadResult:
    """One test; figures are keyed by metric, as LoadGen's: `latency_p99_00_ns`, `completed_sample_per_s`, ..."""

    name: str = "serving load"
    client: str = "aiperf"
    model: str | None = None
    duration_ns: int | None = None
    epoch_ns: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    failed: int = 0
    unreadable: int = 0
    cut_off: int = 0  # lines of the file, of which the last may lack its end


def _parse(content: str, path: Path) -> Any:  # noqa: ANN401 (JSON)
    """The value; what Python writes for numbers that are none becomes null."""
    try:
        return json.loads(content, parse_constant=lambda _: None, parse_int=json_integer)
    except (ValueError, RecursionError) as error:
        at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(content.rstrip())
        if at_end or "Unterminated string" in str(error):
            raise cut_off(path, "its last object has no end") from error
        raise XspError(f"the result is no JSON ({str(error).partition(':')[0]})", path=path) from error


def _objects(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a file that holds one, one a line, or a list of them; and how many lines of it have no end."""
    content = read_all(path).decode("utf-8-sig", errors="replace")
    rows = [line for line in content.split("\n") if line.strip()]
    if len(rows) > 1 and all(row.startswith("{") and row.rstrip().endswith("}") for row in rows[:-1]):
        cut = 0 if rows[-1].rstrip().endswith("}") else 1
        document: Any = [_parse(row, path) for row in rows[: len(rows) - cut]]
    else:
        document, cut = _parse(content, path), 0
    objects = [each for each in (document if isinstance(document, list) else [document]) if isinstance(each, dict)]
    if not objects:
        raise XspError("the result is no object of JSON", path=path)
    return objects, cut


# `vllm bench serve` and SGLang's bench_serving: an object a test, statistics under names such as `p99_ttft_ms`.


def read_flat(path: Path) -> list[LoadResult]:
    """The tests, in order."""
    objects, cut = _objects(path)
    results = [_flat_result(result) for result in objects]
    results[-1].cut_off = cut
    return results


def _flat_result(result: Mapping[str, Any]) -> LoadResult:
    is_sglang = "mean_e2e_latency_ms" in result or "total_output_tokens_retokenized" in result
    engine = text(result.get("backend")) or text(result.get("endpoint_type"))
    parts = [f"serving load of {engine}" if engine else "serving load"]
    for key, unit in (("request_rate", "requests/s"), ("max_concurrency", "at once")):
        if (value := finite(result.get(key))) is not None:
            parts.append(f"{value:g} {unit}")
    test = LoadResult(
        ", ".join(parts), "sglang.bench_serving" if is_sglang else "vllm bench serve", text(result.get("model_id"))
    )
    test.duration_ns = _duration(result.get("duration"), _S)
    for key, value in result.items():
        if (name := _FLAT.fullmatch(key)) and (ns := finite(value)) is not None:
            quantity = _QUANTITIES.get(name[2], name[2])
            test.figures[_statistic(quantity, name[1])] = ns * _MS
        elif key in _RATES and (amount := finite(value)) is not None:
            test.figures[_RATES[key]] = amount
    _add_flat_requests(test, result)
    return test


def _add_flat_requests(test: LoadResult, result: Mapping[str, Any]) -> None:
    """Requests of lists, one entry each; an empty error and a latency are what an answered one has."""
    names = ("ttfts", "itls", "latencies", "start_times", "output_lens", "errors")
    lists = {name: _list(result.get(name)) for name in names}
    count = max(len(lists["ttfts"]), len(lists["latencies"]))
    if any(values and len(values) != count for values in lists.values()):
        test.unreadable = count
        return
    for i in range(count):
        of = {name: values[i] if values else None for name, values in lists.items()}
        ttft = _duration(of["ttfts"], _S)
        intervals = [_duration(value, _S) for value in of["itls"]] if isinstance(of["itls"], list) else []
        sound = [value for value in intervals if value is not None]
        latency = _duration(of["latencies"], _S)
        if latency is None and ttft is not None and len(sound) == len(intervals):
            latency = ttft + sum(sound)
        if of["errors"] or not latency:
            test.failed += bool(of["errors"]) or latency == 0
            test.unreadable += not of["errors"] and latency is None
            continue
        start = nanoseconds(of["start_times"], _S)
        test.requests.append(Request(latency, start, ttft or None, integer(of["output_lens"]), sound))


# aiperf and genai-perf: metrics with units, a record of each request, or the times of its responses.


def read_summary(path: Path) -> LoadResult:
    """What the aggregated statistics state."""
    result = _objects(path)[0][0]
    test = LoadResult(client="aiperf" if "aiperf_version" in result else "genai-perf")
    for key, metric in result.items():
        if not isinstance(metric, dict):
            continue
        unit = _CLIENT_UNITS_NS.get(str(metric.get("unit")))
        if key in _QUANTITIES and unit is not None:
            for name, value in metric.items():
                if _STATISTIC.match(name) and (amount := finite(value)) is not None:
                    test.figures[_statistic(_QUANTITIES[key], name)] = amount * unit
        elif key in _RATES and (amount := finite(metric.get("avg"))) is not None:
            test.figures[_RATES[key]] = amount
        elif key == "benchmark_duration" and unit is not None:
            test.duration_ns = _duration(metric.get("avg"), unit)
        elif key == "error_request_count":
            test.failed = int(finite(metric.get("avg")) or 0)
    test.model = _model_of(result.get("input_config"))
    return test


def _model_of(config: object) -> str | None:
    """The first model that the configuration names."""
    for part in (config, _member(config, "endpoint")):
        names = _member(part, "model_names") or _member(part, "model")
        if name := text(next(iter(_list(names)), names)):
            return name
    return None


def _member(value: object, key: str) -> Any:  # noqa: ANN401 (JSON)
    return value.get(key) if isinstance(value, dict) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def add_records(test: LoadResult, path: Path) -> None:
    """The requests of `profile_export.jsonl`, those of warming up left out."""
    failed = 0
    records, test.cut_off = _objects(path)
    for record in records:
        where, metrics = record.get("metadata"), record.get("metrics")
        if not isinstance(where, dict) or where.get("benchmark_phase") == "warmup":
            continue
        if record.get("error") or where.get("was_cancelled") is True:
            failed += 1
            continue
        start, end = int64(where.get("request_start_ns")), int64(where.get("request_end_ns"))
        latency = _amount(_member(metrics, "request_latency"))
        latency = end - start if latency is None and start is not None and end is not None else latency
        if start is None or latency is None or latency < 0:
            test.unreadable += 1
            continue
        chunks = _member(metrics, "inter_chunk_latency")
        gaps = [_amount({"value": gap, "unit": _member(chunks, "unit")}) for gap in _list(_member(chunks, "value"))]
        length = integer(_member(_member(metrics, "output_sequence_length"), "value"))
        ttft = _amount(_member(metrics, "time_to_first_token"))
        test.requests.append(Request(latency, start, ttft, length, [gap for gap in gaps if gap is not None]))
    test.failed = max(test.failed, failed)


def add_experiments(test: LoadResult, path: Path) -> None:
    """The requests of `profile_export.json`: when each was sent, and when each part of its answer came."""
    result = _objects(path)[0][0]
    for one in (one for each in _list(result.get("experiments")) for one in _list(_member(each, "requests"))):
        start = int64(_member(one, "timestamp"))
        times = [int64(time) for time in _list(_member(one, "response_timestamps"))]
        sound = [time for time in times if time is not None]
        if start is None or not sound or len(sound) < len(times) or sorted(sound) != sound or sound[0] < start:
            test.unreadable += 1
            continue
        gaps = [after - before for before, after in pairwise(sound)]
        test.requests.append(Request(sound[-1] - start, start, sound[0] - start, None, gaps))
    test.client = "genai-perf"


def _amount(metric: object) -> int | None:
    return _duration(_member(metric, "value"), _CLIENT_UNITS_NS.get(str(_member(metric, "unit")), 0))


def _duration(value: object, unit_ns: int) -> int | None:
    ns = nanoseconds(value, unit_ns) if unit_ns else None
    return ns if ns is not None and ns >= 0 else None


def _statistic(quantity: str, name: str) -> str:
    """LoadGen's name: `latency_mean_ns`, `ttft_p99_00_ns`."""
    name = {"avg": "mean", "median": "p50"}.get(name, name)
    return f"{quantity}_{_percentile(float(name[1:])) if name[0] == 'p' else name}_ns"


def _percentile(percent: float) -> str:
    return f"p{percent:05.2f}".replace(".", "_")


# The run.


def run_of(test: LoadResult, path: Path, *, strict: bool = False) -> RawTrace:
    """A span for the test, a step for each request; figures as metrics of the test; XspError where there are none."""
    if strict and test.cut_off:
        raise cut_off(path, "its last object has no end")
    if not test.requests and not any(value for name, value in test.figures.items() if name.endswith(("_ns", "_per_s"))):
        if test.cut_off:
            raise cut_off(path, "its last object has no end")
        raise XspError(
            "the result holds neither a latency nor a request that was answered",
            path=path,
            advice="Did the server answer at all?",
        )
    worked_out = _statistics_of(test.requests)
    tables = {name: frame_of(name) for name in RAW_TABLES}
    tables["spans"] = frame_of("spans", _spans(test))
    tables["metrics"] = frame_of("metrics", _metrics(test, worked_out))
    starts = [request.start_ns for request in test.requests if request.start_ns is not None]
    epoch = 0 if starts and min(starts) > 10**18 else None  # ns since 1970, as aiperf has them
    facts = RunFacts(profiler=test.client, model=test.model, epoch_ns=epoch)
    return RawTrace(tables, facts, tuple(_findings(test, worked_out)))


def _spans(test: LoadResult) -> dict[str, list[object]]:
    """The test first; a request without a start stands at the test's begin. Each has a lane, where a thread would."""
    first = min((request.start_ns for request in test.requests if request.start_ns is not None), default=1)
    rows: list[tuple[object, ...]] = []
    ends = [first]
    for n, request in enumerate(test.requests, 1):
        start = first if request.start_ns is None else request.start_ns
        ends.append(start + request.latency_ns)
        rows.append((n, str(Level.MODEL), str(Kind.STEP), "request", start, request.latency_ns, n))
    extent = max(ends) - first if test.requests else None
    duration = test.duration_ns if extent is None else max(extent, test.duration_ns or 0) + 1
    test_row = (0, str(Level.APPLICATION), str(Kind.RANGE), test.name, first - 1, duration, 0)
    names = ("row", "level", "kind", "name", "start_ns", "duration_ns", "thread_id")
    columns = {name: list(values) for name, values in zip(names, zip(test_row, *rows, strict=True), strict=True)}
    return {**columns, "process_id": [0] * (len(rows) + 1)}


def _statistics_of(requests: Sequence[Request]) -> dict[str, float]:
    """Mean, median and 99th percentile over requests, interpolated as these clients do."""
    intervals = sum(len(request.intervals_ns) for request in requests)
    values = {
        "latency": [float(request.latency_ns) for request in requests],
        "ttft": [float(request.ttft_ns) for request in requests if request.ttft_ns is not None],
        "tpot": [tpot for request in requests if (tpot := request.tpot_ns) is not None],
        "itl": [float(ns) for request in requests for ns in request.intervals_ns] if intervals < _MAX_VALUES else [],
    }
    figures = {"query_count": float(len(requests))} if requests else {}
    lengths = [request.output_tokens for request in requests if request.output_tokens is not None]
    if lengths and len(lengths) == len(requests):
        figures["output_token_count"] = float(sum(lengths))
    for quantity, of in values.items():
        if of:
            figures[f"{quantity}_mean_ns"] = math.fsum(of) / len(of)
            for percent in (50.0, 99.0):
                figures[f"{quantity}_{_percentile(percent)}_ns"] = float(np.percentile(of, percent))
    return figures


def _metrics(test: LoadResult, worked_out: Mapping[str, float]) -> dict[str, list[object]]:
    """What the client states, and what it does not state; of each request its first token and its tokens."""
    rows: list[tuple[object, ...]] = [
        (0, name, value, _unit(name), source)
        for source, figures in ((_MEASURED, test.figures), (_WORKED_OUT, worked_out))
        for name, value in sorted(figures.items())
        if source == _MEASURED or name not in test.figures
    ]
    if test.failed:
        rows.append((0, "failed_query_count", float(test.failed), "1", _MEASURED))
    for n, request in enumerate(test.requests, 1):
        if request.ttft_ns is not None:
            rows.append((n, "ttft_ns", float(request.ttft_ns), "ns", _MEASURED))
        if request.output_tokens is not None:
            rows.append((n, "output_token_count", float(request.output_tokens), "1", _MEASURED))
    names = ("row", "metric", "value", "unit", "source")
    return {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _unit(metric: str) -> str:
    if metric.endswith("_ns"):
        return "ns"
    return next((f"{what}/s" for what in ("sample", "token") if metric.endswith(f"{what}_per_s")), "1")


def _findings(test: LoadResult, worked_out: Mapping[str, float]) -> Iterator[Finding]:
    made_up = sum(request.start_ns is None for request in test.requests)
    yield Finding(LedgerKind.LOADGEN_QUEUED, count=1, advice=_HOW)
    lost = "requests that failed; no latency counts them"
    yield Finding(LedgerKind.LOADGEN_ERROR, lost, test.failed, Severity.WARNING)
    yield Finding(LedgerKind.NO_TIMESTAMPS, "requests of which it is not known when they were sent", made_up)
    yield Finding(
        LedgerKind.UNREADABLE_SAMPLE, "requests without a time or a latency that can be used", test.unreadable
    )
    yield Finding(LedgerKind.CUT_OFF_JSON, "the file's last line has no end and was left out", test.cut_off)
    yield Finding(LedgerKind.NO_QUERY_LATENCIES, _NO_REQUESTS, int(not test.requests), advice=_DETAILS)
    differ = [
        name
        for name, value in sorted(worked_out.items())
        if name.startswith(("latency", "ttft")) and abs(test.figures.get(name, value) - value) > _DIFFERS * value
    ]
    yield Finding(
        LedgerKind.LOADGEN_PERCENTILE_DIFFERS,
        f"latencies worked out from the requests differ from those stated: {', '.join(differ)}",
        len(differ),
    )


_HOW = "Give a trace of the server as well, taken meanwhile: B48 sets its steps beside these"
_NO_REQUESTS = "the result holds no single requests, only their statistics"
_DETAILS = "vllm bench serve --save-detailed and bench_serving --output-details keep them; give aiperf's .jsonl as well"
