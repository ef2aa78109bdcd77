"""MLPerf LoadGen logs: a run of level M, its queries, its percentiles, and whether it was valid."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.loadgen import LOADGEN
from xsp_ingest.formats.loadgen.run import LoggedTest, percentiles, read_queries
from xsp_ingest.formats.loadgen.statements import read_detail, read_summary
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_ingest.run_set import read_single
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []

_PERCENTILES = ["latency_min_ns", "latency_max_ns", "latency_mean_ns"]
_PERCENTILES += [f"latency_p{name}_ns" for name in ("50_00", "90_00", "95_00", "97_00", "99_00", "99_90")]

_SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : a: system, 99.00 percentile latency (ns) : 7
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 12.50
Result is : {result}
  Performance constraints satisfied : Yes
  Min duration satisfied : {duration}
  Min queries satisfied : Skipped
  Early stopping satisfied: Yes

Min latency (ns)                : 1000
50.00 percentile latency (ns)   : 2000
99.90 percentile latency (ns)   : 3000

samples_per_query : 1

2 warnings encountered. See detailed log.

No errors encountered during test.
"""


def _sample(number: int, query: int, start_us: str, latency_ns: int) -> str:
    return (
        f'{{"name":"Sample","cat":"default","ph":"b","pid":7,"id":{number},"ts":{start_us},"args":{{"sample_seq":{number},'
        f'"query_seq":{query},"sample_idx":3,"issue_start_ns":5,"complete_ns":{latency_ns}}}}},\n'
        f'{{"name":"Sample","cat":"default","ph":"e", "pid":7,"id":{number},"ts":{start_us}}},\n'
    )


def _trace(samples: Sequence[str]) -> str:
    return (
        '{"traceEvents":[\n'
        '{"name":"GenerateQueries","ph":"X","pid":7,"tid":8,"ts":1.500,"dur":2.000,"args":{}},\n'
        '{"name":"LogDetail","ph":"X","pid":7,"tid":9,"ts":2.000,"dur":1.000,"args":{"key":""sut_name""}},\n'
        + "".join(samples)
        + '{"name":"LastTrace"}\n],\n"displayTimeUnit":"ns",\n'
        '"otherData":{\n"ts":1795176480091725.750,\n"version":"MLPerf LoadGen v1.0"\n}\n}\n'
    )


_THREE = [
    _sample(0, 0, "10.000", 3_000),
    _sample(1, 1, "11.000", 1_000),  # inside query 0
    _sample(2, 2, "12.123", 2_000),  # begins when query 1 is over, and 0 is not
]


def _written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _metrics(trace: Trace) -> dict[str, tuple[float, str]]:
    rows = trace.frame("metrics").select("metric", "value", "source").iter_rows()
    return {str(metric): (value, str(source)) for metric, value, source in rows}


def _findings(trace: Trace) -> list[tuple[str, int]]:
    return list(trace.frame("ledger").select("kind", "count").iter_rows())


def test_every_query_is_a_step_though_they_overlap(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path, "t", _trace(_THREE))], Options())
    spans = trace.frame("spans").select("level", "start_ns", "duration_ns", "step", "parent_id", "thread_id").rows()
    assert spans == [
        ("application", 0, 12_623, None, None, 0),  # from the first event to the last completion
        ("model", 8_500, 3_000, 0, None, 1),
        ("model", 9_500, 1_000, 1, None, 2),
        ("model", 10_623, 2_000, 2, None, 2),
    ]
    assert trace.frame("runs").select("level_captured", "epoch_ns", "profiler").rows() == [
        ("M", 1_795_176_480_091_725_750 + 1_500, "MLPerf LoadGen")
    ]
    assert list(integrity.broken_rules(trace)) == []


def test_a_query_lasts_until_its_last_sample_is_done(tmp_path: Path) -> None:
    samples = [_sample(0, 4, "10.000", 3_000), _sample(1, 4, "10.000", 9_000), _sample(2, 5, "20.000", 1)]
    queries = read_queries(_written(tmp_path, "t", _trace(samples)))
    assert queries.table.rows() == [(4, 10_000, 9_000, 2), (5, 20_000, 1, 1)]
    assert queries.sample_latencies_ns.tolist() == [1, 3_000, 9_000]


def test_percentiles_are_of_samples_or_in_multistream_of_queries(tmp_path: Path) -> None:
    samples = [_sample(n, n // 2, f"{10 + n // 2}.000", 10 * (n + 1)) for n in range(20)]
    queries = read_queries(_written(tmp_path, "t", _trace(samples)))
    of_samples = percentiles(queries, LoggedTest(scenario="Server"))
    of_queries = percentiles(queries, LoggedTest(scenario="MultiStream"))
    assert (of_samples["latency_p50_00_ns"], of_samples["latency_p95_00_ns"]) == (110, 200)
    assert (of_queries["latency_p50_00_ns"], of_queries["latency_mean_ns"]) == (120, 110)


def test_without_other_logs_percentiles_come_from_the_trace(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path, "t", _trace(_THREE))], Options())
    assert _metrics(trace)["latency_p50_00_ns"] == (2_000, "derived from the trace")
    assert _findings(trace) == []


