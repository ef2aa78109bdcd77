"""`xsp analyze -f csv` of a capture reads what the answer is made of; whatever says what it covers reads all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from xsp.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Sequence

_CAPTURE = Path(__file__).parents[3] / "fixtures" / "nsys_sqlite" / "inference_2gpu_synthetic" / "trace.sqlite"


def _printed(arguments: Sequence[str]) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the captures that were converted."""
    from xsp_ingest import convert  # noqa: PLC0415

    names: list[str] = []
    really = convert.convert_levels

    def watched(paths: Sequence[Path], *options: object, **named: object) -> object:
        names.extend(path.name for path in paths)
        return really(paths, *options, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(convert, "convert_levels", watched)
    return names


@pytest.mark.parametrize("requested", [["cuda_gpu_kern_sum"], ["nvtx_gpu_proj_sum", "cuda_api_sum", "nvtx_sum"]])
def test_the_answer_is_that_of_the_bundle(requested: list[str], tmp_path: Path, read_whole: list[str]) -> None:
    analyses = [argument for name in requested for argument in ("-a", name)]
    part = _printed(["analyze", str(_CAPTURE), *analyses, "-f", "csv"])
    assert read_whole == []
    _printed(["convert", str(_CAPTURE), "-o", str(tmp_path / "whole.xsp")])
    assert part == _printed(["analyze", str(tmp_path / "whole.xsp"), *analyses, "-f", "csv"])


def test_what_is_printed_beside_an_answer_is_of_the_whole_trace(read_whole: list[str]) -> None:
    document = json.loads(_printed(["analyze", str(_CAPTURE), "-a", "cuda_gpu_kern_sum", "-f", "json"]))
    assert read_whole == [_CAPTURE.name]
    assert document["provenance"]["sources"][0]["sha256"]
    assert document["ledger"]


@pytest.mark.parametrize(
    "further", [["-a", "A10"], ["--steps", "all"], ["--range", "0ms.."], ["--layer-source", "operator"]]
)
def test_whatever_takes_more_reads_all(further: list[str], read_whole: list[str]) -> None:
    CliRunner().invoke(app, ["analyze", str(_CAPTURE), "-a", "cuda_gpu_kern_sum", "-f", "csv", *further])
    assert read_whole == [_CAPTURE.name]


def test_a_part_is_never_kept_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSP_CACHE_SIZE", "1GB")
    _printed(["analyze", str(_CAPTURE), "-a", "cuda_gpu_kern_sum", "-f", "csv", "--cache-dir", str(tmp_path)])
    assert list(tmp_path.rglob("*.parquet")) == []
