"""The command as a user meets it: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest
from rich.cells import cell_len

from tests.helpers.report_trace import US, small_trace
from tests.helpers.shaped_trace import shaped
from tests.helpers.synth import KinetoTrace
from xsp.cli.app import command_named, plain_values
from xsp.cli.commands.analyze import Formats
from xsp.cli.main import main
from xsp.cli.output import print_bytes
from xsp.cli.table import COMMANDS, Command
from xsp_analyze.catalog import all_analyses
from xsp_analyze.render import FORMATS
from xsp_ingest.registry import all_ingesters
from xsp_model import bundle

_REPO = Path(__file__).resolve().parents[3]
_COMMAND = [sys.executable, "-c", "import sys; from xsp.cli.main import main; sys.exit(main())"]


@pytest.fixture(name="raw")
def fixture_raw(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


@pytest.fixture(name="bundled")
def fixture_bundled(tmp_path: Path) -> Path:
    bundle.write(small_trace(tmp_path), tmp_path / "small.xsp")
    return tmp_path / "small.xsp"


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(_REPO), "PYTHONWARNINGS": "error"},
    )


def _error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a failing command prints on stderr: one line and nothing on stdout; the status must be 2."""
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


# Help


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "--help")
    assert all(name in text for name in ("convert", "info", "analyze", "report", "formats", "analyses"))
    assert "xsp report trace.json.gz -o report.html" in " ".join(text.split())


def test_every_command_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (each.name for each in COMMANDS):
        if name != "collect":  # the runner answers
            text = " ".join(_printed(capsys, name, "--help").split())
            assert "Example" in text, name
            assert f"xsp {name}" in text.partition("Example")[2], name


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("xsp ana", ["analyze", "analyses"]),
        ("xsp analyze t.json -a A0", [f"A0{n}" for n in range(1, 10)]),
        ("xsp figure t.json -a B1", ["B10", "B11", "B14"]),
        ("xsp info --format nsys_s", ["nsys_sqlite", "nsys_stats_csv"]),
        ("xsp formats tor", ["torch_profiler"]),
    ],
)
def test_the_shell_completes_commands_ids_and_formats(typed: str, offered: list[str]) -> None:
    done = subprocess.run(
        _COMMAND, capture_output=True, text=True, check=True,
        env={
            **os.environ, "PYTHONPATH": str(_REPO), "_XSP_COMPLETE": "complete_bash",
            "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1),
        },
    )  # fmt: skip
    assert set(offered) <= set(done.stdout.split())
    assert all(offer.lower().startswith(typed.rsplit(maxsplit=1)[-1].lower()) for offer in done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_completion_can_be_shown(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, shell))  # which shell the tests run in or not
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert not ended.value.code
    assert "_XSP_COMPLETE" in capsys.readouterr().out


def test_a_slip_is_answered_with_what_may_have_been_meant(capsys: pytest.CaptureFixture[str], raw: Path) -> None:
    assert "Did you mean 'analyze'" in _error(capsys, "anlyze")
    assert "Did you mean A09 (kernel roofline)" in _error(capsys, "analyze", raw, "-a", "kernel rofline")
    assert "Did you mean torch_profiler" in _error(capsys, "formats", "torch")
    assert "Did you mean torch_profiler?" in _error(capsys, "info", raw, "--format", "kineto")


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage" in _printed(capsys)


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from xsp.cli.main import main; main(['--help'])\n"
        "heavy = 'polars', 'pyarrow', 'numba', 'plotly', 'pandas', 'networkx', 'numpy', 'typer', 'rich', 'pydantic'\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert _program(code).splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["analyze", "--help"], ["formats"], ["top", "nowhere.json"]])
def test_a_command_imports_no_other(arguments: list[str]) -> None:
    code = (
        f"import sys; from xsp.cli.main import main; main({arguments})\n"
        "print([m for m in sys.modules if m.startswith('xsp.cli.commands.')])"
    )
    assert _program(code).splitlines()[-1] == f"['xsp.cli.commands.{arguments[0]}']"


def _program(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(_REPO)},
    )  # fmt: skip
    return done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, "--version").startswith("xsp ")


def test_formats_and_analyses_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    formats = _printed(capsys, "formats")
    assert all(i.name in formats for i in all_ingesters())
    analyses = _printed(capsys, "analyses")
    assert all(a.id in analyses for a in all_analyses())


def test_formats_tells_about_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, "formats", "xplane").startswith("# XPlane")
    assert _printed(capsys, "formats", "--markdown").startswith("# Formats")


def test_output_formats_are_those_of_the_renderers() -> None:
    assert [str(f) for f in Formats] == list(FORMATS)


# Convert and info


