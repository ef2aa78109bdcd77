"""What a history says of its series: changes, causes, labels; as text, JSON and page."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.helpers.history_runs import START, file_of, run_facts, write_store
from xsp.history.store import open as open_store
from xsp_analyze.compare.rules import Verdict, parse
from xsp_analyze.history.causes import hold, outcomes
from xsp_analyze.history.trends import document, earlier_runs, trends
from xsp_analyze.pages.history import markdown, render

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.history.trends import Trend


def _latencies(*levels: tuple[int, float], seed: int = 3) -> list[float]:
    means = np.concatenate([np.full(count, level * 1e6) for count, level in levels])
    return list(means * np.exp(np.random.default_rng(seed).normal(size=len(means)) * 0.005))


@pytest.fixture(name="series")
def fixture_series(tmp_path: Path) -> list[Trend]:
    write_store(tmp_path, _latencies((30, 10.0), (20, 10.6)))
    store = open_store(tmp_path)
    return trends(store.facts(), store.of)


def test_a_change_has_its_cause_and_the_commits_between(series: list[Trend]) -> None:
    (trend,) = series
    (change,) = trend.changes
    assert change.causes[0].name == "softmax"
    assert change.causes[0].difference_ns == pytest.approx(0.6e6, rel=0.1)
    assert change.labels == [("commit", "c029", "c030")]
    assert change.is_worse


def test_what_did_not_change_is_no_cause(series: list[Trend]) -> None:
    assert "gemm" not in [row.name for row in series[0].changes[0].causes]


def test_series_are_held_apart(tmp_path: Path) -> None:
    write_store(tmp_path, _latencies((10, 10.0)), "one")
    write_store(tmp_path, _latencies((10, 20.0)), "two")
    store = open_store(tmp_path)
    series = trends(store.facts(), store.of)
    assert sorted((trend.name, len(trend.changes)) for trend in series) == [("one, main", 0), ("two, main", 0)]


def test_markdown_says_the_last_change_first(series: list[Trend]) -> None:
    text = markdown(series, [], 5).replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "50 runs in 1 series" in text
    assert "| 2026-01-31 | net, main | Step time rose by 5.96" in text
    assert "softmax (kernel) +" in text
    assert "commit c029 to c030" in text


def test_names_are_no_markdown(tmp_path: Path) -> None:
    write_store(tmp_path, _latencies((10, 10.0), (10, 11.0)), "net<4>|*x*")
    store = open_store(tmp_path)
    text = markdown(trends(store.facts(), store.of), [], 5)
    assert "net<4" not in text
    assert text.count(r"net\<4\>\|\*x\*") == 2


def test_of_few_runs_none_says_that_nothing_changed(tmp_path: Path) -> None:
    write_store(tmp_path, _latencies((3, 10.0)))
    store = open_store(tmp_path)
    series = trends(store.facts(), store.of)
    sentence = "These are too few runs to tell a change by: it takes 4 before it and as many after."
    assert sentence in markdown(series, [], 5)
    assert sentence in render(series, [], title="History", link=lambda _: None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, None])
def test_a_run_without_a_step_time_hides_no_change(tmp_path: Path, value: float | None) -> None:
    write_store(tmp_path, _latencies((30, 10.0), (20, 10.6)))
    without = run_facts(10e6, labels={"commit": "x"}).with_columns(
        pl.when(pl.col("name") == "latency_ns").then(pl.lit(value, pl.Float64)).otherwise("value").alias("value")
    )
    file_of(tmp_path, 77, without, time=START + timedelta(days=10))
    store = open_store(tmp_path)
    (trend,) = trends(store.facts(), store.of)
    assert [(each.change.at, each.measure) for each in trend.changes] == [(30, "latency_ns")]
    json.dumps(document([trend], []), allow_nan=False)


def test_json_is_json(series: list[Trend]) -> None:
    (only,) = json.loads(json.dumps(document(series, ["a sentence"]), allow_nan=False))["series"]
    assert (only["model"], only["run_count"]) == ("net", 50)
    (change,) = only["changes"]
    assert change["first_after"]["time"] == "2026-01-31T02:00:00Z"
    assert change["low"] < 1.06 < change["high"]


def test_the_page_holds_every_run_and_no_markup_of_names(series: list[Trend]) -> None:
    page = render(series, ["x.parquet is left out"], title="<b>History</b>", link=lambda _: None)
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (chart,) = [block for part in data["sections"] for block in part["blocks"] if block["type"] == "trend"]
    assert len(chart["measures"][0]["values"]) == 50
    assert [change["at"] for change in chart["measures"][0]["changes"]] == [30]
    assert "<b>History" not in page


def test_a_run_is_held_against_those_since_the_last_change(tmp_path: Path) -> None:
    write_store(tmp_path, _latencies((30, 10.0), (20, 10.6)))
    facts = open_store(tmp_path).facts()
    key = {"model": "net", "system": None, "batch": None, "phase": None, "branch": "main"}
    assert earlier_runs(facts, key, facts["time_ns"][-1], "") == facts["run"][30:].to_list()
    assert len(earlier_runs(facts, key, facts["time_ns"][25], "")) == 26
    assert earlier_runs(facts, {**key, "branch": "other"}, facts["time_ns"][-1], "") == []


@pytest.mark.parametrize(
    ("latency_ms", "rule", "verdict"),
    [
        (10.0, "model.latency > +3%", Verdict.KEPT),
        (11.0, "model.latency > +3%", Verdict.VIOLATED),
        (10.25, "model.latency > +3%", Verdict.INCONCLUSIVE),
        (11.0, 'kernel["softmax"].time > +5%', Verdict.VIOLATED),
        (11.0, 'kernel["gemm"].time > +1000%', Verdict.KEPT),
    ],
)
def test_rules_are_held_against_the_noise_of_the_history(latency_ms: float, rule: str, verdict: Verdict) -> None:
    before = [run_facts(latency) for latency in _latencies((20, 10.0))]
    after = [run_facts(latency_ms * 1e6)]
    (outcome,) = outcomes(hold(before, after), [parse(rule)])
    assert outcome.verdict is verdict


def test_with_one_earlier_run_nothing_is_known_of_noise() -> None:
    held = hold([run_facts(10e6)], [run_facts(10.1e6)])
    (outcome,) = outcomes(held, [parse("model.latency > +3%")])
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_a_kernel_that_is_new_is_a_cause() -> None:
    before = [run_facts(ns, parts={"gemm": 6e6 / ns}) for ns in _latencies((8, 10.0))]
    after = [run_facts(ns, parts={"gemm": 6e6 / ns, "copy": 2e6 / ns}) for ns in _latencies((8, 12.0), seed=4)]
    (cause, *_) = hold(before, after).causes(5)
    assert (cause.name, cause.change) == ("copy", "appeared")


def test_facts_are_one_row_a_run(tmp_path: Path) -> None:
    write_store(tmp_path, [10e6, 11e6])
    facts = open_store(tmp_path).facts()
    assert facts["latency_ns"].to_list() == [10e6, 11e6]
    assert facts["label.commit"].to_list() == ["c000", "c001"]
    assert facts.schema["time"] == pl.Datetime("ns")
