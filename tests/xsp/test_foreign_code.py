"""What a stranger's folder holds beside its traces does not run: modules by the names of all that anybody imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.helpers.batches import trace_of
from tests.helpers.waiting import HANG_S, wait_until
from xsp.processes import for_own_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REPO = Path(__file__).parents[2]
_OTHERS = {
    *(
        "adbc_driver_sqlite",
        "anyio",
        "click",
        "cxxfilt",
        "dask",
        "distributed",
        "fsspec",
        "google",
        "isal",
        "jsonschema",
    ),
    *("llvmlite", "matplotlib", "mcp", "mcp_types", "msgspec", "ncu_report", "networkx", "numba", "numpy", "pandas"),
    *("plotly", "polars", "pyarrow", "pydantic", "rich", "s3fs", "tensorflow", "torch", "typer", "zstandard"),
    *("xsp", "xsp_analyze", "xsp_ingest", "xsp_model", "xsp_runners", "foreign_plugin"),
}
_FOLDERS = {"collections", "multiprocessing", "numpy", "polars", "xsp", "xsp_analyze"}
_COMMAND = "import sys\nfrom xsp.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
_DASK = "import sys\nfrom dask.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


class _Received:
    """A folder of two traces and much else, and the way to start commands in it."""

    def __init__(self, at: Path) -> None:
        self.folder, self._ran, self._at = at / "received", at / "ran", at
        self.folder.mkdir()
        for number, name in enumerate(("one.json", "two.json")):
            (self.folder / name).write_bytes(trace_of(100 + number).to_bytes())
        foreign = f"open({str(self._ran)!r}, 'a').write(__name__ + '\\n')\nraise SystemExit('foreign code')\n"
        for name in {*sys.stdlib_module_names, *_OTHERS} - {"sys", "builtins", "__main__"}:
            path = self.folder / (f"{name}/__init__.py" if name in _FOLDERS else f"{name}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(foreign)
        plugin = self.folder / "foreign_plugin-1.0.dist-info"
        plugin.mkdir()
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-plugin\nVersion: 1.0\n")
        (plugin / "entry_points.txt").write_text("[xsp.ingesters]\nforeign = foreign_plugin:INGESTER\n")
        for name, program in (("xsp", _COMMAND), ("dask", _DASK)):
            (at / name).write_text(program)

    @property
    def ran(self) -> list[str]:
        """The foreign modules that ran."""
        return self._ran.read_text().split() if self._ran.exists() else []

    def command(self, *arguments: str, program: str = "xsp") -> list[str]:
        """As an installed command starts: a script outside the folder."""
        return [sys.executable, str(self._at / program), *arguments]

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        variables = {**clean, "PYTHONPATH": str(_REPO), "XDG_CACHE_HOME": str(self._at / "cache"), **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )  # fmt: skip

    def run(self, command: Sequence[str], spoken: str = "", **environment: str) -> str:
        """What it prints; it must succeed."""
        process = self.start(command, **environment)
        printed, errors = process.communicate(spoken, timeout=HANG_S)
        assert self.ran == []
        assert process.returncode == 0, errors
        return printed


@pytest.fixture(name="received")
def fixture_place(tmp_path: Path) -> _Received:
    return _Received(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("top", "one.json"),
        ("report", "one.json", "-o", "../report.html"),
        ("query", "one.json", "select kernel_name from A10"),
        ("compare", "one.json", "two.json"),
        ("export", "one.json", "--to", "chrome", "-o", "../chrome.json"),
        ("batch", ".", "-o", "../out", "--jobs", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_runs_nothing_of_the_current_folder(arguments: Sequence[str], received: _Received) -> None:
    received.run(received.command(*arguments))


@pytest.mark.slow
def test_a_figure_runs_nothing_of_it(received: _Received) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `figures`")
    received.run(received.command("figure", "one.json", "-a", "A10", "-o", "../figure.pdf"))


@pytest.mark.slow
@pytest.mark.parametrize("switches", [(), ("-E",)])
def test_python_with_m_runs_nothing_but_a_package_of_our_name(switches: Sequence[str], received: _Received) -> None:
    (received.folder / "xsp" / "__init__.py").unlink()
    (received.folder / "xsp").rmdir()
    if switches and subprocess.run([sys.executable, "-E", "-c", "import xsp"], cwd="/", check=False).returncode:
        pytest.skip("xsp is not installed, and `python -E` looks at no PYTHONPATH")
    assert "gemm" in received.run([sys.executable, *switches, "-m", "xsp", "top", "one.json", "--no-cache"])
    received.run([sys.executable, *switches, "-m", "xsp", "batch", ".", "-o", "../out", "--jobs", "1", "--no-ranks"])


@pytest.mark.slow
def test_a_checkout_that_is_not_installed_still_runs_by_m() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-m", "xsp", "--help"], cwd=_REPO, env=environment, capture_output=True, text=True, check=False
    )
    assert "Usage" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_agents_server_runs_nothing_of_it(received: _Received) -> None:
    pytest.importorskip("mcp_types", reason="needs the extra `mcp`")
    server = received.start(received.command("mcp", "one.json", "--no-cache"))
    assert server.stdin is not None
    assert server.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "analyze", "arguments": {"analysis": "A10"}}
    answers = []
    for number, (method, params) in enumerate((("initialize", hello), ("tools/call", call))):
        spoken = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(f"{json.dumps(spoken)}\n")
        server.stdin.flush()
        answers.append(server.stdout.readline())
    server.communicate(timeout=HANG_S)
    assert received.ran == []
    assert "gemm" in answers[1]


@pytest.mark.slow
def test_the_viewer_runs_nothing_of_it(received: _Received) -> None:
    server = received.start(received.command("view", "one.json", "--no-browser"))
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    with build_opener(ProxyHandler({})).open(address) as answer:
        assert b"<html" in answer.read()
    server.terminate()
    server.communicate(timeout=HANG_S)
    assert received.ran == []


@pytest.fixture(name="cluster")
def fixture_cluster(received: _Received) -> Iterator[str]:
    """A Dask cluster whose scheduler and worker were started in the folder, as the page on clusters says."""
    pytest.importorskip("distributed", reason="Dask is not installed (the extra `cluster`)")
    file = received.folder.parent / "scheduler.json"
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    started = [
        received.start(received.command("scheduler", "--host", "127.0.0.1", "--port", "0", *options, program="dask"))
    ]
    wait_until(lambda: file.exists() and bool(file.read_text()))
    worker = received.command("worker", "--nthreads", "1", *options, program="dask")
    started.append(received.start(worker, PYTHONSAFEPATH="1"))
    yield str(json.loads(file.read_text())["address"])
    for process in reversed(started):
        process.terminate()
        process.communicate(timeout=HANG_S)


@pytest.mark.slow
def test_a_cluster_that_was_started_as_the_page_says_runs_nothing_of_it(received: _Received, cluster: str) -> None:
    assert "2 done" in received.run(received.command("batch", ".", "-o", "../out", "--scheduler", cluster))
    for page in ("howto/cluster.md", "scale.md"):
        text = (_REPO / "docs" / page).read_text(encoding="utf-8")
        assert text.count("PYTHONSAFEPATH=1 POLARS_MAX_THREADS=1") == text.count("dask worker tcp://")


@pytest.mark.slow
def test_the_fixture_of_pytest_runs_nothing_of_it(received: _Received) -> None:
    tests = received.folder.parent / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text("def test_speed(xsp_capture): assert xsp_capture")
    received.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "xsp.gating.plugin", "-p", "no:cacheprovider", str(tests)],
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="",
    )  # fmt: skip


@pytest.mark.slow
def test_a_model_of_ours_is_collected_without_running_anything_of_it(received: _Received) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    received.run(received.command("collect", "--workload", "zoo:mlp", *_ON_CPU))
    assert (received.folder.parent / "run" / "ml" / "run.json").exists()


@pytest.mark.slow
def test_a_workload_that_was_named_is_found_in_the_current_folder(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    received = _Received(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "beside.py").write_text("def step(): open('stepped', 'w').close()\n")
    (mine / "work.py").write_text("import beside\ndef build(batch, device): return beside.step\n")
    received.folder = mine
    received.run(received.command("collect", "--workload", "work:build", *_ON_CPU))
    assert (mine / "stepped").exists()


_ON_CPU = (
    *("--levels", "ML", "--device", "cpu", "--threads", "1", "--batch-size", "1", "--warmup", "1", "--steps", "2"),
    *("--out", "../run"),
)


def test_the_environment_of_own_processes_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setenv("SAID", "by the user")
    before = dict(os.environ)
    with for_own_processes({"SAID": "by us", "UNSAID": "by us"}, {"ALWAYS": "ours"}):
        changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
        assert changed == {"UNSAID": "by us", "ALWAYS": "ours", "PYTHONSAFEPATH": "1"}
    assert dict(os.environ) == before
