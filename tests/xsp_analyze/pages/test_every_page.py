"""What holds of all five pages, whatever they hold: they fit a phone, can be hit, read aloud, printed; themes are kept.

Pictures of each at 1440, 768 and 390 px go to the folder that XSP_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.batches import trace_of
from tests.helpers.browser import opened
from tests.helpers.captures import Noise, Work, view
from tests.helpers.cohort_members import member
from tests.helpers.looks import PAPER_PX, axe_issues, cut_in_print, small_targets, too_wide, unfold
from tests.helpers.profile_trace import profile
from tests.helpers.rank_traces import rank_trace, write_rank
from tests.helpers.serving_trace import serving_trace
from xsp.cli.main import main
from xsp_analyze.cohort.cohort import group_by_system
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.rules import check, parse
from xsp_analyze.pages.cohort import render as cohort_page
from xsp_analyze.pages.compare.page import page as compare_page
from xsp_analyze.pages.ranks import render as ranks_page
from xsp_analyze.pages.report.page import render as report_page
from xsp_analyze.ranks.job import open_job
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.browser import Browser, Page

pytestmark = pytest.mark.browser

_TRAINING = Path(__file__).parents[3] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic"
_LONG = "cutlass_kernel_with_a_name_of_templates_" * 6
_PAGES = ("report", "leveled", "serving", "compare", "cohort", "ranks", "batch")
_WIDTHS = (1440, 768, 390)

_CLICKS = """(seed) => {
  const leaves = (event) => {
    const link = event.target.closest?.("a[href]");
    if (link && !link.getAttribute("href").startsWith("#")) event.preventDefault();
  };
  addEventListener("click", leaves);
  let state = seed;
  const next = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  for (let done = 0; done < 600; done += 1) {
    const found = document.querySelectorAll("button, summary, a, [tabindex], svg *, canvas, input, select");
    const one = found[next(found.length)];
    one.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, composed: true, view: window }));
  }
}"""
"""Clicks on what can be clicked, 600 times, as a fixed sequence of numbers chooses; a click does not leave the page."""


def _compared() -> str:
    noise = Noise(kernel=0.01, step=0.005)
    after = Work(slower={11: 1.5}, kernels={2: (_LONG, "gemm_2", "add")})
    comparison = compare([view(Work(), 1, noise)], [view(after, 2, noise)], names=("old.json", f"{_LONG}.json"))
    return compare_page(comparison, [check(parse("model.latency > +3%"), comparison)])


def _cohort() -> str:
    times = {"latency_ns": 12_345_678, "gpu_share": 0.5}
    return cohort_page(
        group_by_system(
            [member(f"model_{n}_{_LONG[:60]}", system, "", **times) for n in range(8) for system in ("A", "B")]
        ),
        title="Cohort",
    )


def _ranks(folder: Path) -> str:
    for rank in range(3):
        write_rank(folder / "ranks" / str(rank), rank, rank_trace(4 + rank, 3))
    return ranks_page(open_job(folder, "job"), ["rank-3: the trace is cut off"])


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "report": report_page(convert([_TRAINING / "trace.json.gz"], Options())),
        "leveled": report_page(profile()),
        "serving": report_page(serving_trace(folder)),
        "compare": _compared(),
        "cohort": _cohort(),
        "ranks": _ranks(folder),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    (folder / "in").mkdir()
    for scale in (1, 2):
        trace_of(scale).write(folder / "in" / f"{_LONG[:80]}{scale}.json")
    assert main(["batch", str(folder / "in"), "-o", str(folder / "out"), "--jobs", "1"]) == 0
    return {name: folder / f"{name}.html" for name in pages} | {"batch": folder / "out" / "index.html"}


@contextmanager
def _at(browser: Browser, file: Path, width: int, scheme: str = "light") -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("nav")
    yield page
    context.close()


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("name", _PAGES)
def test_nothing_scrolls_sideways_and_every_control_can_be_hit(
    browser: Browser, files: dict[str, Path], tmp_path: Path, name: str, width: int
) -> None:
    folder = Path(os.environ.get("XSP_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with _at(browser, files[name], width) as page:
        page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
        assert too_wide(page) == []
        assert small_targets(page) == []
        unfold(page)
        assert too_wide(page) == []
        assert small_targets(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (768, "dark"), (390, "light")])
@pytest.mark.parametrize("name", _PAGES)
def test_axe_finds_nothing(browser: Browser, files: dict[str, Path], name: str, width: int, scheme: str) -> None:
    with _at(browser, files[name], width, scheme) as page:
        unfold(page)
        assert axe_issues(page) == []


@pytest.mark.parametrize("paper", PAPER_PX)
@pytest.mark.parametrize("name", _PAGES)
def test_paper_holds_what_is_printed(browser: Browser, files: dict[str, Path], name: str, paper: str) -> None:
    with _at(browser, files[name], 1440, "dark") as page:
        folded = page.locator("details:not([open])").count()
        assert cut_in_print(page, paper) == []
        assert page.locator("nav").is_hidden()
        assert page.locator("details:not([open])").count() == folded
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert page.pdf(format=paper)[:5] == b"%PDF-"


def test_a_long_name_is_cut_in_its_middle_and_unfolds_by_keyboard(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["report"]) as page:
        name = page.locator("#layers td.name button.middle, #kernels td.name button.middle").first
        assert name.inner_text() == name.evaluate("node => node.textContent")  # and so it is copied
        page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
        cut = page.locator("button.name-button:visible").first
        title = cut.get_attribute("title")
        assert title.endswith(cut.locator(".tail").inner_text())
        assert cut.get_attribute("aria-expanded") == "false"
        cut.focus()
        page.keyboard.press("Enter")
        assert cut.get_attribute("aria-expanded") == "true"
        assert cut.evaluate("node => getComputedStyle(node.querySelector('.head')).whiteSpace") == "normal"


def test_colours_are_kept_and_taken_along(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["batch"]) as page:
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Switch to dark colours").click()
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != before
        page.locator("a[href*='.html']").first.click()
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert "theme=dark" in page.url
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        page.goto(files["report"].as_uri())
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_colours_can_be_switched_where_nothing_can_be_kept(browser: Browser, files: dict[str, Path]) -> None:
    context = browser.new_context(color_scheme="light")
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(files["compare"].as_uri())
    page.get_by_role("button", name="Switch to dark colours").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert wrong == []
    context.close()


@pytest.mark.parametrize("name", _PAGES)
def test_many_clicks_break_nothing(browser: Browser, files: dict[str, Path], name: str) -> None:
    """Clicks while the page is not drawn yet, and later ones."""
    with opened(browser, files[name]) as page:
        page.get_by_role("button", name="Switch to dark colours").click()
        page.add_init_script(f"addEventListener('DOMContentLoaded', () => ({_CLICKS})(1));")
        page.reload()
        page.evaluate(_CLICKS, 27)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 200)))")
        assert page.locator("[role=alert]").count() == 0
