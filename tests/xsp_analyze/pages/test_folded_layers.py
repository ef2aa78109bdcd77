"""Folded layers on the page: what a reader sees, opens, searches and follows, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.decoder_trace import decoder
from tests.helpers.report_trace import small_trace
from xsp_analyze.pages.report.detail import blocks_of_layers
from xsp_analyze.pages.report.page import render
from xsp_analyze.service import Answers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_rows_of_the_tree_hold_all_layers_once() -> None:
    section = blocks_of_layers(Answers(decoder()))
    assert section is not None
    (block,) = section["blocks"]
    at = {column["key"]: index for index, column in enumerate(block["columns"])}
    depth, latency, name = (block["values"][at[key]] for key in ("depth", "latency_ns", "name"))
    assert depth == [0, 0, *[1, 2, 2, 2, 2] * 3, 0]
    assert [name[row] for row in (0, 1, 2, 3, 17)] == [
        "Embedding_0",
        "Decoder_{0..3}",
        "Attention",
        "Attention_0",
        "Head_0",
    ]
    assert sum(ns for d, ns in zip(depth, latency, strict=True) if d == 0) == 5 + 425 + 40 + 86 + 40
    # A repetition takes 100, 111, 107 and 233 ns: 109 in the median.
    spread = [block["values"][at[key]][1] for key in ("count", "median_ns", "min_ns", "max_ns")]
    assert spread == [4, 109, 100, 233]
    outlier = block["values"][at["outlier"]]
    assert outlier["words"][outlier["at"][1]] == "repetition 4"


def test_no_section_where_nothing_repeats(tmp_path: Path) -> None:
    assert blocks_of_layers(Answers(small_trace(tmp_path))) is None


@pytest.fixture(name="file", scope="module")
def fixture_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("folded") / "report.html"
    file.write_text(render(decoder()), encoding="utf-8")
    return file


@pytest.fixture(name="page")
def fixture_page(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file) as page:
        yield page


def names(page: Page) -> list[str]:
    return [text.strip("\u25b8\u25be ") for text in page.locator("#blocks tbody td.name:first-child").all_inner_texts()]


@pytest.mark.browser
def test_rows_open_and_close_by_keyboard(page: Page) -> None:
    at_first = ["Embedding_0", "Decoder_{0..3}", "Attention", "Linear#1", "Linear#2", "Head_0"]
    assert names(page) == at_first
    button = page.locator("#blocks tbody").get_by_role("button", name="Attention")
    button.focus()
    page.keyboard.press("Enter")
    assert names(page)[2:7] == ["Attention", "Attention_0", "Attention_1", "Attention_2", "Attention_3"]
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("Space")
    assert names(page) == at_first
    page.locator("#blocks").get_by_role("button", name="Fold all").click()
    assert names(page) == ["Embedding_0", "Decoder_{0..3}", "Head_0"]
    page.locator("#blocks").get_by_role("button", name="Open all").click()
    assert len(names(page)) == 18


@pytest.mark.browser
def test_search_finds_a_folded_layer_and_opens_what_holds_it(page: Page) -> None:
    page.locator("#blocks input").fill("linear_5")
    assert names(page) == ["Decoder_{0..3}", "Linear#2", "Linear_5"]
    assert page.locator("#blocks [role=status]").inner_text() == "1 found"
    assert page.evaluate("location.hash") == "#blocks?q=linear_5"
    page.locator("#blocks input").fill("no such layer")
    assert names(page) == []
    page.locator("#blocks input").fill("")
    assert len(names(page)) == 6


@pytest.mark.browser
def test_a_link_to_a_layer_opens_the_block_that_holds_it(browser: Browser, file: Path) -> None:
    with opened(browser, file, "#layers?layer=10") as page:
        assert page.locator("#blocks tr.chosen").inner_text().split("\t")[0].strip() == "Attention_3"
        assert "Attention_3" in page.locator("#layers .panel").inner_text()


@pytest.mark.browser
def test_a_single_layer_and_an_outlier_lead_to_its_parts(page: Page) -> None:
    page.locator("#blocks tbody").get_by_role("link", name="Attention_3").click()  # the outlier's name
    page.locator("#layers .panel").get_by_text("Attention_3").first.wait_for()
    page.locator("#blocks tbody").get_by_role("link", name="Attention_1").click()  # opened down to the outlier
    page.locator("#layers .panel").get_by_text("Attention_1").first.wait_for()
    assert page.locator("#blocks tr.chosen").inner_text().split("\t")[0].strip() == "Attention_1"


@pytest.mark.browser
def test_a_search_in_the_address_is_followed(browser: Browser, file: Path) -> None:
    with opened(browser, file, "#blocks?q=Attention_2") as page:
        assert names(page) == ["Decoder_{0..3}", "Attention", "Attention_2"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_it_fits_its_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("#blocks").get_by_role("button", name="Open all").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = page.locator("#blocks tbody button").evaluate_all("all => all.map(b => b.getBoundingClientRect().height)")
    assert min(heights) >= 24
