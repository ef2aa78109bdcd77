"""Reports of Nsight Systems opened through the user's own nsys: found, called, timed out, too old, not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.nsys_recording import record
from tests.helpers.nsys_tool import nsys
from tests.helpers.synth_nsys import NsightFile
from xsp.cli.main import main
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nsys.report import NSYS_REPORT
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_HEAD = b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n\x0b"
_STREAM = b"\x00\xff\x00\xff\x00\xff\x00\xffNVIDIA Nsight Systems Stream 2023.4.4.54"
_NVTX = """
import time
try:
    import nvtx
except ImportError:
    time.sleep(0.01)
else:
    for step in range(3):
        with nvtx.annotate(f"iteration{step}"), nvtx.annotate("layer"), nvtx.annotate("inner", domain="d"):
            time.sleep(0.001)
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "it's a; report $(touch x).nsys-rep"
    path.write_bytes(_HEAD)
    return path


@pytest.fixture(autouse=True)
def _no_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XSP_NSYS", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def _stand_in(folder: Path, body: str, version: str = "2023.4.4.54") -> str:
    """A program that answers --version as nsys does and else runs the Python given, `output` and `report` set."""
    path = folder / "stand_in_nsys"
    path.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys, time\n"
        f"if sys.argv[1:] == ['--version']: print('NVIDIA Nsight Systems version {version}-1v0'); sys.exit()\n"
        "assert sys.argv[1:4] == ['export', '--type=sqlite', '--lazy=true'], sys.argv\n"
        "output = next(a for a in sys.argv if a.startswith('--output=')).removeprefix('--output=')\n"
        "report = sys.argv[-1]\n"
        f"{body}\n"
    )
    path.chmod(0o755)
    return str(path)


def _options(folder: Path, body: str, version: str = "2023.4.4.54", **extra: str) -> Options:
    return Options(extra={"nsys": _stand_in(folder, body, version), **extra})


def _exporting(folder: Path) -> str:
    file = NsightFile()
    file.launch((10, 20), (30, 40))
    database = file.write(folder / "exported.sqlite")
    return f"assert open(report, 'rb').read({len(_HEAD)}) == {_HEAD!r}; shutil.copy({str(database)!r}, output)"


def test_reports_and_streams_are_known_by_their_content(tmp_path: Path) -> None:
    for content in (_HEAD, _STREAM):
        (tmp_path / "x.mp3").write_bytes(content)
        assert NSYS_REPORT.sniff(Probe(tmp_path / "x.mp3"))
    (tmp_path / "x.nsys-rep").write_bytes(b"something else")
    assert not NSYS_REPORT.sniff(Probe(tmp_path / "x.nsys-rep"))


def test_the_export_is_read_and_nothing_is_left(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = sorted(tmp_path.iterdir())
    trace = convert([report], _options(tmp_path, _exporting(tmp_path)))
    assert trace.frame("spans").height == 2
    assert trace.frame("runs").select("format", "source_path", "source_bytes").rows() == [
        ("nsys_report", report.name, len(_HEAD))
    ]
    assert list((tmp_path / "temporary").iterdir()) == []
    added = {path.name for path in set(tmp_path.iterdir()) - set(before)}
    assert added == {"exported.sqlite", "stand_in_nsys"}


def test_nsys_is_found_by_option_then_environment_then_path(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "environment", "path"):
        (tmp_path / name).mkdir()
        shutil.move(_stand_in(tmp_path / name, f"sys.exit('this is {name}')"), tmp_path / name / "nsys")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(XspError, match="this is path"):
        convert([report], Options())
    monkeypatch.setenv("XSP_NSYS", str(tmp_path / "environment" / "nsys"))
    with pytest.raises(XspError, match="this is environment"):
        convert([report], Options())
    with pytest.raises(XspError, match="this is option"):
        convert([report], Options(extra={"nsys": str(tmp_path / "option" / "nsys")}))


def test_without_nsys_it_says_what_to_run_elsewhere(report: Path) -> None:
    with pytest.raises(XspError, match=r"only nsys can open.*nsys export --type sqlite it's a; report"):
        convert([report], Options())


def test_a_named_nsys_that_is_not_there(report: Path) -> None:
    with pytest.raises(XspError, match="--nsys names no program"):
        convert([report], Options(extra={"nsys": "/nowhere/nsys"}))


def test_an_older_nsys_is_said_to_be_too_old(report: Path, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=r"of Nsight Systems 2023\.4\.4, and nsys here is 2023\.4\.1, which cannot"):
        convert([report], _options(tmp_path, "raise AssertionError", version="2023.4.1.9"))


def test_a_newer_nsys_reads_it(report: Path, tmp_path: Path) -> None:
    assert convert([report], _options(tmp_path, _exporting(tmp_path), version="2026.2.1.210")).frame("spans").height


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('noise'); sys.exit('Failed to open the report.')", r"could not export.*Failed to open the report"),
        ("sys.exit(3)", "it ended with code 3 and said nothing"),
        ("pass", "it ended with code 0 and said nothing"),
        ("sys.stderr.buffer.write(b'\\xff\\n' * 10**5); sys.exit(1)", "could not export the report"),
        ("open(output, 'wb').write(b'SQLite format 3\\0')", "damaged|no SQLite|not one that Nsight"),
    ],
)
def test_an_export_that_fails_is_one_sentence(report: Path, tmp_path: Path, body: str, says: str) -> None:
    with pytest.raises(XspError, match=says) as error:
        convert([report], _options(tmp_path, body))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


