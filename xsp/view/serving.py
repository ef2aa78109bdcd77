"""A trace made ready to be looked at, and the server of what its page asks for."""

from __future__ import annotations

import gzip
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from xsp.view.questions import QUESTIONS, TraceAnswers
from xsp.view.served_pages import handover_page, viewer_page
from xsp.view.server import HOST, Answer, PrivateServer
from xsp_analyze.export.chrome import CHROME
from xsp_analyze.pages.viewer.block import view_of
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError
from xsp_model.bundle import fault_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_model import Trace

__all__ = ["server_of"]


def server_of(trace: Trace, serving_phase: str | None, port: int, *, perfetto: bool) -> PrivateServer:
    """The server, bound and not yet serving; XspError where the port is taken."""
    title = str(trace.frame("runs")["source_path"].drop_nulls().first() or "trace")
    answers = _handover(trace, title) if perfetto else _viewer(trace, serving_phase, title)
    try:
        return PrivateServer(answers, port)
    except OSError as error:
        raise XspError(
            f"cannot serve at {HOST}:{port} ({error.strerror})", advice="Choose another --port, or leave it out"
        ) from None


def _viewer(trace: Trace, serving_phase: str | None, title: str) -> Mapping[str, Callable[[str], Answer]]:
    viewed_trace = view_of(StepView.of(trace, serving_phase=serving_phase))
    if not len(viewed_trace.drawing.boxes):
        raise XspError("the trace holds no timed work to look at", advice="See `xsp info` for what it holds")
    answers = TraceAnswers(viewed_trace, title)
    page = viewer_page(title)
    questions = {path: partial(_answer, answers, path) for path in QUESTIONS}
    return {"": lambda _: page, **questions}


def _answer(answers: TraceAnswers, path: str, query: str) -> Answer:
    with fault_sentence():
        return Answer(answers.answer(path, query))


def _handover(trace: Trace, title: str) -> Mapping[str, Callable[[str], Answer]]:
    held = BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb", compresslevel=1, mtime=0) as file:
        CHROME.write(trace, file)
    content = held.getvalue()
    page, buffer = handover_page(title, len(content)), Answer(content, "application/gzip")
    return {"": lambda _: page, "trace": lambda _: buffer}
