"""The page of a comparison: it needs nothing else, and names can do nothing in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.captures import Noise, Work, view
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.rules import Compared, Several, check, parse
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


def test_the_page_loads_nothing_and_its_names_run_nothing(comparison: Comparison) -> None:
    shown = page(comparison, [check(parse("model.latency > +3%"), comparison)])
    assert shown.count("<script") == 1  # the page's own
    assert not re.search(r"(?:src|href|url)\s*[=(](?!\"(?:data:,|#[\w-]+)\")", shown)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';" in shown
    assert shown.count("<table>") == shown.count("</table>") == 10
    assert "&lt;script&gt;" in shown


def test_every_link_of_the_navigation_leads_to_a_part(comparison: Comparison) -> None:
    shown = page(comparison, [check(parse("model.latency > +3%"), comparison)])
    (nav,) = re.findall(r"<nav .*?</nav>", shown)
    links = re.findall(r'href="#([\w-]+)"', nav)
    waterfalls = ["difference", "difference-layer_type", "difference-kernel_class"]
    levels = ["layer_type", "kernel_class", "layer", "kernel"]
    assert links == ["rules", *waterfalls, "model", *levels, "pairs", "changes"]
    assert all(shown.count(f'id="{link}"') == 1 for link in links)


def test_bars_of_the_waterfall_lead_from_before_to_after(comparison: Comparison) -> None:
    charts = re.findall(r'<svg class="waterfall".*?</svg>', page(comparison), re.DOTALL)
    assert len(charts) == len(comparison.waterfalls) == 3
    for chart in charts:
        _check_chart(chart)


def test_a_small_change_of_a_long_step_is_drawn_large() -> None:
    noise = Noise(kernel=0.0001, step=0.0001)
    small = compare([view(Work(), 1, noise)], [view(Work(slower={11: 1.02}), 2, noise)], names=("a", "b"))
    falls = small.waterfalls[0]
    assert abs(falls.difference_ns) < falls.before_ns / 50
    (drawn,) = re.findall(r'<svg class="waterfall".*?</svg>', page(small), re.DOTALL)[:1]
    widest = max(float(w) for w in re.findall(r'<rect class="f-(?:worse|better)"[^>]* width="([\d.]+)"', drawn))
    assert widest > 150
    assert "The scale begins at" in page(small)


def _check_chart(chart: str) -> None:
    bars = re.findall(r'<rect class="f-(\w+)" x="([\d.]+)" y="\d+" width="([\d.]+)"', chart)
    spans = [(kind, float(x), float(x) + float(width)) for kind, x, width in bars]
    assert (spans[0][0], spans[-1][0]) == ("total", "total")
    at = spans[0][2]
    for kind, left, right in spans[1:-1]:
        assert (left if kind == "worse" else right) == pytest.approx(at, abs=1.1)  # a bar is at least a pixel wide
        at = right if kind == "worse" else left
    assert at == pytest.approx(spans[-1][2], abs=len(spans) + 1)


def test_several_models_are_folded_under_their_names(comparison: Comparison) -> None:
    shown = page_of_several(Several([Compared("net", comparison), Compared("other", comparison)], ["gone"], []))
    assert shown.count("<details ") == 2
    ids = re.findall(r' id="([\w-]+)"', shown)
    assert len(ids) == len(set(ids))
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
    tab.set_viewport_size({"width": 1200, "height": 800})
    tab.get_by_role("button", name="Switch to dark colours").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.get_by_role("link", name="Classes of kernels", exact=True).click()
    assert tab.evaluate("location.hash") == "#kernel_class"
    tab.close()


@pytest.mark.browser
def test_without_scripts_everything_is_there_but_the_button(
    comparison: Comparison, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(comparison))
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("table").count() == 10
    assert tab.locator("svg.waterfall").first.is_visible()
    assert tab.get_by_role("link", name="Layers", exact=True).is_visible()
    assert tab.locator("button.theme").count() == 0
    context.close()
