"""`--phase`, on every command that tells of steps, and the same in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.report_trace import small_trace
from tests.helpers.serving_trace import serving_trace
from xsp.cli.main import main
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_DECODE, _PREFILL = "paged_attention_decode", "flash_attention_prefill"


@pytest.fixture(name="raw", scope="module")
def fixture_raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    serving_trace(folder)
    return folder / "server.json"


def test_analyze_takes_its_steps_alone_and_says_so(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(raw), "-a", "A10", "--phase", "prefill", "-f", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["kernel_name"] for row in answer["rows"]] == ["nvjet_tst_128x256_64x4", _PREFILL]
    assert (answer["provenance"]["serving_phase"], answer["provenance"]["step_count"]) == ("prefill", 1)
    assert main(["analyze", str(raw), "-a", "A10", "--phase", "decode"]) == 0
    assert "serving phase: decode; step count: 24" in capsys.readouterr().out


def test_csv_of_a_phase_is_not_of_the_whole_file(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(raw), "-a", "A10", "--phase", "decode", "-f", "csv"]) == 0
    out = capsys.readouterr().out
    assert _DECODE in out
    assert _PREFILL not in out


def test_other_commands_take_it_too(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(raw), "select kernel_name from A10", "--phase", "decode", "-f", "csv"]) == 0
    assert _PREFILL not in capsys.readouterr().out
    assert main(["top", str(raw), "--phase", "decode"]) == 0
    assert "per decode step, averaged over 24" in capsys.readouterr().out
    assert main(["findings", str(raw), "--phase", "prefill"]) == 0
    assert "uneven-steps" not in capsys.readouterr().out
    assert main(["report", str(raw), "--phase", "mixed", "-o", str(tmp_path / "r.html")]) == 0
    assert "per mixed step, averaged over 3" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert main(["export", str(raw), "--to", "chrome", "--phase", "prefill", "-o", str(tmp_path / "e.json")]) == 0
    exported = (tmp_path / "e.json").read_text(encoding="utf-8")
    assert _PREFILL in exported
    assert _DECODE not in exported


@pytest.mark.slow
def test_compare_sets_phase_beside_phase(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faster = [(8, 8_000, 0, 40_000), *[(0, 0, 32, 8_000)] * 12]
    serving_trace(tmp_path, faster)
    command = ["compare", str(raw), str(tmp_path / "server.json"), "-f", "json", "--phase"]
    ratios = []
    for phase in ("decode", "prefill"):
        assert main([*command, phase]) == 0
        comparison = json.loads(capsys.readouterr().out)
        assert comparison["serving_phase"] == phase
        ratios.append(comparison["model"]["ratio"])
    assert ratios == pytest.approx([8 / 9.8125, 1.0])
    assert main(["compare", str(raw), str(tmp_path / "server.json"), "--phase", "decode"]) == 0
    assert "latency of a decode step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--phase", "warmup"], "'warmup' is no phase of serving. Choose prefill, decode, mixed, diffusion"),
        (
            ["--phase", "diffusion"],
            "the trace has no diffusion steps. Its serving steps are 24 decode, 5 mixed, 1 prefill",
        ),
        (["--phase", "decode", "--steps", "all"], "--steps all takes the trace as one"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    raw: Path, options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(raw), "-a", "A10", *options]) == 2
    assert error in capsys.readouterr().err


def test_a_trace_of_no_server_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_trace(tmp_path)
    assert main(["findings", str(tmp_path / "small.json"), "--phase", "decode"]) == 2
    assert "the trace has no serving steps, which --phase chooses among" in capsys.readouterr().err


@pytest.mark.slow
def test_python_takes_it_as_well(raw: Path, tmp_path: Path) -> None:
    server = xsp.open(raw)
    assert server.analyze("A10", serving_phase="prefill").to_polars()["kernel_name"].to_list()[1] == _PREFILL
    assert server.analyze("B20", serving_phase="mixed").to_polars()["step"].to_list() == [1, 2, 3, 12, 18]
    assert server.sql("select step from B20", serving_phase="mixed").height == 5
    assert server.compare(server, serving_phase="decode").ratio == 1
    assert "per mixed step" in server.report(tmp_path / "r.html", serving_phase="mixed").read_text(encoding="utf-8")
    server.findings(serving_phase="decode")
    server.export(tmp_path / "e.json", to="chrome", step=12, serving_phase="mixed")
    with pytest.raises(XspError, match="step 12 is no decode step"):
        server.export(tmp_path / "f.json", to="chrome", step=12, serving_phase="decode")
