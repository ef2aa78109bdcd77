"""The page of a comparison: it needs nothing else, and names can do nothing in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.captures import Noise, Work, view
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.rules import check, parse
from xsp_analyze.compare.several import Compared, Several
from xsp_analyze.pages.compare.page import page, page_of_several

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.browser import Browser
    from xsp_analyze.compare.comparison import Comparison

_EVIL = "</style><script>alert(1)</script>"


@pytest.fixture(name="comparison", scope="module")
def fixture_comparison() -> Comparison:
    noise = Noise(kernel=0.01, step=0.005)
    after = Work(slower={11: 1.5}, kernels={2: (_EVIL, "gemm_2", "add")})
    return compare([view(Work(), 1, noise)], [view(after, 2, noise)], names=("old.json", f"{_EVIL}.json"))


def test_the_page_loads_nothing_and_runs_nothing(comparison: Comparison) -> None:
    shown = page(comparison, [check(parse("model.latency > +3%"), comparison)])
    assert "<script" not in shown
    assert not re.search(r"(?:src|href|url)\s*[=(](?!\"data:,\")", shown)
    assert "script-src" not in shown
    assert shown.count("<table>") == shown.count("</table>") == 7
    assert "&lt;script&gt;" in shown


def test_bars_of_the_waterfall_lead_from_before_to_after(comparison: Comparison) -> None:
    bars = re.findall(r'<rect class="f-(\w+)" x="([\d.]+)" y="\d+" width="([\d.]+)"', page(comparison))
    spans = [(kind, float(x), float(x) + float(width)) for kind, x, width in bars]
    assert (spans[0][0], spans[-1][0]) == ("total", "total")
    at = spans[0][2]
    for kind, left, right in spans[1:-1]:
        assert (left if kind == "worse" else right) == pytest.approx(at, abs=1.1)  # a bar is at least a pixel wide
        at = right if kind == "worse" else left
    assert at == pytest.approx(spans[-1][2], abs=len(spans) + 1)


def test_several_models_are_folded_under_their_names(comparison: Comparison) -> None:
    shown = page_of_several(Several([Compared("net", comparison), Compared("other", comparison)], ["gone"], []))
    assert shown.count("<details>") == 2
    assert "Only before: gone." in shown


@pytest.mark.browser
def test_a_browser_shows_it_without_a_request_or_an_error(
    comparison: Comparison, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(comparison))
    seen: list[str] = []
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    tab.on("request", lambda request: seen.append(request.url))
    tab.on("console", lambda message: seen.append(message.text))
    tab.goto(file.as_uri())
    assert seen == [file.as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.close()
