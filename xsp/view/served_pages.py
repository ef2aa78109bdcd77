"""The pages that `xsp view` serves: the viewer, or the hand-over of the trace to Perfetto's."""

from __future__ import annotations

from xsp.view.server import Answer
from xsp_analyze.pages import blocks
from xsp_analyze.pages.shell import page_by_script, program_and_version
from xsp_analyze.pages.viewer.block import SCRIPTS, STYLES

__all__ = ["handover_page", "viewer_page"]

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_SERVED = "Served by xsp view from this machine to this machine alone, until Ctrl-C ends it."


def viewer_page(title: str) -> Answer:
    """The viewer, which asks for what is in view."""
    section = blocks.section(
        "timeline",
        "Timeline",
        "The run over time",
        "One lane per host thread, with what it called, then one per stream of each device. All of the trace is here.",
        [{"type": "viewer", "served": True}],
    )
    return _page("XSP view: the whole trace", title, [section])


def handover_page(title: str, size_bytes: int) -> Answer:
    """A page that opens ui.perfetto.dev in a window and gives it the trace that it fetches from `trace`."""
    section = blocks.section(
        "perfetto",
        "Perfetto",
        "Open in Perfetto",
        "Perfetto's viewer is a page of ui.perfetto.dev, so your browser needs a network to open it. The trace itself"
        " is handed from this window to that one, within the browser: this page uploads nothing. Perfetto asks whether"
        " it may trust the window that it gets a trace from.",
        [{"type": "perfetto", "title": title, "size": size_bytes}],
    )
    return _page("XSP view: a trace for Perfetto", title, [section], ("perfetto.js",))


def _page(kind: str, title: str, sections: list[blocks.Section], scripts: tuple[str, ...] = SCRIPTS) -> Answer:
    data = {
        "kind": kind,
        "title": title,
        "short": [],
        "sections": sections,
        "footer": f"{program_and_version()} {_SERVED}",
    }
    styles = STYLES if scripts == SCRIPTS else ()
    page = page_by_script(data, scripts, styles, served=True)
    return Answer(page.encode(), "text/html; charset=utf-8", _POLICY)
