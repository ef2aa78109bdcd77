"""A report keeps its size, says what it left out and opens, however large the trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import Browser, opened
from tests.helpers.large_trace import large_trace
from xsp_analyze.pages.report.page import render
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 8_000_000


@pytest.fixture(name="page", scope="module")
def fixture_page() -> str:
    return render(large_trace(100_000, layers=4_000, names=4_000))


@pytest.mark.slow
def test_a_page_about_many_kernels_layers_and_names_stays_small(page: str) -> None:
    assert len(page.encode()) < _MAX_BYTES


def test_what_is_left_out_is_said(page: str) -> None:
    assert "The 1\u202f000 rows of 4\u202f000 with most duration" in page
    assert "The 3\u202f000 rows of 4\u202f000 with most layer latency" in page


@override_limits(viewer_page_box_bytes=30_000)
def test_a_page_of_more_spans_than_it_holds_says_where_they_are_drawn_merged() -> None:
    page = render(large_trace(20_000, layers=40, names=40))
    assert re.search(r"Every span is drawn as it is from [^;\"]* to [^;\"]*; elsewhere spans shorter than", page)
    assert "xsp view, given the trace, shows all of it." in page


@pytest.mark.browser
def test_a_large_page_opens_with_its_first_rows(browser: Browser, page: str, tmp_path: Path) -> None:
    file = tmp_path / "large.html"
    file.write_text(page, encoding="utf-8")
    with opened(browser, file) as shown:
        shown.wait_for_selector("#tree .cell")
        assert shown.locator("#layers tbody tr").count() == 25
        assert shown.locator("#modules tbody tr").count() == 200
