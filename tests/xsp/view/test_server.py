"""Who may read what `xsp view` serves: over real sockets, on a port of its own."""

from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest

from tests.helpers.report_trace import HOSTILE, small_trace
from tests.helpers.viewer_columns import unpacked_rows
from tests.helpers.waiting import HANG_S
from xsp.view.questions import TraceAnswers
from xsp.view.server import PrivateServer, server_of
from xsp_model import TraceBuilder, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_model import Trace


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


@pytest.fixture(name="trace", scope="module")
def fixture_trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return small_trace(tmp_path_factory.mktemp("trace"))


@pytest.fixture(name="server", scope="module")
def fixture_server(trace: Trace) -> Iterator[PrivateServer]:
    with server_of(trace, None, 0, perfetto=False) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _ask(server: PrivateServer, path: str, method: str = "GET", **headers: str) -> _Reply:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    reply = _Reply(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return reply


def _json(server: PrivateServer, question: str) -> dict[str, object]:
    reply = _ask(server, f"/{server.token}/{question}")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    answer: dict[str, object] = json.loads(reply.content)
    return answer


def _is_refused(reply: _Reply) -> bool:
    return reply.status in {403, 404} and not reply.content


def test_it_binds_to_the_loopback_address_alone(server: PrivateServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"


def test_no_other_address_of_the_machine_answers(server: PrivateServer) -> None:
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", server.server_port), timeout=5):  # noqa: PT011
        pass


def test_a_token_cannot_be_guessed_and_is_new_each_time(server: PrivateServer, trace: Trace) -> None:
    with server_of(trace, None, 0, perfetto=False) as other:
        assert other.token != server.token
    assert len(server.token) >= 32


@pytest.mark.parametrize("path", ["/", "/about", "/wrong/", "/wrong/about", "//about", "/favicon.ico", "*", "/?x"])
def test_without_the_token_nothing_is_there(server: PrivateServer, path: str) -> None:
    assert _is_refused(_ask(server, path))


def test_a_part_of_the_token_is_no_token(server: PrivateServer) -> None:
    for token in (server.token[:-1], server.token + "x", server.token.swapcase(), server.token[:4]):
        assert _is_refused(_ask(server, f"/{token}/about"))


@pytest.mark.parametrize(
    "path", ["../about", "./about", "about/", "about/..", "/about", "%2e%2e/about", "abou%74", "nothing", "..%2fabout",
             "about%00", "../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "about;x", "ABOUT"],
)  # fmt: skip
def test_below_the_token_there_is_what_is_listed_and_no_file(server: PrivateServer, path: str) -> None:
    assert _is_refused(_ask(server, f"/{server.token}/{path}"))


def test_the_token_without_its_slash_is_no_page(server: PrivateServer) -> None:
    assert _is_refused(_ask(server, f"/{server.token}"))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_another_host_name_is_refused(server: PrivateServer, host: str) -> None:
    named = host.format(port=server.server_port)
    assert _is_refused(_ask(server, f"/{server.token}/about", Host=named))


def test_a_request_without_or_with_two_hosts_is_refused(server: PrivateServer) -> None:
    host = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for hosts in ("", host + "Host: evil.example\r\n"):
        reply = _raw(server, f"GET /{server.token}/about HTTP/1.1\r\n{hosts}\r\n")
        assert reply.startswith(b"HTTP/1.1 403")
        assert reply.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none", "Origin": "https://evil.example"},
    ],
)
def test_the_page_of_another_origin_is_refused(server: PrivateServer, headers: dict[str, str]) -> None:
    for path in ("", "about"):
        assert _is_refused(_ask(server, f"/{server.token}/{path}", **headers))


def test_its_own_page_is_answered(server: PrivateServer) -> None:
    for name in ("127.0.0.1", "localhost"):
        own = f"{name}:{server.server_port}"
        headers = {"Host": own, "Origin": f"http://{own}", "Sec_Fetch_Site": "same-origin"}
        assert _ask(server, f"/{server.token}/about", **headers).status == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND"]
)
def test_it_can_only_be_read(server: PrivateServer, method: str) -> None:
    reply = _ask(server, f"/{server.token}/about", method)
    assert reply.status == 405
    assert not reply.content


