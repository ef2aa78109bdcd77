"""The browser of the tests that look at pages, for the site too."""

from __future__ import annotations

from tests.xsp_analyze.conftest import fixture_browser

__all__ = ["fixture_browser"]