def test_the_stated_percentile_stands_and_a_difference_is_told(tmp_path: Path) -> None:
    _written(tmp_path, "t", _trace(_THREE))
    _written(tmp_path, "s", _SUMMARY.format(result="VALID", duration="Yes").replace(": 3000", ": 2999"))
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 1
    assert _metrics(trace)["latency_p50_00_ns"] == (2_000, "measured by LoadGen")
    assert _findings(trace) == [("loadgen_percentile_differs", 1), ("loadgen_queued", 1), ("loadgen_warning", 2)]


def test_a_summary_alone_tells_figures_and_no_time(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path, "s", _SUMMARY.format(result="VALID", duration="Yes"))], Options())
    metrics = {name: value for name, (value, _) in _metrics(trace).items()}
    assert metrics == {
        "completed_sample_per_s": 12.5,
        "early_stopping_satisfied": 1,
        "latency_min_ns": 1_000,
        "latency_p50_00_ns": 2_000,
        "latency_p99_90_ns": 3_000,
        "min_duration_satisfied": 1,
        "performance_constraints_satisfied": 1,
        "valid": 1,
    }
    assert trace.frame("spans").select("name", "duration_ns").rows() == [("LoadGen Server PerformanceOnly", None)]
    assert _findings(trace) == [("loadgen_queued", 1), ("loadgen_warning", 2), ("no_query_latencies", 1)]


def test_a_rule_that_was_broken_is_named(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path, "s", _SUMMARY.format(result="INVALID", duration="NO"))], Options())
    rows = trace.frame("ledger").filter(kind="loadgen_invalid").select("severity", "detail").rows()
    assert rows == [("error", "by LoadGen's rules the test is invalid: min duration")]


def test_a_detail_log_reads_values_of_any_type(tmp_path: Path) -> None:
    entries = [
        '{"key": "loadgen_version", "value": "5.0 @ abc"}',
        '{"key": "effective_scenario", "value": "Server", "metadata": {"is_error": false, "is_warning": true}}',
        '{"key": "result_validity", "value": "INVALID"}',
        '{"key": "result_min_latency_ns", "value": "12"}',
        '{"key": "result_max_latency_ns", "value": 9223372036854775807}',
        '{"key": "result_min_queries_met", "value": 1}',
        '{"key": "power_begin", "value": "07-26-2024 08:19:54.329"}',
        '{"key": "other", "value": {"nested": [1, null]}, "metadata": {"is_error": true}}',
    ]
    text = "".join(f":::MLLOG {entry}\n" for entry in entries) + "no entry\n"
    outcome = read_detail(_written(tmp_path, "d", text))
    assert (outcome.version, outcome.valid, outcome.warnings, outcome.errors) == ("5.0 @ abc", False, 1, 1)
    assert (outcome.figures, outcome.rules) == ({"latency_max_ns": 2.0**63}, {})
    assert outcome.epoch_ns == 1_721_981_994_329_000_000


def test_the_latency_that_a_server_is_held_to_is_read_and_0_is_none(tmp_path: Path) -> None:
    def figures(target_ns: int) -> Mapping[str, float]:
        entries = [
            '{"key": "effective_scenario", "value": "Server"}',
            f'{{"key": "effective_target_latency_ns", "value": {target_ns}}}',
            '{"key": "effective_target_latency_percentile", "value": 0.99}',
            '{"key": "effective_target_qps", "value": 100}',
        ]
        return read_detail(_written(tmp_path, "d", "".join(f":::MLLOG {entry}\n" for entry in entries))).figures

    targets = {"target_latency_ns": 2_000.0, "target_latency_share": 0.99, "target_query_per_s": 100.0}
    assert figures(2_000) == targets
    assert figures(0) == {"target_query_per_s": 100.0}


def test_queries_over_the_target_are_counted_where_no_log_counts_them(tmp_path: Path) -> None:
    """Latencies of 3000, 1000 and 2000 ns: one is over 2000."""
    _written(tmp_path, "t", _trace(_THREE))
    summary = _SUMMARY.format(result="VALID", duration="Yes")
    _written(tmp_path, "s", summary.replace("samples_per_query", "target_latency (ns): 2000\nsamples_per_query"))
    metrics = _metrics(convert([tmp_path], Options()))
    assert metrics["target_latency_ns"] == (2_000, "measured by LoadGen")
    assert metrics["query_count"] == (3, "derived from the trace")
    assert metrics["overlatency_query_count"] == (1, "derived from the trace")


def test_what_loadgen_says_of_an_invalid_test_is_its_reason(tmp_path: Path) -> None:
    early = "Early Stopping Result:\n * Run unsuccessful.\n * Processed 3.\n\n===\n"
    remarks = f"Recommendations:\n * Reduce target QPS.\n{early}"
    summary = _SUMMARY.format(result="INVALID", duration="NO").replace("\nMin latency", f"{remarks}\nMin latency", 1)
    reasons = [read_summary(_written(tmp_path, "s", summary)).reason]
    entries = [
        '{"key": "effective_scenario", "value": "Server"}',
        '{"key": "result_invalid_reason", "value": "Reduce target QPS. "}',
        '{"key": "early_stopping_result", "value": " * Run unsuccessful.  * Processed 3."}',
    ]
    reasons.append(read_detail(_written(tmp_path, "d", "".join(f":::MLLOG {entry}\n" for entry in entries))).reason)
    assert reasons == ["Reduce target QPS. Run unsuccessful. Processed 3."] * 2


