"""`xsp top`, and the ranking it prints."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.helpers.report_trace import US, small_trace
from tests.helpers.shaped_trace import shaped
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.render.top import Entry, Ranking, bar, ranking_lines
from xsp_model import bundle

if TYPE_CHECKING:
    from pathlib import Path


def _lines(ranking: Ranking, count: int, width: int = 80, full: float = 1.0) -> list[str]:
    return [str(line) for line in ranking_lines(ranking, count, width, full)]


def test_what_is_not_shown_and_what_no_row_holds_stand_in_sum() -> None:
    rows = [Entry("a", 50_000), Entry("b", 20_000), Entry("c", 10_000)]
    title, *lines = _lines(Ranking("Layers", rows, 100_000, "outside"), 1)
    assert title == "Layers"
    assert [line.split()[:5] for line in lines] == [
        ["a", "50.0", "\u00b5s", "50.0", "%"],
        ["and", "2", "more", "30.0", "\u00b5s"],
        ["outside", "20.0", "\u00b5s", "20.0", "%"],
    ]


def test_bars_are_as_long_as_their_share() -> None:
    assert [bar(part, 8) for part in (0.0, 0.5, 1.0, 1 / 64, 1e-9)] == ["", "████", "████████", "▏", "▏"]
    rows = [Entry("a", 40.0), Entry("b", 20.0)]
    _, first, second = _lines(Ranking("Kernels", rows, 100.0), 2, full=0.4)
    assert (first.count("█"), second.count("█")) == (20, 10)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [
        Entry("void at::native::kernel<" + "float, " * 60 + "4>(int)", 5e6, "    3x  "),
        Entry("\x1b[2J\u202e", 1.0),
    ]
    lines = _lines(Ranking("Kernels", rows, 1e7, "outside every layer"), 5, width)
    assert max(map(cell_len, lines)) <= width
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_layers_and_kernels_are_ranked_by_device_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_trace(tmp_path)
    assert main(["top", str(tmp_path / "small.json"), "-n", "2", "--no-cache"]) == 0
    text = capsys.readouterr().out
    head, *blocks = text.split("\n\n")
    assert "of device time, per step" in head
    assert [block.splitlines()[0] for block in blocks] == ["Layers by device time", "Kernels by device time"]
    for block in blocks:
        shares = [float(line.split(" %")[0].split()[-1]) for line in block.splitlines()[1:] if " %" in line]
        assert sum(shares) == pytest.approx(100, abs=0.5)
        assert all(a >= b for a, b in pairwise(shares[:2]))


def test_without_device_work_layers_are_ranked_by_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::add", 0, 10 * US)
    kineto.operator("aten::mul", 20 * US, 30 * US)
    assert main(["top", str(kineto.write(tmp_path / "host.json")), "--no-cache"]) == 0
    text = capsys.readouterr().out
    assert "no device work was recorded" in text
    assert text.index("aten::mul") < text.index("aten::add")


def test_operators_are_ranked_by_what_they_would_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Of 68 us: the products would gain 24 of their 48 us, the ReLU 12 of 16; the custom operator has no model.
    path = tmp_path / "t.xsp"
    bundle.write(shaped(), path)
    assert main(["top", str(path)]) == 0
    printed = capsys.readouterr().out
    line = "Operators run at 43.8 % of what their shapes allow on this device (modelled for 94.1 %"
    assert line in " ".join(printed.split())  # however it is wrapped
    title, first, second = printed[printed.index("Operators by device time to gain") :].splitlines()
    assert title == "Operators by device time to gain, and how much of the roof they reach"
    assert first.split()[:9] == ["50.0", "%", "mm", "100x200,", "200x300", "fp32", "24.0", "\u00b5s", "35.3"]
    assert second.split()[:7] == ["25.0", "%", "relu", "1000x50", "fp32", "12.0", "\u00b5s"]


def test_launches_without_a_kernel_are_the_first_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 100 * US)
    for at in (10, 30):
        kineto.runtime("cudaLaunchKernel", at * US, 5 * US)
    kineto.write(tmp_path / "lost.json")
    assert main(["top", str(tmp_path / "lost.json"), "--no-cache"]) == 0
    assert capsys.readouterr().out.startswith("2 kernel launches were recorded, and no kernel: what the device did is")


def test_times_that_cannot_be_are_told_before_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 500 * US)
    for at in (100, 200, 300):
        kineto.launch("gemm", (at - 20) * US, at * US, (1_000_000 if at == 200 else 50) * US)
    kineto.write(tmp_path / "impossible.json")
    assert main(["top", str(tmp_path / "impossible.json"), "--no-cache"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "1 device activity has a time that cannot be (1.00 s) and counts for nothing here."
    assert second.startswith("100 ")
