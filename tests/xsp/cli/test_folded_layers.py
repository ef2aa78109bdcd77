"""Layers of repeated blocks where commands list layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.decoder_trace import decoder
from xsp.cli.main import main
from xsp_model import bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "decoder.xsp"
    bundle.write(decoder(), path)
    return path


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def test_top_ranks_equal_layers_as_one(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # or names are cut to the terminal that runs the tests
    text = _printed(capsys, "top", model)
    layers = text[text.index("Layers by device time") : text.index("Kernels by device time")].splitlines()[1:]
    # Index of the first of them: attention 425 ns, the second Linear 86, the first 40 as the head, the embedding 5.
    assert [line.split()[0] for line in layers if line] == ["1", "3", "2", "13", "0"]
    assert "4 x Attention of Decoder_{0..3}" in layers[0]
    assert "425" in layers[0]


def test_info_says_what_the_model_has_several_times(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "blocks        4 x Decoder_{0..3}, 3 layers each" in _printed(capsys, "info", model)
