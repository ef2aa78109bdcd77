"""The pages of a cohort and of a job in a browser: sorted, searched, offline, on a phone, by those who cannot see."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import opened
from tests.helpers.cohort_members import member
from tests.helpers.rank_traces import rank_trace, write_rank
from xsp_analyze.cohort.cohort import group_by_system
from xsp_analyze.cohort.facts import Mix
from xsp_analyze.pages.cohort import render
from xsp_analyze.pages.ranks import render as render_job
from xsp_analyze.ranks.job import open_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.browser import Browser, Page

pytestmark = pytest.mark.browser
_MS = 1_000_000


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cohort of twelve models on two systems, and a job of three ranks."""
    folder = tmp_path_factory.mktemp("pages")
    members = []
    for n in range(12):
        mix = Mix("host time of operators", {"conv2d": (n + 1) / 13, "linear": 1 - (n + 1) / 13}, None)
        for system, times in (("GPU A", 1), ("GPU B", 3)):
            more: dict[str, object] = {"latency_ns": (12 - n) * times * _MS, "gpu_share": n / 12, "mix": mix}
            one = member(f"model_{n}_of_a_rather_long_name", system, "", **more)
            members.append(replace(one, report="r.html"))
    (folder / "cohort.html").write_text(render(group_by_system(members), title="Cohort"))
    (folder / "r.html").write_text("<!doctype html><title>report</title>")
    for rank in range(3):
        write_rank(folder / "ranks" / str(rank), rank, rank_trace(4 + rank, 3))
    (folder / "job.html").write_text(render_job(open_job(folder, "job"), ["rank-3: the trace is cut off"]))
    return {name: folder / f"{name}.html" for name in ("cohort", "job")}


@pytest.fixture(name="page")
def fixture_page(browser: Browser, files: dict[str, Path]) -> Iterator[Page]:
    """The cohort's page."""
    with opened(browser, files["cohort"]) as page:
        yield page


def _first(page: Page) -> str:
    return str(page.locator("#models tbody tr:visible").first.locator("td").first.inner_text())


def test_a_click_on_a_heading_sorts_by_value(page: Page) -> None:
    latency = page.locator("#models th button", has_text=re.compile("^latency"))
    latency.click()
    assert _first(page) == "model_0_of_a_rather_long_name"  # 36 ms, the longest
    latency.click()
    assert _first(page) == "model_11_of_a_rather_long_name"
    header = page.locator("#models th[aria-sort]")
    assert (header.count(), header.get_attribute("aria-sort")) == (1, "ascending")


def test_search_leaves_what_holds_every_word(page: Page) -> None:
    page.locator("#models").get_by_role("searchbox").fill("model_7 gpu b")
    assert page.locator("#models tbody tr:visible").count() == 1


def test_a_model_leads_to_its_report(page: Page) -> None:
    page.locator("#models tbody a").first.click()
    assert page.title() == "report"


@pytest.mark.parametrize("name", ["cohort", "job"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_is_kept_as_a_picture(
    browser: Browser, files: dict[str, Path], tmp_path: Path, name: str, width: int
) -> None:
    folder = Path(os.environ.get("XSP_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with opened(browser, files[name]) as page:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
    assert (folder / f"{name}-{width}.png").stat().st_size > 10_000


def test_models_are_set_side_by_side_in_small_charts_of_one_measure(page: Page) -> None:
    charts = page.locator("#multiples .multiple")
    assert charts.count() == 12
    assert charts.first.locator("rect:not(.hit)").count() == 2  # two systems
    read = charts.first.locator("svg").get_attribute("aria-label")
    assert read is not None
    assert "GPU A" in read
    assert "GPU B" in read
    page.get_by_role("button", name="Device busy", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Device busy", exact=True).get_attribute("aria-pressed") == "true"
    assert "device busy" in str(page.locator("#multiples .multiple svg").last.get_attribute("aria-label"))


def test_a_chart_leads_to_the_report_of_what_is_pointed_at(page: Page) -> None:
    links = page.locator("#multiples .multiple a")
    assert {links.nth(n).get_attribute("href") for n in range(links.count())} == {"r.html"}
