"""`--work-models`: in the command, in Python, on bundles and in batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """One call of my::op on (2, 5), whose kernel took 2 us."""
    made = KinetoTrace()
    made.operator("my::op", 0, 80_000, shapes=[[2, 5]])
    made.launch("mine", 12_000, 240_000, 2_000)
    return made.write(tmp_path / "t.json")


@pytest.fixture
def models_file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text('[[model]]\noperators = ["my::op"]\nflop = 1000\n', encoding="utf-8")
    return file


def test_the_command_counts_by_the_users_models(
    trace_file: Path, models_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["analyze", str(trace_file), "-a", "B11", "-f", "csv"]
    assert main([*command, "--work-models", str(models_file)]) == 0
    assert "my::op,1,1,1000" in capfd.readouterr().out
    assert main(command) == 0
    assert "my::op,1,0,," in capfd.readouterr().out


def test_a_file_that_is_not_sound_is_an_error_of_the_user(
    trace_file: Path, models_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models_file.write_text('[[model]]\noperators = ["my::op"]\nflop = "open(1)"\n', encoding="utf-8")
    assert main(["analyze", str(trace_file), "-a", "B11", "--work-models", str(models_file)]) == 2
    error = capfd.readouterr().err
    assert "mine.toml: row 1 (my::op): flop calls open; it may have numbers" in error
    assert main(["batch", str(trace_file), "-o", str(trace_file.parent / "out"), "--work-models", "none.toml"]) == 2
    assert "none.toml: cannot be read: No such file" in capfd.readouterr().err


def test_python_takes_several_files_and_a_bundle_takes_them_too(
    trace_file: Path, models_file: Path, tmp_path: Path
) -> None:
    opened = xsp.open(trace_file, work_models=[models_file])
    assert opened.analyze("B11").table["modelled_flop"].to_list() == [1000.0]
    bundle.write(xsp.open(trace_file).trace, tmp_path / "t.xsp")
    again = xsp.open(tmp_path / "t.xsp", work_models=[str(models_file)])
    assert again.analyze("B11").table["modelled_flop"].to_list() == [1000.0]
    bundle.write(again.trace, tmp_path / "kept.xsp")
    kept = xsp.open(tmp_path / "kept.xsp")
    assert kept.analyze("B11").table["modelled_flop"].to_list() == [1000.0]
    with pytest.raises(XspError, match="work_models takes a list"):
        xsp.open(trace_file, work_models=str(models_file))


@pytest.mark.slow  # three batches
def test_a_batch_is_done_again_where_the_models_are_others(
    trace_file: Path, models_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["batch", str(trace_file), "-o", str(trace_file.parent / "out"), "--no-reports", "-f", "json"]
    outcomes = []
    for flop in (1000, 1000, 2000):
        models_file.write_text(f'[[model]]\noperators = ["my::op"]\nflop = {flop}\n', encoding="utf-8")
        assert main([*command, "--work-models", str(models_file)]) == 0
        counts = json.loads(capfd.readouterr().out)["costs"]["counts"]
        outcomes.append((counts["done"], counts["kept"]))
    assert outcomes == [(1, 0), (0, 1), (1, 0)]
