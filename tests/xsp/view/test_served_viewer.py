"""The viewer in a real browser, fed by `xsp view`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.helpers.report_trace import small_trace
from xsp.view.server import server_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.browser import Browser

pytestmark = pytest.mark.browser


def test_the_viewer_draws_what_its_server_answers(browser: Browser, tmp_path: Path) -> None:
    with server_of(small_trace(tmp_path), None, 0, perfetto=False) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(30_000)
        page = context.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda response: wrong.append(response.url) if response.status != 200 else None)
        page.goto(server.url)
        page.get_by_role("searchbox").fill("gemm_")
        page.get_by_text("6 found").wait_for()
        context.close()
        server.shutdown()
        thread.join()
    assert wrong == []
