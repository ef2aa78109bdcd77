"""Comparisons as people and programs read them."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len

from tests.helpers.captures import Noise, Work, view
from xsp_analyze.compare.comparison import Comparison, compare
from xsp_analyze.compare.rules import Compared, check, parse
from xsp_analyze.pages.compare.files import markdown, render, render_junit, terminal

_NOISE = Noise(kernel=0.01, step=0.005)
_RULES = ("model.latency > +3%", 'layer["*Linear_3"].latency > +10%', 'kernel["n<e&w"].time > +10%')
_EVIL = "evil<b>|`\x1b[31m\u202e"


@pytest.fixture(name="comparison", scope="module")
def fixture_comparison() -> Comparison:
    after = Work(slower={11: 1.5}, kernels={2: ("n<e&w", "gemm_2", "add"), 4: (_EVIL,)})
    return compare([view(Work(), 1, _NOISE)], [view(after, 2, _NOISE)], names=("old.json", "new.json"))


@pytest.fixture(name="document", scope="module")
def fixture_document(comparison: Comparison) -> dict[str, object]:
    outcomes = [check(parse(rule), comparison) for rule in _RULES]
    document: dict[str, object] = json.loads(render(comparison, outcomes))
    return document


def test_json_has_the_keys_that_others_rely_on(document: dict[str, object]) -> None:
    assert document["comparable"] is True
    assert document["match"] == {"layer": 1.0, "kernel": pytest.approx(22 / 24), "layers_by": "name, type and shapes"}
    model, rows = document["model"], document["rows"]
    assert isinstance(model, dict)
    assert isinstance(rows, list)
    assert model["ratio"] == pytest.approx(model["after_ns"] / model["before_ns"])
    assert model["low"] < model["ratio"] < model["high"]
    assert {row["level"] for row in rows} == {"layer_type", "kernel_class", "layer", "kernel"}
    first = next(row for row in rows if row["level"] == "layer")
    assert rows[0]["level"] == "layer_type"  # what sums up others comes first
    assert (first["level"], first["name"], first["significant"]) == ("layer", "Linear_11", True)
    assert first["low"] < 1.5 < first["high"]


def test_json_says_what_was_tested_and_what_became_of_the_rules(document: dict[str, object]) -> None:
    statistics, rows = document["statistics"], document["rows"]
    assert isinstance(statistics, dict)
    assert isinstance(rows, list)
    assert statistics["rows_tested"] == sum(row["p_value"] is not None for row in rows)
    verdicts = [rule["verdict"] for rule in document["rules"]]  # type: ignore[attr-defined]
    assert verdicts == ["broken", "kept", "unknown"]


def test_json_parts_of_the_difference_add_up(document: dict[str, object]) -> None:
    falls = document["waterfall"]
    assert isinstance(falls, dict)
    assert sum(part["difference_ns"] for part in falls["parts"]) == falls["difference_ns"]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_the_terminal_s_lines_fit_it(comparison: Comparison, width: int) -> None:
    shown = terminal(comparison, [check(parse(_RULES[0]), comparison)], width=width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert "latency of a step " in shown


def test_the_terminal_says_first_what_was_compared_and_names_the_cause(comparison: Comparison) -> None:
    lines = terminal(comparison, rows=3).splitlines()
    assert lines[0].startswith("before: old.json (net, batch 8, pytorch 2.11.0, a device, 10 steps)")
    assert lines[2] == "Model, system and settings are the same, as far as the files tell."
    layer = next(line for line in lines if line.startswith("Net_0.Linear_11 "))
    assert "significant" in layer
    assert any(line.startswith("all together") for line in lines)


def test_names_from_files_cannot_move_the_cursor_or_break_a_table(comparison: Comparison) -> None:
    for shown in (terminal(comparison, rows=None), markdown(comparison, rows=None)):
        assert "\x1b" not in shown
    table = [line for line in markdown(comparison, rows=None).splitlines() if "evil" in line and line[0] == "|"]
    assert table
    assert not any("<b>" in line or "evil|" in line for line in table)


def test_markdown_says_the_verdict_first(comparison: Comparison) -> None:
    shown = markdown(comparison, [check(parse(rule), comparison) for rule in _RULES])
    assert shown.startswith("### 1 of 3 performance rules broken: latency +")
    assert "- **FAILED** model.latency" in shown
    assert shown.count("<details>") == shown.count("</details>") == 6


def test_junit_is_read_by_a_parser_and_counts_what_failed(comparison: Comparison) -> None:
    rules = [check(parse(rule), comparison) for rule in _RULES]
    root = ET.fromstring(render_junit([Compared("net", comparison, rules)]))  # noqa: S314 (our own)
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "comparable": ["system-out"],
        _RULES[0]: ["failure"],
        _RULES[1]: [],
        _RULES[2]: ["skipped"],
    }


def test_one_step_is_said_to_show_no_noise() -> None:
    comparison = compare([view(Work(steps=1), 1)], [view(Work(steps=1, slower={3: 1.5}), 1)])
    assert "No intervals: a side has 1 step" in terminal(comparison)
    assert "significant" not in terminal(comparison)


def test_other_work_is_said_to_be_other_work_before_any_number() -> None:
    comparison = compare([view(Work(), 1)], [view(Work(batch=16), 1)])
    lines = terminal(comparison).splitlines()
    assert lines[2].startswith("NOT COMPARABLE: different batch size: 8 before, 16 after.")
    assert render_junit([Compared("net", comparison)]).count(b"<failure") == 1
