"""Opens a report as a careful reader would: offline, and anything that goes wrong counts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.helpers.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Browser", "Page", "opened"]

Browser = Any  # playwright is not installed everywhere, and its types with it
Page = Any


@contextmanager
def opened(browser: Browser, file: Path, link: str = "") -> Iterator[Page]:
    """The page at 1280 px with every request but its own file refused; any console error or request is an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_offline(True)
    context.set_default_timeout(HANG_S * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
    )
    page.goto(file.as_uri() + link)
    yield page
    assert not wrong, wrong
    context.close()