def test_convert_says_which_file_of_a_folder_it_could_not_read(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    content = raw.read_bytes()
    (folder / raw.name).write_bytes(content)
    (folder / f"cut-{raw.name}").write_bytes(content[: len(content) // 2])
    assert main(["convert", str(folder), "-o", str(tmp_path / "out.xsp"), "--strict-json"]) == 0
    assert f"warning: cut-{raw.name} of the directory could not be read" in capsys.readouterr().err


def test_convert_writes_a_bundle(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(raw), "-o", str(tmp_path / "out.xsp")]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "spans" in captured.err
    assert bundle.read(tmp_path / "out.xsp").levels[0] == "model"


def test_info_says_what_a_trace_holds(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "info", raw)
    assert "small.json" in text
    assert "layers from   module" in text
    assert "2: 0, 1" in text
    assert "orphan_before_window" in text


def test_info_is_the_same_of_a_bundle(raw: Path, bundled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, "info", raw) == _printed(capsys, "info", bundled)


# Analyze


def test_one_analysis_as_json_is_one_object(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(_printed(capsys, "analyze", raw, "-a", "A10", "-f", "json", "--steps", "all"))
    assert document["analysis"] == "A10"
    rows = {row["kernel_name"]: (row["count"], row["duration_ns"]) for row in document["rows"]}
    assert rows["gemm_0"] == (2, 39_999)
    assert rows["left over"] == (1, 7_000)


def test_several_analyses_as_json_are_an_array(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = json.loads(_printed(capsys, "analyze", raw, "-a", "B03", "-a", "A15", "-f", "json"))
    assert [one["analysis"] for one in documents] == ["B03", "A15"]


def test_steps_choose_what_is_counted(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gemm(steps: str) -> list[float]:
        text = _printed(capsys, "analyze", raw, "-a", "A10", "-f", "json", "--steps", steps)
        return [row["duration_ns"] for row in json.loads(text)["rows"] if row["kernel_name"] == "gemm_0"]

    assert gemm("0") == [13_333]
    assert gemm("1") == [26_666]
    assert gemm("mean") == [19_999.5]
    assert gemm("each") == [13_333, 26_666]


def test_without_a_choice_all_that_the_trace_allows_is_answered(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(raw), "-f", "json"]) == 0
    captured = capsys.readouterr()
    answered = [one["analysis"] for one in json.loads(captured.out)]
    assert "A10" in answered
    assert "cuda_gpu_mem_time_sum" not in answered
    assert captured.err.startswith("skipped: ")
    assert "cuda_gpu_mem_time_sum (no copies)" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "xlsx"])  # a workbook holds all tables
def test_a_folder_gets_one_file_an_analysis(raw: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "tables"
    assert main(["analyze", str(raw), "-a", "A10", "-a", "A15", "-f", name, "-o", str(folder)]) == 0
    suffix = FORMATS[name].suffix
    assert sorted(p.name for p in folder.iterdir()) == [f"A10.{suffix}", f"A15.{suffix}"]


def test_parquet_can_be_read_back(raw: Path, tmp_path: Path) -> None:
    assert main(["analyze", str(raw), "-a", "A10", "-f", "parquet", "-o", str(tmp_path)]) == 0
    assert pl.read_parquet(tmp_path / "A10.parquet").columns[:2] == ["kernel_name", "kind"]


def test_the_form_depends_on_what_is_asked_for_and_not_on_what_is_answered(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*arguments: str) -> str:
        main(["analyze", str(raw), *arguments])
        return capsys.readouterr().out

    assert [each["analysis"] for each in json.loads(answer("-a", "A10", "-a", "B02", "-f", "json"))] == ["A10"]
    assert json.loads(answer("-a", "A10", "-a", "a10", "-f", "json"))["analysis"] == "A10"
    assert answer("-a", "A10", "-a", "B02", "-f", "csv").startswith("# A10 ")
    assert answer("-a", "A10", "-a", "ZZ", "-f", "json") == ""


def test_csv_of_several_has_a_title_before_each(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, "analyze", raw, "-a", "A10", "-a", "A15", "-f", "csv").splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# A10 kernels by name", "# A15 kernels by model"]


def test_a_table_that_is_piped_is_whole(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "analyze", raw, "-a", "A10")
    assert "<script>document.title='owned'</script>" in text
    assert "more rows" not in text
    assert "more rows" in _printed(capsys, "analyze", raw, "-a", "A10", "--rows", "1")


def test_analyses_are_found_whatever_their_case(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "A10  kernels by name" in _printed(capsys, "analyze", raw, "-a", "a10")


def test_layers_can_be_taken_from_elsewhere(bundled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "analyze", bundled, "-a", "A11", "-f", "csv", "--layer-source", "operator")
    assert "aten::linear" in text
    assert "Linear_0" not in text


# Inputs


def test_a_pattern_and_a_folder_name_the_files_in_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        kineto = KinetoTrace(distributedInfo={"rank": rank, "world_size": 2})
        kineto.launch("gemm", 10 * US, 50 * US, 5 * US)
        kineto.write(tmp_path / f"rank{rank}.json")
    by_folder = _printed(capsys, "info", tmp_path)
    assert "rank 0 of 2" in by_folder
    assert "rank 1 of 2" in by_folder
    assert _printed(capsys, "info", str(tmp_path / "rank*.json")) == by_folder


def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no such file" in _error(capsys, "info", tmp_path / "none.json")
    assert "nothing matches this pattern" in _error(capsys, "info", str(tmp_path / "*.json"))


def test_files_that_are_no_traces_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.json").touch()
    (tmp_path / "text.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X", "cat": "kern', encoding="utf-8")
    assert "empty" in _error(capsys, "report", tmp_path / "empty.json", "-o", tmp_path / "r.html")
    assert "no known profiler format" in _error(capsys, "report", tmp_path / "text.txt", "-o", tmp_path / "r.html")
    _error(capsys, "report", tmp_path / "cut.json", "-o", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_bundle_stands_alone(raw: Path, bundled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be joined" in _error(capsys, "info", raw, bundled)
    assert "Convert the source files again" in _error(capsys, "info", bundled, "--layer-range", "block")


def test_a_format_can_be_forced_but_must_exist(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "small.json" in _printed(capsys, "info", raw, "--format", "torch_profiler")
    assert "there is no format 'tape'" in _error(capsys, "info", raw, "--format", "tape")


# Errors


def test_mistakes_in_arguments_are_one_sentence(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such command" in _error(capsys, "nonsense")
    assert "INPUT" in _error(capsys, "info")
    assert "Missing option" in _error(capsys, "convert", raw)
    assert "'pie'" in _error(capsys, "analyze", raw, "-f", "pie")
    assert "--help" in _error(capsys, "info", raw, "--nonsense")


def test_an_analysis_that_cannot_be_answered_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::add", 0, 10 * US)
    raw = kineto.write(tmp_path / "host.json")
    assert "needs the level kernel" in _error(capsys, "analyze", raw, "-a", "A10")
    assert "A99" in _error(capsys, "analyze", raw, "-a", "A99")
    assert "is no choice of steps" in _error(capsys, "analyze", raw, "--steps", "some")


def test_an_output_that_cannot_be_written_is_said_before_the_work(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written" in _error(capsys, "report", raw, "-o", tmp_path / "file" / "report.html")
    assert "cannot be written" in _error(capsys, "convert", raw, "-o", tmp_path / "file" / "out.xsp")
    (tmp_path / "folder").mkdir()
    assert "cannot be written" in _error(capsys, "report", raw, "-o", tmp_path / "folder")
    assert "not a bundle" in _error(capsys, "convert", raw, "-o", tmp_path / "folder")
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_failed_write_leaves_nothing_behind(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    out = tmp_path / "out"
    assert "No space left on device" in _error(capsys, "report", raw, "-o", out / "report.html")
    assert list(out.iterdir()) == []


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(raw: Path) -> None:
    command = " ".join([f"'{sys.executable}'", "-c", f"'{_COMMAND[2]}'", "analyze", f"'{raw}'", "-f", "json"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -c 1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(_REPO)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()[1:] in {"0", "141"}


@pytest.mark.slow
def test_a_pipe_that_is_closed_before_the_answer_ends_quietly(raw: Path) -> None:
    command = " ".join([f"'{sys.executable}'", "-c", f"'{_COMMAND[2]}'", "analyze", f"'{raw}'", "-f", "json"])
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(_REPO)},
    )  # fmt: skip
    assert done.stdout.strip() == "141"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_an_interrupt_ends_quietly(
    raw: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_content: bytes, **_options: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("xsp.cli.commands.analyze.print_bytes", interrupted)
    assert main(["analyze", str(raw), "-a", "A10"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_our_own_mistakes_are_not_hidden(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_content: bytes, **_options: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("xsp.cli.commands.analyze.print_bytes", failing)
    with pytest.raises(ZeroDivisionError):
        main(["analyze", str(raw), "-a", "A10"])


def test_output_is_utf_8_whatever_the_locale(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_bytes("\u00fc\n".encode())
    assert capfdbinary.readouterr().out == b"\xc3\xbc\n"


# Figure


def test_a_figure_is_one_file(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new folder" / "kernels.svg"
    assert main(["figure", str(raw), "-a", "a10", "-o", str(out), "--width", "89mm"]) == 0
    assert [p.name for p in out.parent.iterdir()] == ["kernels.svg"]
    assert b'width="252' in out.read_bytes()[:2000]
    assert capsys.readouterr().out == ""


def test_one_roofline_holds_several_traces_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "a" / "run.xsp", tmp_path / "b" / "run.xsp"]
    for path in paths:
        path.parent.mkdir()
        bundle.write(shaped(), path)
    out = tmp_path / "both.svg"
    arguments = [str(paths[0]), "--beside", str(paths[1]), "-a", "B23", "-o", str(out)]
    assert main(["figure", *arguments]) == 0
    assert out.read_bytes().startswith(b"<?xml")
    notes = capsys.readouterr().err
    assert "run (1): The work of 94.1 % of device time is modelled" in notes
    assert "run (2): The work of 94.1 % of device time is modelled" in notes


def test_mistakes_about_figures_are_one_sentence(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "f.svg"
    assert "cannot be written as .gif" in _error(capsys, "figure", raw, "-a", "A10", "-o", tmp_path / "f.gif")
    assert "no width" in _error(capsys, "figure", raw, "-a", "A10", "-o", out, "--width", "wide")
    pytest.importorskip("matplotlib")
    assert "These have: A01, A03" in _error(capsys, "figure", raw, "-a", "A08", "-o", out)
    assert "cannot be read" in _error(capsys, "figure", raw, "-a", "A10", "-o", out, "--style", tmp_path / "none")
    assert list(tmp_path.glob("f.*")) == []


def test_without_matplotlib_a_figure_says_how_to_get_it(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = _error(capsys, "figure", raw, "-a", "A10", "-o", tmp_path / "f.svg")
    assert "`pip install '.[figures]'` in a checkout of xsp" in error


# On a terminal


def _on_terminal(columns: int, *arguments: str | Path, **environment: str) -> str:
    """What the command shows on a terminal so wide."""
    main_end, other_end = pty.openpty()
    termios.tcsetwinsize(other_end, (50, columns))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    with subprocess.Popen(
        [*_COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=other_end, stderr=subprocess.DEVNULL,
        env={**kept, "PYTHONPATH": str(_REPO), "TERM": "xterm", **environment},
    ) as running:  # fmt: skip
        os.close(other_end)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(main_end, 65536):
                shown += part
        os.close(main_end)
    assert running.returncode == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("command", [["analyze", "-a", "A10", "-a", "A02"], ["info"], ["top"]])
def test_what_is_shown_fits_the_terminal(bundled: Path, columns: int, command: list[str]) -> None:
    plain = _on_terminal(columns, command[0], bundled, *command[1:], NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(map(cell_len, plain.splitlines())) <= columns


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them(bundled: Path) -> None:
    assert "\x1b[1m" in _on_terminal(80, "analyze", bundled, "-a", "A10")
    assert "\x1b" not in _on_terminal(80, "analyze", bundled, "-a", "A10", TERM="dumb")
    assert "\x1b" not in _run("analyze", bundled, "-a", "A10").stdout


# Report


def test_the_report_is_one_file(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new folder" / "report.html"
    assert main(["report", str(raw), "-o", str(out)]) == 0
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_whole_command_runs_without_a_warning(raw: Path, tmp_path: Path) -> None:
    done = _run("report", raw, "-o", tmp_path / "report.html")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1


def test_a_format_for_a_run_set_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    folder = _REPO / "fixtures" / "torch_profiler" / "convnet_infer_cpu"
    assert main(["info", str(folder), "--format", "torch_profiler"]) == 2
    assert "--format is not for run sets" in capsys.readouterr().err


_LINES = (
    "a", "a b -n 5", "-f json a", "a --output-format=json -o x", "a --pid 3 --pid=04 --device-id 1", "a -n0 --top 0",
    "a --no-cache --cache-dir d --strict-json", "a --layer-range x.* --layer-range=y", "a --graph-capture c -o -",
    "a --layer-source MODULE", "a --layer-source module --gpu=", "a -n -1", "a --csv-raw=1", "a --", "a -o", "a --no",
    "", "a -a A10 -a B03 --rows 10", "a b c --fail-on x>3% --strict", "add store a --label x=y", "a -o x --to chrome",
)  # fmt: skip


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.passes_on], ids=lambda each: each.name)
def test_a_plain_command_line_is_read_as_typer_reads_it(command: Command) -> None:
    function, of_typer = getattr(import_module(command.module), command.function), command_named(command.name)
    for line in _LINES:
        plain = plain_values(function, line.split())
        if plain is not None:
            values = of_typer.make_context(command.name, line.split()).params
            assert plain | {"help_reading": None} == values | {"help_reading": None}, line


def test_what_people_type_most_takes_no_typer() -> None:
    for name in ("top", "info", "findings", "analyze", "compare", "report"):
        function = getattr(import_module(f"xsp.cli.commands.{name}"), name)
        assert plain_values(function, ["a.json", "b.json", "-f", "json"] if name != "report" else ["a", "-o", "b"])
        assert plain_values(function, ["a.json", "--no-such-option"]) is None
