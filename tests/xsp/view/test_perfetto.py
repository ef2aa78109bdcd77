"""The hand-over of a trace to Perfetto's page, which stands in for itself here: no test needs a network."""

from __future__ import annotations

import gzip
import json
import threading
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from tests.helpers.report_trace import small_trace
from tests.helpers.waiting import HANG_S
from xsp.view.server import server_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helpers.browser import Browser
    from xsp.view.server import PrivateServer

_STAND_IN = """<!doctype html><title>stand-in</title><script>
let late = 0;
window.addEventListener("message", (event) => {
  if (event.data === "PING") { if (++late > 3) event.source.postMessage("PONG", "*"); return; }
  const { buffer, title, fileName } = event.data.perfetto;
  window.got = { bytes: [...new Uint8Array(buffer)], title, fileName, from: event.origin, referrer: document.referrer };
});
</script>"""


@pytest.fixture(name="server", scope="module")
def fixture_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    trace = small_trace(tmp_path_factory.mktemp("trace"))
    with server_of(trace, None, 0, perfetto=True) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _get(server: PrivateServer, path: str) -> tuple[int, str, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", f"/{server.token}/{path}")
    response = connection.getresponse()
    answer = response.status, response.headers["Content-Security-Policy"], response.read()
    connection.close()
    return answer


def test_it_serves_the_page_and_the_exported_trace_alone(server: PrivateServer, tmp_path: Path) -> None:
    from xsp_analyze.export.chrome import CHROME  # noqa: PLC0415

    status, _, content = _get(server, "trace")
    assert status == 200
    with (tmp_path / "trace.json").open("wb") as file:
        CHROME.write(small_trace(tmp_path), file)
    assert gzip.decompress(content) == (tmp_path / "trace.json").read_bytes()
    assert _get(server, "about")[0] == 404


def test_the_page_may_fetch_from_its_server_and_from_nowhere_else(server: PrivateServer) -> None:
    _, policy, page = _get(server, "")
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts == {
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "connect-src": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert b"https://ui.perfetto.dev" in page


@pytest.mark.browser
def test_perfetto_gets_the_trace_once_it_answers(server: PrivateServer, browser: Browser) -> None:
    context = browser.new_context()
    context.set_default_timeout(HANG_S * 1000)
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(content_type="text/html", body=_STAND_IN))
    page = context.new_page()
    page.goto(server.url)
    with context.expect_page() as opened:
        page.get_by_role("button", name="Open in ui.perfetto.dev").click()
    perfetto = opened.value
    perfetto.wait_for_function("window.got")
    got = perfetto.evaluate("window.got")
    events = json.loads(gzip.decompress(bytes(got["bytes"])))["traceEvents"]
    assert "gemm_0" in {event["name"] for event in events}
    assert (got["title"], got["fileName"]) == ("small.json", "small.json.json.gz")
    assert got["from"] == server.origin
    assert got["referrer"] == ""
    page.get_by_text("Handed over.").wait_for()
    assert {url.split("/")[2] for url in requests} == {f"127.0.0.1:{server.server_port}", "ui.perfetto.dev"}
    assert not [url for url in requests if server.token in url and "ui.perfetto.dev" in url]
    context.close()
