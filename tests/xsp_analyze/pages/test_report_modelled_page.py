"""The report of a trace without counters in a real browser: its roofline names points, and says they are modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.shaped_trace import shaped
from xsp_analyze.pages.report.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.browser


@pytest.fixture(name="page")
def fixture_page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    file = tmp_path / "shaped.html"
    file.write_text(render(shaped()), encoding="utf-8")
    with opened(browser, file) as page:
        page.wait_for_selector("#rooflines circle")
        yield page


def test_the_largest_points_are_named_beside_them(page: Page) -> None:
    figure = page.locator("#rooflines .roofline").first
    assert figure.locator(".point-label").all_text_contents() == ["mm 100x200, 200x300", "relu 1000x50"]
    assert "modelled flop per byte" in figure.inner_text()


def test_a_point_says_that_it_is_modelled_and_what_it_would_gain(page: Page) -> None:
    figure = page.locator("#rooflines .roofline").first
    figure.locator("circle.point").first.focus()
    hint = figure.locator(".told").inner_text()
    assert "aten::mm of 100x200, 200x300 in fp32" in hint
    assert "500\u202fGFLOP/s at 27.3\u202fflop/byte in fp32 (work modelled from shapes)" in hint
    assert "compute bound: 50.0\u202f% of the fp32 peak of Card (its data sheet); 2 calls" in hint
    assert "to gain" in hint


def test_a_narrow_screen_scrolls_only_tables_across(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
