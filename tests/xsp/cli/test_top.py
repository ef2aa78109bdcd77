"""`xsp top`, and the ranking it prints."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.helpers.batches import trace_of
from tests.helpers.report_trace import US, small_trace
from tests.helpers.shaped_trace import shaped
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.pages.report.summary import in_one_line, summary_sentences
from xsp_analyze.render.top import Entry, Ranking, bar, ranking_lines
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
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


def test_calls_of_one_name_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::add", 0, 40 * US)
    kineto.launch("add", 1 * US, 10 * US, 40 * US)
    for call in range(3):
        kineto.operator("aten::mul", (50 + 30 * call) * US, 20 * US)
        kineto.launch("mul", (51 + 30 * call) * US, (60 + 30 * call) * US, 20 * US)
    assert main(["top", str(kineto.write(tmp_path / "few.json")), "--no-cache", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rankings"][0]["rows"]
    assert [(row["name"], row["layer_index"], row["time_ns"]) for row in rows] == [
        ("3 x aten::mul", 1, 60_000), ("aten::add", 0, 40_000),
    ]  # fmt: skip


def test_variants_of_a_template_are_one_row_and_sums_over_devices_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto = KinetoTrace()
    for device in range(2):
        for tile in range(3):
            at = (100 * tile + 10 * device) * US
            kineto.launch(f"void tiled<{tile}>(int)", at, at + 5 * US, 20 * US, device_id=device)
    kineto.write(tmp_path / "few.json")
    assert main(["top", str(tmp_path / "few.json"), "--no-cache", "-f", "md"]) == 0
    text = capsys.readouterr().out
    assert "of device time, summed over 2 devices, over the whole trace" in text
    assert main(["top", str(tmp_path / "few.json"), "--no-cache", "-f", "json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["rankings"][-1]["rows"]
    assert [(row["name"], row["count"], row["time_ns"]) for row in kernels] == [("3 variants of tiled", 6, 120_000)]


def _rows(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[dict[str, object]], float | None]:
    """The first ranking of `xsp top`: what it is, its rows, and what is outside of them."""
    assert main(["top", str(path), "--no-cache", "-f", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["rankings"][0]
    return first["ranking"], first["rows"], first["outside_ns"]


def test_operators_of_one_name_are_one_row_in_blocks_and_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto = KinetoTrace()
    names = ["aten::mul", *("aten::conv2d", "aten::relu_") * 4, "aten::conv2d"]  # four blocks of two, and one behind
    for n, name in enumerate(names):
        kineto.operator(name, n * 50 * US, 20 * US)
        kineto.launch("k", (n * 50 + 1) * US, (n * 50 + 10) * US, 30 * US)
    identity, rows, _ = _rows(kineto.write(tmp_path / "blocks.json"), capsys)
    assert identity == "layers_by_device_time"
    assert [(row["name"], row["layer_index"], row["time_ns"]) for row in rows] == [
        ("5 x aten::conv2d", 1, 150_000), ("4 x aten::relu_", 2, 120_000), ("aten::mul", 0, 30_000),
    ]  # fmt: skip


def test_ranges_of_other_names_are_equal_in_blocks_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    for n, name in enumerate(["stage 7", "stage 7", "stage 8"]):
        kineto.annotation(name, (500 + n * 100) * US, 90 * US)
        kineto.operator("aten::mm", (501 + n * 100) * US, 10 * US)
        kineto.launch("k", (502 + n * 100) * US, (510 + n * 100) * US, (60 - 20 * (n == 2)) * US)
    for n in range(4):
        kineto.annotation(f"layers.{n}", n * 100 * US, 90 * US)
        kineto.operator("aten::mm", (n * 100 + 1) * US, 20 * US)
        kineto.launch("k", (n * 100 + 2) * US, (n * 100 + 10) * US, 30 * US)
    _, rows, _ = _rows(kineto.write(tmp_path / "ranges.json"), capsys)
    assert [(row["name"], row["time_ns"]) for row in rows] == [
        ("4 x layers of layers.{0..3} (layers.{0..3})", 120_000), ("2 x stage 7", 120_000), ("stage 8", 40_000),
    ]  # fmt: skip


def test_collectives_on_the_host_are_ranked_where_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gloo's receive lies in its send: 280 us, of which 200 are the receive's."""
    kineto = KinetoTrace()
    kineto.step(1, 0, 1000 * US)
    kineto.annotation("gloo:send", 10 * US, 280 * US)
    kineto.annotation("gloo:recv", 20 * US, 200 * US)
    identity, rows, _ = _rows(kineto.write(tmp_path / "gloo.json"), capsys)
    assert identity == "operators_by_self_time"
    assert [(row["name"], row["time_ns"]) for row in rows] == [("gloo:recv", 200_000), ("gloo:send", 80_000)]


def test_beside_ranges_on_the_host_operators_are_ranked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto = KinetoTrace()
    for n, name in enumerate(["preprocess", "solve", "solve"]):
        kineto.annotation(name, n * 100 * US, 90 * US)
        kineto.operator("aten::mm", (n * 100 + 5) * US, (10 + n * 20) * US)
    assert main(["top", str(kineto.write(tmp_path / "ranges.json")), "--no-cache"]) in {0, None}
    out = capsys.readouterr().out
    assert out.index("Layers by latency") < out.index("Operators by self time") < out.index("aten::mm")


