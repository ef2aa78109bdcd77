"""What a report says of a server's steps; see `tests.helpers.serving_trace` for the 30 of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import Browser, opened
from tests.helpers.report_trace import small_trace
from tests.helpers.serving_trace import served, serving_trace
from xsp_analyze.pages.report.page import render
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

MS = 1_000_000


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def _serving(page: str) -> list[dict[str, Any]]:
    return next(s["blocks"] for s in _data(page)["sections"] if s["id"] == "serving")


def test_a_section_has_the_phases_and_every_step_by_phase(tmp_path: Path) -> None:
    sentence, phases, chart, steps = _serving(render(serving_trace(tmp_path)))
    assert sentence["text"] == (
        "Steady state: steps 4 to 23, from the first to the last with 90 % of the usual number of decoding"
        " requests."
        " The first table leaves out 4 steps of ramp-up and 6 of drain. Requests got 638 output tokens in 248\u202fms,"
        " 2\u202f573 a second."  # 18 x 32 and 2 x 31 tokens; 20 steps of 210 ms in sum with 19 gaps of 2 ms
    )
    assert phases["values"][1] == ["decode", "mixed", "prefill"]
    assert [(s["name"], s["values"][0], s["values"][4]) for s in chart["series"]] == [
        ("prefill", 40 * MS, None),
        ("mixed", None, None),
        ("decode", None, 10 * MS),
    ]
    assert len(chart["labels"]) == 30
    assert len(steps["values"][0]) == 30


_LOAD = Path(__file__).parents[3] / "fixtures/serving_load/vllm_synthetic/result.json"


def test_what_clients_waited_stands_beside_the_phases_or_alone(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(served().to_bytes())
    _, phases, clients, *_ = _serving(render(convert([_LOAD, tmp_path / "trace.json"], Options())))
    assert phases["values"][1] == ["decode", "mixed", "prefill"]
    assert clients["values"][1] == ["request", "first token", "further token"]
    (alone,) = _serving(render(convert([_LOAD], Options())))
    assert alone["values"][1] == clients["values"][1]


def test_the_head_says_what_steps_of_each_phase_take(tmp_path: Path) -> None:
    assert (
        "Decode steps of 32 requests take 10.0\u202fms (10.0\u202fms per output token), mixed steps of 32 requests take"
        " 15.0\u202fms (15.0\u202fms per output token) (medians, ramp-up and drain left out)."
    ) in _data(render(serving_trace(tmp_path)))["short"]


def test_a_report_of_a_phase_says_so(tmp_path: Path) -> None:
    data = _data(render(serving_trace(tmp_path), "decode"))
    assert data["short"][1].startswith("A decode step takes 9.81\u202fms on the device, the trimmed mean over 24 steps")
    assert "per decode step, averaged over 24" in next(s["means"] for s in data["sections"] if s["id"] == "kernels")


def test_a_trace_of_no_server_has_no_such_section(tmp_path: Path) -> None:
    assert "serving" not in [s["id"] for s in _data(render(small_trace(tmp_path)))["sections"]]


def test_without_a_steady_state_all_steps_count(tmp_path: Path) -> None:
    sentence, _, chart, _ = _serving(render(serving_trace(tmp_path, [(1, 100, 0, 20_000), (0, 0, 1, 9_000)])))
    assert sentence["text"] == "No steady state can be told apart from ramp-up and drain, so every step counts below."
    assert [s["name"] for s in chart["series"]] == ["prefill", "decode"]


@pytest.mark.browser
def test_it_is_drawn(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(serving_trace(tmp_path)), encoding="utf-8")
    with opened(browser, file) as page:
        page.wait_for_selector("#serving svg rect")
        colours = page.eval_on_selector_all(
            "#serving svg rect", "all => [...new Set(all.map(r => r.getAttribute('class')))]"
        )
        assert {"f-compute", "f-communication", "f-layer"} <= set(colours)
        page.locator("#serving svg rect.hit").nth(12).hover()
        assert page.locator("#serving .caption").inner_text() == "12: mixed 15.0\u202fms"
        assert page.locator("#serving tbody tr").count() == 3 + 25
        assert "undefined" not in page.locator("#serving").inner_text()
