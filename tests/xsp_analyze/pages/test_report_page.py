"""The report in a real browser: it draws itself without errors, needs no network, and answers to clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.report_trace import HOSTILE, small_trace
from xsp_analyze.pages.report.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.browser

_LAYER_COUNT = 40


@pytest.fixture(name="file", scope="module")
def fixture_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(render(small_trace(folder, kernels=_LAYER_COUNT)), encoding="utf-8")
    return file


@pytest.fixture(name="page")
def fixture_page(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file) as page:
        page.wait_for_selector("#modules table")
        page.wait_for_selector("#tree .cell")
        yield page


def test_every_section_is_drawn(page: Page) -> None:
    ids = page.eval_on_selector_all("section", "all => all.map(s => s.id)")
    assert ids == [
        "next", "what-if", "ledger", "model", "timeline", "tree", "layers", "gpu", "types", "kernels", "devices",
        "modules", "analyses", "not-here",
    ]  # fmt: skip
    assert page.locator(".missing").count() == 0
    assert page.locator("h1").inner_text() == "small.json"
    assert "undefined" not in page.inner_text("body")
    assert "NaN" not in page.inner_text("body")
    assert "[object" not in page.inner_text("body")


def test_the_ledger_comes_first_in_plain_words(page: Page) -> None:
    text = page.locator("#ledger").inner_text()
    assert "launched before the trace" in text
    assert "Start the profiler a step earlier" in text


def test_a_kernel_called_script_is_text(page: Page) -> None:
    assert page.title() == "small.json - XSP"
    assert page.locator("#kernels td.name", has_text=HOSTILE).count() == 1
    assert page.evaluate("document.querySelectorAll('#page script').length") == 0


def test_a_click_on_the_icicle_zooms_in_and_the_path_leads_back(page: Page) -> None:
    crumbs = page.locator("#tree .crumbs")
    linear = page.locator("#tree .cell", has_text="Linear_0")
    before = linear.bounding_box()["width"]
    linear.click()
    assert linear.bounding_box()["width"] > before
    assert linear.bounding_box()["width"] == pytest.approx(page.locator("#tree .icicle").bounding_box()["width"], abs=2)
    assert crumbs.inner_text().split("\u203a")[-1].strip() == "Linear_0"
    assert page.locator("#tree .cell", has_text="relu").count() == 0
    crumbs.get_by_role("button", name="all device work").click()
    assert page.locator("#tree .cell", has_text="Linear_0").bounding_box()["width"] == pytest.approx(before, abs=2)


def test_the_icicle_tells_what_the_pointer_is_on(page: Page) -> None:
    page.locator("#tree .cell", has_text="ReLU_0").hover()
    text = page.locator("#tree .told").inner_text()
    assert "ReLU_0" in text
    assert "60.0\u202f\u00b5s" in text
    assert "2 pieces of device work" in text


def test_the_icicle_can_be_used_without_a_mouse(page: Page) -> None:
    page.locator("#tree .cell", has_text="Linear_0").focus()
    page.keyboard.press("Enter")
    assert "Linear_0" in page.locator("#tree .crumbs").inner_text()


def test_a_click_on_a_heading_sorts(page: Page) -> None:
    table = page.locator("#kernels table")
    first = table.locator("tbody tr").first.locator("td").first
    assert first.inner_text() == HOSTILE
    table.get_by_role("button", name="kernel name").click()
    assert first.inner_text() == HOSTILE  # "<" sorts before letters
    table.get_by_role("button", name="kernel name").click()
    assert first.inner_text() == "gemm_9"
    assert table.locator("th").first.get_attribute("aria-sort") == "descending"


def test_search_narrows_the_rows(page: Page) -> None:
    section = page.locator("#kernels")
    section.locator("input").fill("GEMM_1")
    assert section.locator("tbody tr").count() == 11  # 1 and 10 to 19
    assert "11 found of 41" in section.locator(".tools").inner_text()
    section.locator("input").fill("no such thing")
    assert section.locator("tbody tr").count() == 0


def test_long_tables_are_turned_page_by_page(page: Page) -> None:
    section = page.locator("#kernels")
    assert section.locator("tbody tr").count() == 25
    section.get_by_role("button", name="Next").click()
    assert section.locator("tbody tr").count() == 16
    assert "26 to 41 of 41" in section.locator(".tools").inner_text()


def test_numbers_are_right_aligned_and_exact_in_their_tooltip(page: Page) -> None:
    cell = page.locator("#kernels tbody tr").first.locator("td[title='30\u202f000\u202fns']").first
    assert cell.evaluate("e => getComputedStyle(e).textAlign") == "right"
    assert cell.get_attribute("title") == "30\u202f000\u202fns"


def test_modules_open_and_close(page: Page) -> None:
    section = page.locator("#modules")
    assert section.locator("tbody tr").count() == 3
    section.locator("tbody").get_by_role("button", name="Net_0").click()
    assert section.locator("tbody tr").count() == 1


def test_a_column_tells_its_layer(page: Page) -> None:
    page.locator("#gpu svg g .hit").first.hover()
    assert "Linear_0: device time" in page.locator("#gpu .caption").inner_text()


@pytest.mark.parametrize("width", [360, 820, 1280])
def test_the_page_never_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert _contrast(ink, paper) > 7


def test_ten_thousand_rows_are_sorted_without_freezing(browser: Browser, file: Path, tmp_path: Path) -> None:
    marker = '"type":"table","name":"kernels by name"'
    text = file.read_text(encoding="utf-8")
    assert marker in text
    grown = tmp_path / "grown.html"
    script = (
        "const d = JSON.parse(document.getElementById('data').textContent);"
        "const t = d.sections.find(s => s.id === 'kernels').blocks[0];"
        "const grow = v => (_, i) => typeof v[0] === 'number' ? i : `${v[0]} ${i}`;"
        "t.values = t.values.map(v => Array.from({length: 10000}, grow(v)));"
        "document.getElementById('data').textContent = JSON.stringify(d);"
    )
    grown.write_text(
        text.replace('\n<script>\n"use strict";', f"\n<script>{script}</script>\n<script>\n'use strict';"), "utf-8"
    )
    page = browser.new_page()
    page.goto(grown.as_uri())
    page.wait_for_selector("#kernels tbody tr")
    took = page.evaluate(
        "() => { const t = performance.now();"
        " document.querySelector('#kernels th button').click();"
        " return performance.now() - t; }"
    )
    assert "of 10\u202f000" in page.locator("#kernels .tools").inner_text()
    assert took < 500
    page.close()


def _contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two CSS colours, 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    channels = [int(c) / 255 for c in color.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