def test_where_collectives_take_more_than_operators_both_are_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::add", 10 * US, 20 * US)
    kineto.operator("gloo:send", 50 * US, 200 * US)
    _, rows, _ = _rows(kineto.write(tmp_path / "gloo.json"), capsys)
    assert [(row["name"], row["time_ns"]) for row in rows] == [("gloo:send", 200_000), ("aten::add", 20_000)]


def test_on_the_host_operators_are_ranked_by_the_time_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kineto = KinetoTrace()
    for step in (1, 2):
        start = step * 1000 * US
        kineto.step(step, start, 200 * US)
        kineto.operator("aten::conv2d", start + 10 * US, 60 * US)
        kineto.operator("aten::mkldnn_convolution", start + 15 * US, 50 * US)
        kineto.operator("aten::linear", start + 80 * US, 30 * US)
        kineto.operator("aten::addmm", start + 85 * US, 20 * US)
    identity, rows, outside = _rows(kineto.write(tmp_path / "host.json"), capsys)
    assert identity == "operators_by_self_time"
    assert [(row["name"], row["count"], row["time_ns"], row["share"]) for row in rows] == [
        ("aten::mkldnn_convolution", 1, 50_000, 0.25), ("aten::addmm", 1, 20_000, 0.1),
        ("aten::conv2d", 1, 10_000, 0.05), ("aten::linear", 1, 10_000, 0.05),
    ]  # fmt: skip
    assert outside == 110_000


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


_SAME_RANK = (
    "Several files say that they are the same rank, so that times summed over ranks count it more than once: rank 0 of"
    " a.json, b.json."
)


@pytest.fixture(name="one_rank_twice")
def fixture_one_rank_twice(tmp_path: Path) -> Path:
    """Two captures of rank 0 of 2, in a folder, that are not the same."""
    folder = tmp_path / "job"
    folder.mkdir()
    for name, scale in (("a", 100), ("b", 200)):
        trace_of(scale, distributedInfo={"rank": 0, "world_size": 2}).write(folder / f"{name}.json")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", ["top", "top -f md", "findings", "findings -f md"])
def test_a_rank_that_several_files_are_is_said_first(
    one_rank_twice: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), str(one_rank_twice), "--no-cache"]) == 0
    out = capsys.readouterr().out.replace("\\", "")
    before, sentence, _ = " ".join(out.split()).partition(_SAME_RANK)
    assert sentence
    if command.startswith("findings"):  # as the first of them, under its title
        head, title, before = before.partition("One recording is counted more than once (counted-twice)")
        assert title
        assert head.endswith((" 1. ", "| finding | at most | what was found | | --- | ---: | --- | | "))
    assert not before.strip(" |")


@pytest.mark.slow
def test_a_report_and_a_comparison_say_first_that_a_rank_is_there_twice(
    one_rank_twice: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Answers(convert([one_rank_twice], Options()))
    sentence, *parts = in_one_line(answers)
    assert sentence == _SAME_RANK.rstrip(".")
    assert "2 runs side by side" in parts
    assert summary_sentences(answers)[0] == _SAME_RANK
    job = tmp_path / "job.xsp"
    bundle.write(answers.trace, job)
    assert main(["compare", str(job), str(one_rank_twice / "a.json"), "--no-cache"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == f"job.xsp: {_SAME_RANK}"


@pytest.mark.slow
def test_a_batch_and_a_cohort_say_first_that_a_rank_is_there_twice(
    one_rank_twice: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = tmp_path / "job.xsp", tmp_path / "out"
    bundle.write(convert([one_rank_twice], Options()), job)
    assert main(["batch", str(job), "-o", str(out), "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"job: {_SAME_RANK}"
    document = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert document["same_ranks"] == [f"job: {_SAME_RANK}"]
    assert main(["cohort", str(job)]) == 0
    assert f"job: {_SAME_RANK}" in capsys.readouterr().err
    assert main(["cohort", str(out)]) == 0
    assert f"job: {_SAME_RANK}" in capsys.readouterr().err


def test_one_step_or_the_whole_trace_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of 100, 200 and 300 us, each with one kernel of half of it, by every command that tells of one step."""
    kineto = KinetoTrace()
    begin = 0
    for number, length in enumerate((100 * US, 200 * US, 300 * US)):
        kineto.step(number, begin, length)
        kineto.launch("gemm", begin + US, begin + 10 * US, length // 2)
        begin += length
    trace = str(kineto.write(tmp_path / "steps.json"))
    for steps, basis, total in (("1", "in step 1", 100), ("all", "over the whole trace", 300)):
        assert main(["top", trace, "--steps", steps, "--no-cache", "-f", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["basis"] == basis
        assert document["rankings"][-1]["whole_ns"] == total * US
        assert main(["findings", trace, "--steps", steps, "--no-cache"]) == 0
        assert main(["report", trace, "--steps", steps, "--no-cache", "-o", str(tmp_path / "report.html")]) == 0
        capsys.readouterr()
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert ("Step 1," in page, "no steps marked" in page) == (steps == "1", False)
    for command in ("top", "findings", "report"):
        assert main([command, trace, "--steps", "each", "--no-cache"]) == 2
        assert "are of one step or of the whole trace" in capsys.readouterr().err


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
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("1 device activity has a time that cannot be (1.00 s) and counts for nothing here. 100 ")