def test_an_export_that_hangs_is_stopped(report: Path, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=r"did not export the report within 0\.5 s"):
        convert([report], _options(tmp_path, "time.sleep(60)", nsys_timeout_s="0.5"))


def test_a_stream_is_explained(tmp_path: Path) -> None:
    (tmp_path / "x.qdstrm").write_bytes(_STREAM)
    with pytest.raises(XspError, match=r"not made into a report yet\. Run `QdstrmImporter -i x\.qdstrm`"):
        convert([tmp_path / "x.qdstrm"], Options())


def test_the_command_takes_the_path(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in = _stand_in(tmp_path, _exporting(tmp_path))
    assert main(["convert", str(report), "-o", str(tmp_path / "out.xsp"), "--nsys", stand_in]) == 0
    assert main(["info", str(tmp_path / "out.xsp")]) == 0
    assert "nsys_report" in capsys.readouterr().out
    assert main(["info", str(report)]) == 2


def _captured(folder: Path, program: str) -> Path:
    """A report of a small program by the real nsys; with NVTX where the package is there."""
    (folder / "program.py").write_text(_NVTX)
    report = folder / "real.nsys-rep"
    command = [program, "profile", "--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", f"--output={report}"]
    python = os.environ.get("XSP_NSYS_PYTHON", sys.executable)
    record([*command, python, str(folder / "program.py")], made=report)
    if report.exists():
        return report
    pytest.skip("nsys profile left no report")


def _same(one: Trace, other: Trace) -> list[str]:
    whence = ["source_path", "source_sha256", "source_bytes", "format"]
    frames = [(name, one.frame(name), other.frame(name)) for name in TABLES]
    return [n for n, a, b in frames if not a.drop(whence, strict=False).equals(b.drop(whence, strict=False))]


@pytest.mark.nsys
def test_a_real_report_and_all_its_exports_are_the_same_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    program = nsys()
    report = _captured(tmp_path, program)
    options = Options(extra={"nsys": program, "os_runtime": ""})
    reference = convert([report], options)
    assert reference.frame("spans").height > 20
    for kind in ("sqlite", "parquetdir", "arrowdir", "arrow"):
        export = tmp_path / f"export_{kind}"
        subprocess.run(
            [program, "export", f"--type={kind}", "--quiet=true", f"--output={export}", str(report)],
            check=True,
            capture_output=True,
        )
        assert _same(reference, convert([export], options)) == [], kind


@pytest.mark.nsys
def test_the_json_of_a_real_report_has_the_same_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    program = nsys()
    report, export = _captured(tmp_path, program), tmp_path / "export.json"
    command = [program, "export", "--type=json", "--quiet=true", f"--output={export}", str(report)]
    subprocess.run(command, check=True, capture_output=True)
    options = Options(extra={"nsys": program, "os_runtime": ""})
    # JSON lacks the session: its epoch and length, and with it nothing of the spans.
    differing = _same(convert([report], options), convert([export], options))
    assert set(differing) <= {"runs", "counters", "ledger"}
