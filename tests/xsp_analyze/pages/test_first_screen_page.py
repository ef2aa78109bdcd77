"""The first screen in a real browser: it fits, unfolds by keyboard, leads to what it says, in each width and colour.

Screenshots go to the folder that XSP_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.profile_trace import profile
from tests.helpers.report_trace import small_trace
from tests.helpers.serving_trace import serving_trace
from xsp_analyze.pages.report.page import render
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.browser

_FIXTURES = Path(__file__).parents[3] / "fixtures"
_TRAINING = _FIXTURES / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
_SUMS = _FIXTURES / "nvprof" / "summary_csv"
_HOST = _FIXTURES / "torch_profiler" / "convnet_infer_cpu"
_KINDS = ("training", "leveled", "small", "serving", "sums", "host")
_HEIGHTS = {1440: 900, 768: 1024, 390: 844}
_SCREENS = {1440: 1, 768: 1, 390: 2}


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    traces = {
        "training": convert([_TRAINING], Options()),
        "leveled": profile(),
        "small": small_trace(folder),
        "serving": serving_trace(folder),
        "sums": convert([_SUMS], Options()),
        "host": convert([_HOST], Options()),
    }
    for name, trace in traces.items():
        (folder / f"{name}.html").write_text(render(trace), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in traces}


@pytest.fixture(name="page")
def fixture_page(browser: Browser, files: dict[str, Path]) -> Iterator[Page]:
    with opened(browser, files["training"]) as page:
        page.set_viewport_size({"width": 1440, "height": 900})
        yield page


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("width", _HEIGHTS)
def test_the_first_screen_fits(browser: Browser, files: dict[str, Path], tmp_path: Path, width: int, kind: str) -> None:
    with opened(browser, files[kind]) as page:
        page.set_viewport_size({"width": width, "height": _HEIGHTS[width]})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        folder = Path(os.environ.get("XSP_SCREENSHOTS") or tmp_path)
        page.screenshot(path=folder / f"first_{kind}_{width}.png")
        end = page.locator(".first").bounding_box()
        assert end["y"] + end["height"] <= _HEIGHTS[width] * _SCREENS[width]
        text = page.inner_text(".first")
        assert not [wrong for wrong in ("undefined", "NaN", "[object", "null") if wrong in text]


def test_the_parts_of_the_bar_fill_it_and_stand_in_the_legend(page: Page) -> None:
    widths = page.eval_on_selector_all(".step-bar > span", "all => all.map(s => s.getBoundingClientRect().width)")
    assert sum(widths) == pytest.approx(page.locator(".step-bar").bounding_box()["width"], abs=1)
    shares = page.eval_on_selector_all(".bar-legend .part-share", "all => all.map(s => Number(s.dataset.share))")
    assert len(shares) == len(widths)
    assert sum(shares) == pytest.approx(1)


def test_small_parts_are_in_a_list_that_unfolds(page: Page) -> None:
    small = page.locator(".bar-small")
    assert small.locator("a").first.is_hidden()
    small.locator("summary").focus()
    page.keyboard.press("Enter")
    assert small.locator("a").first.is_visible()
    assert "below 1" in small.locator("summary").inner_text()


def test_a_part_tells_about_itself_under_pointer_and_focus(page: Page) -> None:
    line = page.locator(".bar-told")
    before = line.inner_text()
    page.locator(".step-bar > .c-optimizer").hover()
    assert line.inner_text().startswith("optimizer: ")
    page.mouse.move(0, 0)
    assert line.inner_text() == before
    page.locator(".bar-legend a", has_text="attention").focus()
    assert line.inner_text().startswith("attention: ")
    assert page.locator(".step-bar > .on").get_attribute("class") == "c-attention on"


def test_a_part_leads_to_its_kernels_alone(page: Page) -> None:
    page.locator(".bar-legend a", has_text="optimizer").press("Enter")
    assert page.evaluate("location.hash") == "#kernels?class=optimizer"
    names = page.locator("#kernels tbody tr td:first-child").all_inner_texts()
    assert names
    assert all("adam" in name.lower() or "multi_tensor" in name.lower() for name in names)
    assert "class optimizer" in page.locator("#kernels .only-class").inner_text()
    page.locator("#kernels").get_by_role("button", name="Show all").click()
    assert page.locator("#kernels tbody tr").count() > len(names)
    assert page.evaluate("location.hash") == "#kernels"


def test_a_click_on_the_bar_leads_there_too(page: Page) -> None:
    page.locator(".step-bar > .c-matrix-product").click()
    assert page.evaluate("location.hash") == "#kernels?class=matrix+product"


@pytest.mark.parametrize("kind", _KINDS)
def test_every_link_leads_to_something(browser: Browser, files: dict[str, Path], kind: str) -> None:
    with opened(browser, files[kind]) as page:
        links = page.eval_on_selector_all(".first a", "all => all.map(a => a.getAttribute('href'))")
        ids = {link.removeprefix("#").partition("?")[0] for link in links}
        missing = [one for one in ids if not page.evaluate("id => Boolean(document.getElementById(id))", one)]
        assert missing == []


def test_idle_time_leads_to_the_calls_that_explain_it(page: Page) -> None:
    page.locator(".bar-legend a", has_text="idle: host work").click()
    assert page.evaluate("location.hash") == "#B16?q=host"
    page.wait_for_selector("#B16[open] tbody tr")
    assert "host" in page.locator("#B16 tbody").inner_text()


def test_a_tile_unfolds_by_keyboard_to_what_it_means(page: Page) -> None:
    tile = page.locator('[data-tile="busy"]')
    assert tile.locator(".note").first.is_hidden()
    tile.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert "idle for the rest" in tile.locator(".note").first.inner_text()
    assert tile.locator(".spark circle").count() == 4


def test_a_doubt_unfolds_beside_its_number(page: Page) -> None:
    doubts = page.locator('[data-tile="coverage"] .doubts')
    doubts.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "outside of every layer" in doubts.inner_text()


def test_a_finding_unfolds_to_evidence_and_advice(page: Page) -> None:
    first = page.locator(".first-findings details").first
    first.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert "To do:" in first.inner_text()
    assert page.locator(".first-findings > ol > li").count() == 3
    page.locator(".first-findings .bar-head a").click()
    assert page.evaluate("location.hash") == "#next"


def test_the_sentences_are_there_in_words(page: Page) -> None:
    page.locator(".in-words > summary").click()
    assert page.locator(".in-words li").first.inner_text().startswith("Training under PyTorch on")


def test_what_is_missing_is_one_line_that_unfolds(page: Page) -> None:
    part = page.locator("#not-here")
    assert part.locator("summary").inner_text().startswith("Not here: ")
    part.locator("summary").click()
    assert "merge" in part.locator("#overhead").inner_text()
    assert page.locator(".missing:visible").count() == 0


def test_a_link_to_a_missing_part_opens_why_it_is_missing(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["host"], "#kernels") as page:
        assert "needs the level kernel" in page.locator("#not-here #kernels").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_legend_has_the_colours_of_the_bar(page: Page, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    colour = "e => getComputedStyle(e).backgroundColor"
    bar = page.locator(".step-bar > .c-attention").evaluate(colour)
    assert page.locator(".bar-legend a", has_text="attention").locator("i").evaluate(colour) == bar
    assert bar != page.locator("body").evaluate(colour)


def test_what_one_can_click_is_large_enough(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    heights = page.eval_on_selector_all(
        ".first .bar-legend > li > a, .first summary",
        "all => all.filter(e => e.offsetParent).map(e => e.getBoundingClientRect().height)",
    )
    assert min(heights) >= 24


def test_paper_shows_the_first_screen(page: Page) -> None:
    page.emulate_media(media="print")
    assert page.locator(".step-bar").is_visible()
    assert page.locator(".tile").first.is_visible()
    assert page.locator(".first-findings").is_visible()
