"""`xsp view` as a command: it says where it serves, serves, and ends when asked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.helpers.synth import KinetoTrace
from tests.helpers.waiting import HANG_S
from xsp.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RUN = "import sys; from xsp.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """As in a terminal: a shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(name="source")
def fixture_source(tmp_path: Path) -> Path:
    kineto = KinetoTrace()
    kineto.launch("gemm", 10_000, 50_000, 40_000)
    return kineto.write(tmp_path / "trace.json")


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_serves_and_ends_in_good_order(source: Path, signal_number: signal.Signals) -> None:
    arguments = [sys.executable, "-c", _RUN, "view", str(source), "--no-browser"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        opener = build_opener(ProxyHandler({}))
        with opener.open(f"{address}about", timeout=HANG_S) as answer:
            assert b'"gemm"' in answer.read()
        os.kill(process.pid, signal_number)
        output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert output == ""
    assert errors.splitlines()[-1] == "xsp view has ended."
    assert "Traceback" not in errors


def test_a_browser_gets_an_address_for_one_use(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def opens(url: str) -> bool:
        opened.append(url)
        os.kill(os.getpid(), signal.SIGINT)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", opens)
    assert main(["view", str(source)]) == 0
    (url,) = opened
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}", url)


@pytest.mark.only_on("linux", reason="elsewhere there always is a screen")
def test_no_browser_is_opened_where_there_is_no_screen(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def serve(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    monkeypatch.setattr("socketserver.BaseServer.serve_forever", serve)
    assert main(["view", str(source)]) == 0
    assert capfd.readouterr().out.startswith("http://127.0.0.1:")


def test_a_port_out_of_range_is_an_error_in_a_sentence(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(source), "--port", "70000"]) == 2
    assert "65535" in capfd.readouterr().err