def test_no_answer_may_be_read_by_another_origin_or_kept(server: PrivateServer) -> None:
    paths = (f"/{server.token}/", f"/{server.token}/about", f"/{server.token}/boxes?bad", "/wrong")
    for headers in (_ask(server, path).headers for path in paths):
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_page_may_ask_its_server_alone(server: PrivateServer) -> None:
    reply = _ask(server, f"/{server.token}/")
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "connect-src 'self';" in reply.headers["Content-Security-Policy"]
    page = reply.content.decode()
    assert re.search(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*connect-src 'self';", page)
    assert '{"type":"viewer","served":true}' in page
    assert server.token not in page
    assert HOSTILE not in page


def test_an_address_for_one_use_leads_to_the_page_once(trace: Trace) -> None:
    with server_of(trace, None, 0, perfetto=False) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        once = f"/{server.once}"
        first, second, empty = _ask(server, once), _ask(server, once), _ask(server, "/")
        server.shutdown()
        thread.join()
    assert (first.status, first.headers["Location"], first.content) == (303, f"/{server.token}/", b"")
    assert _is_refused(second)
    assert _is_refused(empty)


@pytest.mark.parametrize(
    "question",
    [
        "boxes", "boxes?from=0&to=10", "boxes?from=0&to=10&resolution=x", "boxes?from=0&to=10&resolution=1&more=1",
        "boxes?from=10&to=10&resolution=1", "boxes?from=1e3&to=2e3&resolution=1",
        "boxes?from=0&from=1&to=2&resolution=1",
        "boxes?from=0&to=99999999999999999999&resolution=1", "statistics?from=9&to=1", "flows?from=&to=", "gaps?to=1",
        "search", "search?text=a&text=b", "search?text=%ff", "about?x=1", "counters?from=0&to=%D9%A1",
        "search?&text=a;b&c",
        "search?text=" + "a" * 500, "boxes?" + "&".join(["from=1"] * 20),
    ],
)  # fmt: skip
def test_a_bad_question_is_answered_in_a_sentence(server: PrivateServer, question: str) -> None:
    reply = _ask(server, f"/{server.token}/{question}")
    assert reply.status == 400
    text = reply.content.decode()
    assert re.fullmatch(r"[^\n<>]+\.\n", text)
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_an_overlong_request_is_refused_without_content(server: PrivateServer) -> None:
    for length, statuses in ((3_000, {414}), (80_000, {414})):
        reply = _ask(server, f"/{server.token}/search?text=" + "a" * length)
        assert reply.status in statuses
        assert not reply.content


def test_a_request_with_a_body_is_refused(server: PrivateServer) -> None:
    reply = _ask(server, f"/{server.token}/about", Content_Length="5")
    assert (reply.status, reply.content) == (400, b"")


@pytest.mark.parametrize("request_text", ["\r\n\r\n", "GET\r\n\r\n", "nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_request_gets_no_content(server: PrivateServer, request_text: str) -> None:
    reply = _raw(server, request_text)
    assert b"html" not in reply
    assert not reply or reply.partition(b"\r\n\r\n")[2] == b""
    assert _ask(server, f"/{server.token}/about").status == 200


def test_it_answers_what_the_viewer_asks(server: PrivateServer) -> None:
    about = _json(server, "about")
    begin, end = about["begin"], about["end"]
    boxes = _json(server, f"boxes?from={begin}&to={end}&resolution=0")
    assert boxes["resolution"] == 0
    rows = unpacked_rows(boxes)
    names = about["names"]
    assert isinstance(names, list)
    assert HOSTILE in {names[row["name"]] for row in rows}
    merged = _json(server, f"boxes?from={begin}&to={end}&resolution=100000")
    assert sum(max(row["merged"], 1) for row in unpacked_rows(merged)) == len(rows)
    assert len(unpacked_rows(_json(server, f"flows?from={begin}&to={end}"))) == 8
    assert unpacked_rows(_json(server, f"gaps?from={begin}&to={end}"))
    assert _json(server, "search?text=gemm_")["count"] == 6
    assert _json(server, f"statistics?from={begin}&to={end}")["exact"] is True
    assert _json(server, f"counters?from={begin}&to={end}")


def test_a_port_that_is_taken_is_said_in_a_sentence(server: PrivateServer, trace: Trace) -> None:
    with pytest.raises(XspError, match=f"cannot serve at 127.0.0.1:{server.server_port}"):
        server_of(trace, None, server.server_port, perfetto=False)


def test_a_trace_without_times_is_said_to_have_nothing_to_look_at() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    with pytest.raises(XspError, match="no timed work"):
        server_of(builder.build(), None, 0, perfetto=False)


def _raw(server: PrivateServer, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


_STARVED = """
import os, resource, socket, sys, threading
from http.client import HTTPConnection
from xsp.view.server import Answer, PrivateServer, _Handler
_Handler.timeout = None  # idle ones do not end by themselves
with PrivateServer({"about": lambda _: Answer(b"answered")}) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sockets = [socket.socket() for _ in range(121)]  # 120 idle ones, and one that asks
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, most))
    for one in sockets:
        one.connect(("127.0.0.1", server.server_port))
    connection = HTTPConnection("127.0.0.1", server.server_port)
    connection.sock = sockets[-1]
    connection.request("GET", f"/{server.token}/about")
    print(connection.getresponse().read().decode())
    server.shutdown()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
def test_idle_connections_that_take_all_file_handles_give_way_to_a_question() -> None:
    answered = subprocess.run(
        [sys.executable, "-c", _STARVED], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (answered.stdout, answered.stderr) == ("answered\n", "")


def test_a_server_without_file_handles_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def starved(_: object) -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(TCPServer, "get_request", starved)
    with (
        PrivateServer({}) as server,
        socket.create_connection(("127.0.0.1", server.server_port)),
    ):
        for _ in range(5):
            server.handle_request()
    assert len(tries) == 5
    assert all(later - earlier >= 0.04 for earlier, later in pairwise(tries))


def test_an_answer_that_cannot_be_made_is_a_sentence(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise XspError("the bundle is damaged", path="a.xsp")

    monkeypatch.setattr(TraceAnswers, "answer", fails)
    with server_of(trace, None, 0, perfetto=False) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        reply = _ask(server, f"/{server.token}/about")
        server.shutdown()
        thread.join()
    assert (reply.status, reply.content) == (500, b"a.xsp: the bundle is damaged\n")
