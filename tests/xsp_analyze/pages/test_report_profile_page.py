"""The report of a profile in a real browser: its timelines and rooflines draw themselves and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.profile_trace import profile
from tests.helpers.report_trace import HOSTILE
from xsp_analyze.pages.report.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.browser


@pytest.fixture(name="page")
def fixture_page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    file = tmp_path / "profile.html"
    file.write_text(render(profile()), encoding="utf-8")
    with opened(browser, file) as page:
        page.wait_for_selector("#modules table")
        page.wait_for_selector(".timelines .cell")
        page.wait_for_selector("#rooflines circle")
        yield page


def _width(page: Page, selector: str) -> float:
    width: float = page.locator(selector).first.bounding_box()["width"]
    return width


def test_every_word_of_the_page_is_one(page: Page) -> None:
    text = page.inner_text("body")
    assert not [token for token in ("undefined", "NaN", "[object", "Infinity") if token in text]
    assert page.locator(".missing").count() == 0
    assert page.title() == "net - XSP"


def test_timelines_share_one_scale(page: Page) -> None:
    bars = [box.bounding_box() for box in page.locator(".timelines .k-model").all()]
    assert len({bar["x"] for bar in bars}) == 1
    assert bars[1]["width"] / bars[0]["width"] == pytest.approx(1.0, abs=0.01)  # the model's own part of the step
    added = [box.bounding_box()["width"] for box in page.locator(".timelines .k-overhead").all()]
    assert added[1] / added[0] == pytest.approx(3.0, abs=0.1)
    assert added[0] / bars[0]["width"] == pytest.approx(0.1, abs=0.01)


def test_a_layer_tells_its_cost_and_shows_itself_in_both_runs(page: Page) -> None:
    page.locator(".timelines .k-layer", has_text="Linear_0").first.hover()
    text = page.locator("#overhead .told").inner_text()
    assert "Linear_0" in text
    assert (
        "45.0\u202f\u00b5s with layers profiled, 55.0\u202f\u00b5s with kernels profiled too"
        " (+10.0\u202f\u00b5s, 22.2\u202f%)" in text
    )
    assert page.locator(".timelines .same").count() == 2


def test_a_kernel_tells_its_layer(page: Page) -> None:
    page.locator(".timelines .k-kernel").nth(1).hover()
    text = page.locator("#overhead .told").inner_text()
    assert HOSTILE in text
    assert "30.0\u202f\u00b5s, in ReLU_0." in text


def test_a_click_looks_closer_and_a_button_leads_back(page: Page) -> None:
    before = _width(page, ".timelines .k-layer")
    page.locator(".timelines .k-layer", has_text="Linear_0").first.click()
    assert _width(page, ".timelines .k-layer") > 1.5 * before
    page.get_by_role("button", name="Show the whole step").click()
    assert _width(page, ".timelines .k-layer") == pytest.approx(before)


def test_a_point_under_the_roof_tells_what_it_is(page: Page) -> None:
    figure = page.locator(".roofline").nth(1)
    figure.locator("circle.point").nth(1).hover()
    text = figure.locator(".told").inner_text()
    assert HOSTILE in text
    assert "2.00\u202fTFLOP/s at 20.0\u202fflop/byte in fp32, 30.0\u202f\u00b5s of device time" in text
    assert "compute bound: 20.0\u202f% of the fp32 peak of A device" in text
    assert "ridge 10" in figure.locator("svg").inner_html()


def test_points_stand_where_both_axes_say(page: Page) -> None:
    figure = page.locator(".roofline").first
    ridge, point = figure.locator("line.ridge"), figure.locator("circle.point").first
    assert float(point.get_attribute("cx")) > float(ridge.get_attribute("x1"))
    assert float(point.get_attribute("cy")) > float(ridge.get_attribute("y1"))


@pytest.mark.parametrize("width", [360, 820, 1280])
def test_the_page_never_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
