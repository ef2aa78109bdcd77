"""A browser for the tests that look at reports; they are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.browser import Browser


@pytest.fixture(name="browser", scope="module")
def fixture_browser() -> Iterator[Browser]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (the extra `test-browser`)"
    )
    path = os.environ.get("XSP_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium: install it or set XSP_CHROMIUM")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, headless=True, args=["--no-sandbox"])
        yield browser
        browser.close()
