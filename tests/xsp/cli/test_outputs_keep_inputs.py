"""Every command that writes: an output that is an input, or a member of an input folder, is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from xsp.cli.main import main

_FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "torch_profiler" / "twin_step_cpu" / "trace.json.gz"
_COMMANDS = {
    "report": ("report", "{input}", "-o", "{output}"),
    "analyze": ("analyze", "{input}", "-f", "xlsx", "-o", "{output}"),
    "query": ("query", "{input}", "select 1", "-o", "{output}"),
    "findings": ("findings", "{input}", "-o", "{output}"),
    "export": ("export", "{input}", "--to", "chrome", "-o", "{output}"),
    "figure": ("figure", "{input}", "-a", "A03", "-o", "{output}"),
    "convert": ("convert", "{input}", "-o", "{output}"),
    "merge": ("merge", "--model", "{input}", "-o", "{output}"),
    "cohort": ("cohort", "{input}", "-o", "{output}"),
    "markdown": ("compare", "{input}", "{input}", "--markdown", "{output}"),
    "junit": ("compare", "{input}", "{input}", "--junit", "{output}"),
    "html": ("compare", "{input}", "{input}", "--html", "{output}"),
}
_NEEDS = {"analyze": "xlsxwriter", "figure": "matplotlib"}  # which a newcomer lacks
_NAMES = {"analyze": "trace.xlsx", "figure": "trace.svg"}  # of outputs, which these commands want to end so


def _refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], **paths: Path) -> None:
    assert main([each.format(**paths) for each in arguments]) == 2
    errors = capsys.readouterr().err
    assert "one of the inputs" in errors, errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", _COMMANDS)
def test_an_output_that_is_an_input_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command in _NEEDS:
        pytest.importorskip(_NEEDS[command])
    source = tmp_path / _NAMES.get(command, "trace.json.gz")
    shutil.copy(_FIXTURE, source)
    hard, soft = tmp_path / f"hard-{source.name}", tmp_path / f"soft-{source.name}"
    hard.hardlink_to(source)
    soft.symlink_to(source.name)
    for output in (source, tmp_path / "." / ".." / tmp_path.name / source.name, hard, soft):
        _refused(_COMMANDS[command], capsys, input=source, output=output)
    _refused(_COMMANDS[command], capsys, input=tmp_path, output=source)
    assert source.read_bytes() == _FIXTURE.read_bytes()


def test_tables_into_a_folder_replace_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(_FIXTURE, tmp_path / "A01.csv")
    arguments = ("analyze", "{input}", "-a", "A01", "-f", "csv", "-o", "{output}")
    _refused(arguments, capsys, input=tmp_path / "A01.csv", output=tmp_path)
    assert (tmp_path / "A01.csv").read_bytes() == _FIXTURE.read_bytes()


def test_files_beside_the_inputs_are_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    style, baselines = tmp_path / "style.svg", tmp_path / "baselines.toml"
    style.write_text("lines.linewidth: 2\n")
    baselines.write_text(f"[baselines.main]\ninputs = ['{_FIXTURE}']\n")
    draw = ("figure", "{input}", "-a", "A03", "--style", "{output}", "-o", "{output}")
    _refused(draw, capsys, input=_FIXTURE, output=style)
    compare = ("compare", "--baseline", "main", "{input}", "--baselines", "{output}", "--html", "{output}")
    _refused(compare, capsys, input=_FIXTURE, output=baselines)
    assert style.read_text() == "lines.linewidth: 2\n"
    assert baselines.read_text().startswith("[baselines.main]")


def test_one_file_is_not_two_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = ["--markdown", str(tmp_path / "both"), "--html", str(tmp_path / ".." / tmp_path.name / "both")]
    assert main(["compare", str(_FIXTURE), str(_FIXTURE), *outputs]) == 2
    assert "two outputs have this name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_batch_replaces_only_what_a_batch_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    shutil.copy(_FIXTURE, runs / "mine.json.gz")
    (out / "traces" / "mine").mkdir(parents=True)
    (out / "traces" / "mine" / "notes.txt").write_text("by hand")
    assert main(["batch", str(runs), "-o", str(out), "--no-reports", "--jobs", "1"]) == 1
    assert "no xsp batch wrote" in (out / "summary.json").read_text()
    assert (out / "traces" / "mine" / "notes.txt").read_text() == "by hand"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("my page")
    assert main(["batch", str(runs), "-o", str(tmp_path / "site")]) == 2
    assert "index.html that no xsp batch wrote" in capsys.readouterr().err
    assert (tmp_path / "site" / "index.html").read_text() == "my page"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (".unfinished-run7/mine.json.gz", None),
        ("summary.json", 2),
        ("traces/mine/mine.json.gz", 2),
        ("jobs/j/t.json.gz", 2),
    ],
)
def test_a_batch_never_replaces_its_input(
    tmp_path: Path, source: str, kept: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / source
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_FIXTURE, path)
    (path.parent / "done.json").write_text("{}")
    status = main(["batch", str(path), "-o", str(tmp_path), "--no-reports", "--jobs", "1"])
    assert path.read_bytes() == _FIXTURE.read_bytes()
    assert status == (kept or 0)
    if kept:
        assert "lies where the results of a batch in" in capsys.readouterr().err


def test_a_device_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["findings", str(_FIXTURE), "-o", str(pipe)]) == 0
        assert os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("arguments", [
    ("export", "{input}", "--to", "arrow", "-o", "{input}"),
    ("export", "{input}", "--to", "chrome", "-o", "{input}/trace.json"),
    ("convert", "{input}", "-o", "{input}/again.xsp"),
    ("report", "{input}", "-o", "{input}/report.html"),
    ("analyze", "{input}", "-a", "A01", "-f", "csv", "-o", "{input}"),
])  # fmt: skip
def test_nothing_is_put_into_a_bundle_that_is_read(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.xsp"
    assert main(["convert", str(_FIXTURE), "-o", str(kept)]) == 0
    before = {each.name: each.read_bytes() for each in kept.iterdir()}
    assert main([each.format(input=kept) for each in arguments]) == 2
    assert "which is read" in capsys.readouterr().err
    assert {each.name: each.read_bytes() for each in kept.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("report",), b"<!doctype html>"),
        (("findings", "-f", "json"), b"[\n"),
        (("query", "select 1 as n from spans limit 1", "-f", "csv"), b"n\n1\n"),
        (("export", "--to", "chrome"), b'{"'),
        (("export", "--to", "perfetto"), b"\n"),
        (("cohort",), b"<!doctype html>"),
    ],
)
def test_a_lone_dash_is_standard_output(
    arguments: tuple[str, ...],
    begins: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([arguments[0], str(_FIXTURE), *arguments[1:], "-o", "-"]) == 0
    assert capsysbinary.readouterr().out.startswith(begins)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "INPUT", "-o", "-"),
        ("analyze", "INPUT", "-f", "xlsx", "-o", "-"),
        ("cohort", "INPUT", "-f", "csv", "-o", "-"),
        ("convert", "INPUT", "-o", "-"),
        ("merge", "--model", "INPUT", "-o", "-"),
        ("batch", "INPUT", "-o", "-"),
        ("export", "INPUT", "--to", "arrow", "-o", "-"),
        ("figure", "INPUT", "-a", "A03", "-o", "-"),
        ("compare", "INPUT", "INPUT", "--html", "-"),
        ("compare", "INPUT", "INPUT", "--junit", "-"),
        ("compare", "INPUT", "INPUT", "--markdown", "-"),
    ],
    ids=" ".join,
)
def test_a_lone_dash_for_what_is_no_stream_is_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(_FIXTURE) if each == "INPUT" else each for each in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("error: ")
    assert list(tmp_path.iterdir()) == []
