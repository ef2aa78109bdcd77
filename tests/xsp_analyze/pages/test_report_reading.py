"""What a reader does with a report, in a real browser: drill down, search, sort, link, save, switch colours.

Screenshots at 1440 and 390 px go to the folder that XSP_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.profile_trace import profile
from tests.helpers.report_trace import small_trace
from xsp_analyze.pages.blocks import page_by_script, section
from xsp_analyze.pages.report.page import render
from xsp_analyze.render.csv_text import write_csv
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.browser

_TRAINING = Path(__file__).parents[3] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic"


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    pages = {
        "training": render(convert([_TRAINING / "trace.json.gz"], Options())),
        "leveled": render(profile()),
        "small": render(small_trace(folder)),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(name="page")
def fixture_page(browser: Browser, files: dict[str, Path]) -> Iterator[Page]:
    with opened(browser, files["training"]) as page:
        yield page


def _go(page: Page, link: str) -> None:
    page.evaluate("link => { location.hash = link; }", link)


def _saved(page: Page, click: Any) -> tuple[str, bytes]:  # noqa: ANN401 (a locator)
    with page.expect_download() as waiting:
        click.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


# Drill-down


def test_a_click_on_a_layer_shows_its_operators_and_kernels(page: Page) -> None:
    page.locator("#layers tbody").get_by_role("button", name="Attention_1").click()
    panel = page.locator("#layers .panel")
    text = panel.inner_text()
    assert "Attention_1 (Attention), layer 18" in text
    assert "aten::scaled_dot_product_attention" in text
    assert "fmha_cutlassB_f32_aligned_64x64_k64_sm80" in text
    assert "recompute" in text
    assert page.evaluate("location.hash") == "#layers?layer=18"
    panel.get_by_role("button", name="Next layer").click()
    assert "Linear_9" in panel.inner_text()
    panel.get_by_role("button", name="Close").click()
    assert panel.is_hidden()


def test_parts_of_a_layer_add_up_to_its_device_time(page: Page) -> None:
    added = page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById('data').textContent);
          const block = data.sections.find(s => s.id === 'layers').blocks[0];
          const at = (b, key) => b.columns.findIndex(c => c.key === key);
          const work = block.parts.work;
          const sums = block.values[0].map(() => 0);
          work.row.forEach((row, i) => { if (row >= 0) sums[row] += work.values[at(work, 'duration_ns')][i]; });
          const own = block.values[at(block, 'kernel_duration_ns')];
          return sums.map((sum, row) => [sum, own[row] ?? 0]);
        }"""
    )
    assert len(added) == 28
    assert all(parts == pytest.approx(total, abs=0.1) for parts, total in added)


def test_a_kernel_shows_the_layers_that_run_it(page: Page) -> None:
    page.locator("#kernels input").fill("tensor_apply")
    page.locator("#kernels tbody button").first.click()
    assert "outside every layer" in page.locator("#kernels .panel").inner_text()
    page.locator("#kernels input").fill("fmha_cutlassB")
    page.locator("#kernels tbody button").first.click()
    rows = page.locator("#kernels .panel tbody tr")
    assert {row.split("\t")[0] for row in rows.all_inner_texts()} == {"Attention_0", "Attention_1"}


def test_the_panel_leads_to_the_tree(page: Page) -> None:
    _go(page, "#layers?layer=18")
    page.get_by_role("link", name="Show in the tree").click()
    page.wait_for_function("document.querySelector('#tree .crumbs').innerText.includes('Attention_1')")


def test_the_tree_is_searched_and_adds_up_what_it_finds(page: Page) -> None:
    page.locator("#tree input").fill("allreduce")
    assert "1 found: 1.67\u202fms, 18.2\u202f% of all" in page.locator("#tree .tools").inner_text()
    assert page.locator("#tree .cell.found").count() >= 1


# Links


@pytest.mark.parametrize(
    ("link", "selector", "text"),
    [
        ("#layers?layer=18", "#layers .panel", "Attention_1"),
        ("#kernels?q=fmha", "#kernels .tools", "found of"),
        ("#A10?sort=kernel_name", "#A10 th[aria-sort=ascending]", "kernel name"),
        ("#tree?name=Linear_12", "#tree .crumbs", "Linear_12"),
        ("#B03", "#B03", "Idle time is the device waiting"),
    ],
)
def test_a_link_opens_what_it_names(
    browser: Browser, files: dict[str, Path], link: str, selector: str, text: str
) -> None:
    with opened(browser, files["training"], link) as page:
        assert text in page.locator(selector).first.inner_text()


