"""The browser that the tests of pages share."""

from __future__ import annotations

from tests.xsp_analyze.conftest import fixture_browser

__all__ = ["fixture_browser"]