def test_two_logs_of_a_kind_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name, samples in (("a", _THREE), ("b", _THREE[:-1])):
        _written(tmp_path, name, _trace(samples))
    with pytest.raises(XspError, match=r"two LoadGen logs of a kind \(trace\)"):
        convert([tmp_path], Options())


def test_folders_are_runs_of_their_own(tmp_path: Path) -> None:
    for name, samples in (("a", _THREE), ("b", _THREE[:-1])):
        (tmp_path / name).mkdir()
        _written(tmp_path / name, "t", _trace(samples))
    assert convert([tmp_path / "a", tmp_path / "b"], Options()).frame("runs").height == 2


@pytest.mark.parametrize(
    "bad",
    [
        _sample(3, 3, "999999999999999999999.0", 1),
        _sample(3, 3, "13.000", -1),
        _sample(3, 3, "13.000", 10**30),
        _sample(3, 3, "13.000", 5).replace('"query_seq"', '"query"'),
        _sample(3, 3, '"soon"', 5),
    ],
)
def test_a_sample_that_says_too_little_is_counted(tmp_path: Path, bad: str) -> None:
    trace = convert([_written(tmp_path, "t", _trace([*_THREE, bad]))], Options())
    assert _findings(trace) == [("unreadable_sample", 1)]
    assert trace.frame("spans").height == 4


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_trace_cut_short_is_refused(tmp_path: Path, kept: float) -> None:
    text = _trace(_THREE)
    with pytest.raises(XspError, match=r"^[^\n]*cut off[^\n]*$"):
        read_queries(_written(tmp_path, "t", text[: int(len(text) * kept)]))


def test_a_cut_gzip_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(_trace(_THREE * 50).encode())
    path = tmp_path / "t.gz"
    path.write_bytes(packed[:-30])
    with pytest.raises(XspError, match="compressed stream ends early"):
        read_queries(path)


def test_a_summary_without_its_end_is_refused(tmp_path: Path) -> None:
    text = _SUMMARY.format(result="VALID", duration="Yes")
    with pytest.raises(XspError, match="cut off"):
        read_summary(_written(tmp_path, "s", text[: text.index("samples_per_query")]))


@pytest.mark.real
@pytest.mark.parametrize("log", ["summary", "detail"])
def test_percentiles_of_the_trace_equal_those_stated(real_dir: Path, log: str) -> None:
    folder = real_dir / "loadgen" / "server_with_trace"
    queries = read_queries(folder / "mlperf_log_trace.json.gz")
    path = folder / f"mlperf_log_{log}.txt"
    reported = read_summary(path) if log == "summary" else read_detail(path)
    computed = percentiles(queries, reported)
    assert queries.table.height == 985
    assert {name: reported.figures[name] for name in _PERCENTILES} == computed
    assert computed["latency_p99_00_ns"] == 5_867_794


@pytest.mark.parametrize("case", ["server_cpu", "multistream_cpu", "offline_cpu", "too_slow_cpu"])
def test_percentiles_equal_in_every_scenario(fixtures_dir: Path, case: str) -> None:
    folder = fixtures_dir / "loadgen" / case
    reported = read_summary(folder / "mlperf_log_summary.txt")
    computed = percentiles(read_queries(folder / "mlperf_log_trace.json.gz"), reported)
    assert {name: reported.figures[name] for name in _PERCENTILES} == computed


@pytest.mark.real
def test_without_a_trace_the_detail_log_says_what_the_summary_says(real_dir: Path) -> None:
    folder = real_dir / "loadgen" / "bert_server.l40s"
    detail, summary = read_detail(folder / "mlperf_log_detail.txt"), read_summary(folder / "mlperf_log_summary.txt")
    assert {name: detail.figures[name] for name in _PERCENTILES} == {
        name: summary.figures[name] for name in _PERCENTILES
    }
    assert (detail.valid, detail.rules) == (summary.valid, summary.rules)
    assert _findings(convert([folder], Options())) == [("loadgen_queued", 1), ("no_query_latencies", 1)]


@pytest.mark.real
def test_it_joins_a_profile_as_its_model_run(real_dir: Path) -> None:
    run = read_single(real_dir / "loadgen" / "server_with_trace", "model", Options())
    assert run.frame("runs").select("role", "level_captured").rows() == [("model", "M")]


@pytest.mark.real
def test_nobody_else_claims_these_files(real_dir: Path) -> None:
    for path in sorted(real_dir.rglob("*")):
        if not path.is_file() or path.stat().st_size == 0:
            continue
        if "loadgen" in path.parts:
            assert [i.name for i in claimants_of(Probe(path), all_ingesters())] == ["loadgen"]
        else:
            assert not LOADGEN.sniff(Probe(path)), path