def test_the_address_follows_search_and_sort(page: Page) -> None:
    page.locator("#kernels input").fill("nccl")
    assert page.evaluate("location.hash") == "#kernels?q=nccl"
    page.locator("#kernels th").get_by_role("button", name="count").click()
    assert page.evaluate("location.hash") == "#kernels?q=nccl&sort=-count"


def test_findings_lead_to_their_rows(page: Page) -> None:
    first = page.locator("#next li").first
    assert "The device idles between short kernels" in first.inner_text()
    assert "at most 773\u202f\u00b5s, 26.0\u202f%" in first.inner_text()
    first.get_by_role("link", name="See where").click()
    page.wait_for_function("document.getElementById('kernels').getBoundingClientRect().top < innerHeight")
    first.locator("summary").click()
    assert "docs/findings/launch-bound.md" in first.inner_text()


def test_every_link_of_the_page_leads_somewhere(browser: Browser, files: dict[str, Path]) -> None:
    for file in files.values():
        with opened(browser, file) as page:
            targets = page.eval_on_selector_all("a[href^='#']", "all => all.map(a => a.getAttribute('href'))")
            missing = [t for t in targets if not page.evaluate(
                "id => document.getElementById(id) !== null", t[1:].split("?")[0])]  # fmt: skip
            assert missing == []


# Every analysis


def test_every_analysis_opens_with_how_to_read_it_and_its_definition(page: Page) -> None:
    entries = page.locator("#analyses details.analysis-entry")
    ids = entries.evaluate_all("all => all.map(d => d.id)")
    assert ids[:16] == [*(f"A{n:02}" for n in range(1, 16)), "B01"]
    for identity in ids:
        entry = page.locator(f"#{identity}")
        entry.locator("summary").first.click()
        entry.get_by_text("Definition. One row").first.wait_for()  # what an entry holds is drawn once it opens
        assert entry.locator("table").count() or entry.locator(".missing").count()
    body = page.inner_text("body")
    assert not [text for text in ("undefined", "NaN", "[object", "Infinity") if text in body]


# Saving


