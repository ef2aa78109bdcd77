"""Who recorded and who analyses stay unknown: no output has a host, a user, a folder or what the environment holds."""

from __future__ import annotations

import gzip
import json
import platform
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

_SECRET = re.compile(rb"zqsecret-\w*")
_PRINTED = (
    ["info", "TRACE"],
    ["info", "TRACE", "-f", "json"],
    ["top", "TRACE"],
    ["top", "TRACE", "-f", "json"],
    ["analyze", "TRACE", "-f", "json"],
    ["findings", "TRACE", "-f", "json"],
    ["findings", "TRACE", "-f", "md"],
    ["compare", "TRACE", "OTHER", "-f", "json"],
    ["compare", "TRACE", "OTHER", "-f", "md"],
    ["cohort", "TRACE", "OTHER", "-f", "json"],
    ["query", "TRACE", "select * from runs"],
)
_WRITTEN = (
    ["report", "TRACE", "-o", "OUT/report.html"],
    ["convert", "TRACE", "-o", "OUT/bundle.xsp"],
    ["findings", "TRACE", "-o", "OUT/findings.md"],
    ["compare", "TRACE", "OTHER", "--html", "OUT/compare.html", "--markdown", "OUT/compare.md"],
    ["cohort", "TRACE", "OTHER", "-o", "OUT/cohort.html"],
    ["export", "TRACE", "--to", "chrome", "-o", "OUT/chrome.json.gz"],
    ["export", "TRACE", "--to", "jaeger", "-o", "OUT/jaeger.json"],
    ["export", "TRACE", "--to", "speedscope", "-o", "OUT/speedscope.json"],
    ["export", "TRACE", "--to", "graphml", "-o", "OUT/graph.graphml"],
    ["batch", "TRACE", "OTHER", "-o", "OUT/batch", "--jobs", "1"],
    ["figure", "TRACE", "-a", "A10", "-o", "OUT/figure.svg"],
)


@pytest.fixture(name="names")
def fixture_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two traces in a folder of somebody's home, on a machine and in an environment with names of their own."""
    home = tmp_path / "zqsecret-home" / "zqsecret-user"
    (home / "in").mkdir(parents=True)
    (home / "out").mkdir()
    for name, scale in (("one", 1), ("two", 2)):
        made = KinetoTrace()
        made.step(1, 0, 500_000)
        made.span("python_function", "/zqsecret-home/zqsecret-user/project/train.py(12): step", 0, 400_000)
        made.operator("aten::mm", 10_000, 40_000)
        made.launch("gemm", 20_000, 60_000, 100_000 * scale)
        document = json.loads(made.to_bytes())
        document |= {
            "hostname": "zqsecret-host",
            "traceName": "/zqsecret-home/zqsecret-user/in/one.json",
            "user": "zqsecret-user",
        }
        document["traceEvents"].append(
            {
                "ph": "M",
                "pid": 1,
                "name": "process_labels",
                "ts": 0,
                "args": {"labels": "python /zqsecret-home/x.py zqsecret-token"},
            }
        )
        (home / "in" / f"{name}.json").write_text(json.dumps(document))
    for variable in ("HOME", "USER", "LOGNAME", "HOSTNAME", "TOKEN", "PWD"):
        monkeypatch.setenv(variable, f"/zqsecret-home/zqsecret-{variable}")
    monkeypatch.setattr(socket, "gethostname", lambda: "zqsecret-host")
    monkeypatch.setattr(platform, "node", lambda: "zqsecret-host")
    monkeypatch.chdir(home)
    return {"TRACE": str(home / "in" / "one.json"), "OTHER": str(home / "in" / "two.json"), "OUT": "out"}


def _with_names(command: list[str], names: dict[str, str]) -> list[str]:
    return [re.sub("TRACE|OTHER|OUT", lambda match: names[match[0]], part) for part in command]


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files, and of each bundle what its tables hold, whatever packs them."""
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".xsp":
            trace = xsp.open(file).trace
            yield f"{file.name}, read", "".join(trace.frame(name).write_json() for name in TABLES).encode()
        if file.is_file():
            content = file.read_bytes()
            name = file.relative_to(folder).as_posix()
            yield name, gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


@pytest.mark.parametrize("command", _PRINTED, ids=" ".join)
def test_no_answer_tells_of_who_asks(
    command: list[str], names: dict[str, str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(_with_names(command, names)) == 0
    printed = capsysbinary.readouterr().out
    assert printed
    assert not _SECRET.findall(printed)


def test_nothing_written_tells_of_who_recorded_and_where(
    names: dict[str, str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for command in _WRITTEN:
        assert main(_with_names(command, names)) == 0, command
    assert not _SECRET.findall(capsysbinary.readouterr().out)
    contents = dict(_contents(Path(names["OUT"])))
    assert len(contents) > len(_WRITTEN)
    assert {name: _SECRET.findall(content) for name, content in contents.items() if _SECRET.search(content)} == {}
