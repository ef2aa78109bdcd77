"""An HTTP server for one reader: on the loopback address, behind a random path, answering only its own pages."""

from __future__ import annotations

import gzip
import secrets
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from xsp.view.questions import QUESTIONS, BadQuestionError, TraceAnswers
from xsp_analyze.export.chrome import CHROME
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import page_by_script, program_and_version
from xsp_analyze.pages.viewer.block import SCRIPTS, STYLES, view_of
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError
from xsp_model.bundle import fault_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_model import Trace

__all__ = ["HOST", "Answer", "PrivateServer", "handover_page", "server_of", "viewer_page"]

HOST = "127.0.0.1"
"""The only address it listens on."""
_MAX_TARGET = 2_000  # characters of a request's path and query
_IDLE_S = 30  # after which a connection without a request is closed
_STARVED_S = 0.05  # between tries to accept a connection while the process has no handle for it
_TOKEN_BYTES = 24
_NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """What is sent for a path: `policy` is the Content-Security-Policy of a page, else nothing is allowed."""

    content: bytes
    content_type: str = "application/json"
    policy: str = _NOTHING_ALLOWED


class PrivateServer(ThreadingHTTPServer):
    """Serves `answers`, each by its path below the token: a function of the query.

    A request is answered only where it is a GET that names this host, this token and a known path, and was not made by
    another origin's page; else it gets a status without content. `once` is a path that leads there a single time, for
    the command line of a browser, which other users of the machine may read.
    """

    daemon_threads = True
    request_queue_size = 128  # a page asks for several things at once, and idle connections must not keep it out

    def __init__(self, answers: Mapping[str, Callable[[str], Answer]], port: int = 0) -> None:
        self.answers = answers
        self.idle: dict[socket.socket, None] = {}  # connections without a request, the longest so first
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.once = secrets.token_urlsafe(_TOKEN_BYTES)
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Binds without the look-up of the host's name that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection; where the process has no handle left for it, half of the idle ones are closed.

        A moment is waited then: the connection stays in its queue, and the server would be told of it without end.
        """
        try:
            return super().get_request()
        except OSError:
            waiting = list(self.idle)
            for connection in waiting[: -(-len(waiting) // 2)]:
                self.idle.pop(connection, None)
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
            time.sleep(_STARVED_S)
            raise

    @property
    def origin(self) -> str:
        """The scheme, host and port."""
        return f"http://{HOST}:{self.server_port}"

    @property
    def url(self) -> str:
        """The address of its page."""
        return f"{self.origin}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that went away is nobody's error; others are printed as usual."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "xsp"
    sys_version = ""
    timeout = _IDLE_S
    server: PrivateServer

    def handle_one_request(self) -> None:
        """Waits for a request, and does what it asks for."""
        self.server.idle[self.connection] = None
        try:
            super().handle_one_request()
        finally:
            self.server.idle.pop(self.connection, None)

    def do_GET(self) -> None:
        """Answers, or refuses without content."""
        self.server.idle.pop(self.connection, None)
        if len(self.path) > _MAX_TARGET:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG)
        elif not self._is_ours():
            self._refuse(HTTPStatus.FORBIDDEN)
        elif "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.BAD_REQUEST)
        else:
            self._answer()

    def _is_ours(self) -> bool:
        """Whether it was asked by this name, and not by the page of another origin."""
        hosts = self.headers.get_all("Host") or []
        origins = self.headers.get_all("Origin") or []
        sites = self.headers.get_all("Sec-Fetch-Site") or []
        port = self.server.server_port
        return (
            len(hosts) == 1
            and hosts[0] in {f"{HOST}:{port}", f"localhost:{port}"}
            and all(origin == f"http://{hosts[0]}" for origin in origins)
            and all(site in {"same-origin", "none"} for site in sites)
        )

    def _answer(self) -> None:
        target = urlsplit(self.path if self.path.startswith("/") else "")
        token, _, name = target.path.removeprefix("/").partition("/")
        if self.server.once and secrets.compare_digest(token.encode(), self.server.once.encode()) and not name:
            self.server.once = ""
            self._send(HTTPStatus.SEE_OTHER, Answer(b""), {"Location": f"/{self.server.token}/"})
            return
        is_theirs = secrets.compare_digest(token.encode(), self.server.token.encode())
        question = self.server.answers.get(name) if is_theirs and "/" in target.path[1:] else None
        if question is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        try:
            answer = question(target.query)
        except BadQuestionError as error:
            self._send(HTTPStatus.BAD_REQUEST, _sentence(error))
        except XspError as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _sentence(error))
        else:
            self._send(HTTPStatus.OK, answer)

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(status, Answer(b"", "text/plain"))

    def _send(self, status: HTTPStatus, answer: Answer, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {**_HEADERS, "Content-Security-Policy": answer.policy, "Content-Type": answer.content_type}
        for name, value in {**headers, "Content-Length": str(len(answer.content)), **(more or {})}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses (other methods, requests it cannot read) gets no content either."""
        del message, explain
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        if not hasattr(self, "requestline"):
            self.requestline = ""
        self._refuse(status)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the base class)
        """Nothing is logged: paths hold the token."""


def _sentence(error: Exception) -> Answer:
    return Answer(f"{error}\n".encode(), "text/plain; charset=utf-8")


# The pages that `xsp view` serves: the viewer, or the hand-over of the trace to Perfetto's.

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


# A trace made ready to be looked at, and the server of what its page asks for.


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