def test_a_table_is_copied_as_csv(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["training"]) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("#kernels input").fill("nccl")
        page.locator("#kernels").get_by_role("button", name="Copy as CSV").click()
        page.wait_for_selector("#kernels button:has-text('Copied')")
        rows = list(csv.DictReader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert [row["kernel_name"] for row in rows] == [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    ]
    assert float(rows[0]["duration_ns"]) == pytest.approx(417_417, abs=1)


def test_a_table_is_saved_as_csv(page: Page) -> None:
    name, content = _saved(page, page.locator("#layers").get_by_role("button", name="Save CSV").first)
    assert name == "layers.csv"
    assert len(content.decode().splitlines()) == 29


def test_a_page_guards_texts_as_csv_files_do(browser: Browser, tmp_path: Path) -> None:
    texts = ["=1", "a;=1", "a\t=1", "\t=1", "\u200b@SUM(A1)", 'x;"=1"', "void f<-1>()", "a; b", "-1.5", "a;\t \uff1d1",
             "\u2028=1", "a\x85=1", "\x1b=1", "\u3164@a", "\u2800\ufe66", "\U000e0001=1", "\u0300=1"]  # fmt: skip
    column = {"key": "name", "heading": "name", "number": False, "doc": ""}
    table = {"type": "table", "name": "names", "columns": [column], "values": [texts]}
    sections = [section("names", "Names", "Names", "", [table])]
    page = page_by_script({"kind": "", "title": "", "short": [], "sections": sections, "footer": ""})
    (tmp_path / "names.html").write_text(page, encoding="utf-8")
    with opened(browser, tmp_path / "names.html") as shown:
        _, saved = _saved(shown, shown.get_by_role("button", name="Save CSV"))
    written = write_csv([pl.Series("name", texts)], raw=False)
    rows = [list(csv.reader(io.StringIO(content, newline=""))) for content in (saved.decode(), written)]
    assert rows[0] == rows[1]


def test_a_figure_is_saved_as_svg_and_png(page: Page) -> None:
    name, svg = _saved(page, page.get_by_role("button", name="Save as SVG: Columns"))
    assert name.endswith(".svg")
    assert svg.startswith(b"<svg")
    assert b'fill="rgb(217, 146, 59)"' in svg  # the colours are in the file, not in the page's sheet
    assert b"class=" not in svg
    name, png = _saved(page, page.get_by_role("button", name="Save as PNG: Columns"))
    assert name.endswith(".png")
    assert png.startswith(b"\x89PNG")


def test_the_timeline_is_saved_for_perfetto(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('.viewer').dataset.ready")
    name, content = _saved(page, page.get_by_role("button", name="Save what is in view"))
    assert name == "trace-json-gz-timeline.json"
    events = json.loads(content)["traceEvents"]
    work = [
        e for e in events if e["ph"] == "X" and e["cat"] not in ("model", "layer", "operator", "library", "runtime")
    ]
    assert len([e for e in work if e["name"].startswith("nccl")]) == 2  # of the step, and of the one before it
    assert {e["name"] for e in events if e["ph"] == "M"} == {"thread_name", "process_name"}
    assert all(e["ts"] >= 0 for e in events if e["ph"] == "X")
    assert any(e["args"].get("layer") == "Attention_1" for e in work)
    assert [e["ph"] for e in events if e["ph"] in "sf"].count("s") > 100


# Figures


def test_a_figure_looks_closer_moves_and_goes_back(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["leveled"]) as page:
        frame = page.locator("#rooflines .framed").first
        point = frame.locator("circle.point").last
        before = point.bounding_box()["x"]
        frame.get_by_role("button", name="Zoom in").click()
        assert point.bounding_box()["x"] != before
        frame.locator(".field").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("0")
        assert point.bounding_box()["x"] == before


def test_kernels_and_layers_lead_to_the_timeline(page: Page) -> None:
    page.locator("#kernels input").fill("fmha_cutlassB")
    page.locator("#kernels tbody button").first.click()
    page.locator("#kernels .panel").get_by_role("link", name="Show in the timeline").click()
    page.wait_for_function("() => document.querySelector('.viewer').dataset.selected.startsWith('fmha_cutlassB')")
    page.locator(".viewer-details").get_by_role("link", name="In the table of kernels").click()
    assert page.evaluate("location.hash").startswith("#kernels?kernel=fmha_cutlassB")
    _go(page, "#layers?layer=18")
    page.locator("#layers .panel").get_by_role("link", name="Show in the timeline").click()
    page.wait_for_function("() => document.querySelector('.viewer').dataset.selected === 'Attention_1'")


def test_a_point_under_the_roof_is_zoomed_at(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["leveled"]) as page:
        frame = page.locator("#rooflines .framed").first
        frame.locator("circle.point").last.hover()
        text = page.locator("#rooflines .told").first.inner_text()
        assert "of what is drawn here" in text
        marks = frame.locator("text").count()
        for _ in range(4):
            frame.get_by_role("button", name="Zoom in").click()
        assert frame.locator("text").count() != marks
        frame.get_by_role("button", name="Show all").click()
        assert frame.locator("text").count() == marks


# Colours, widths, print, accessibility


def test_a_button_switches_to_dark_and_back(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Switch to dark colours").click()
    assert page.evaluate(paper) == "rgb(23, 25, 29)" != light
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate(paper) == light


def test_paper_is_light_and_without_buttons(page: Page) -> None:
    page.get_by_role("button", name="Switch to dark colours").click()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert not page.locator(".frame-tools").first.is_visible()
    assert page.locator("#next li").first.is_visible()


@pytest.mark.parametrize(("name", "width"), [("training", 1440), ("leveled", 390)])
def test_the_page_is_kept_as_a_picture(
    browser: Browser, files: dict[str, Path], tmp_path: Path, name: str, width: int
) -> None:
    folder = Path(os.environ.get("XSP_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with opened(browser, files[name]) as page:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("document.querySelectorAll('#analyses details').forEach(d => { d.open = true; })")
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
    assert (folder / f"{name}-{width}.png").stat().st_size > 10_000
