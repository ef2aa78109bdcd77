"""Figures for papers: what is in the file, that it is the same tomorrow, and that the page's data are what is drawn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.counted_layer import mixed
from tests.helpers.shaped_trace import shaped
from tests.helpers.waiting import HANG_S
from xsp_analyze.catalog import all_analyses, find
from xsp_analyze.figure import Look, draw, draw_several, width_inches
from xsp_analyze.figure.draw import joint_blocks
from xsp_analyze.figure.look import settings
from xsp_analyze.figure.panels import layout
from xsp_analyze.pages.report.figures import figure as blocks_of
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xsp_analyze.core import Analysis

figure_module = pytest.importorskip("matplotlib.figure")

_TRAINING = Path(__file__).resolve().parents[3] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic"
_MAGIC = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.fixture(scope="module", name="training")
def fixture_training() -> Answers:
    return Answers(convert([_TRAINING], Options()))


@pytest.fixture(scope="module", name="counted")
def fixture_counted() -> Answers:
    return Answers(mixed().build())


def _axes(answers: Answers, identity: str) -> Axes:
    """The axes of the analysis's first panel, drawn as `draw` draws them."""
    from xsp_analyze.figure.panels import panel  # noqa: PLC0415 (needs matplotlib)

    analysis = find(identity)
    result = answers.of(identity)
    assert not isinstance(result, str)
    assert analysis.figure is not None
    axes: Axes = figure_module.Figure().subplots()
    panel(axes, blocks_of(answers, result)[0], analysis.figure.x)
    return axes


@pytest.fixture(scope="module", name="cards")
def fixture_cards() -> dict[str, Answers]:
    """The same work on two devices, the second twice as fast, and on the first once more."""
    return {
        "old": Answers(shaped()),
        "new": Answers(shaped(peak=2e12, bandwidth=2e11, name="Other")),
        "again": Answers(shaped()),
    }


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_the_same_trace_gives_the_same_file(training: Answers, suffix: str) -> None:
    first, second = (draw(training, find("A10"), suffix).content for _ in range(2))
    assert first == second
    assert first.startswith(_MAGIC[suffix])
    assert b"CreationDate" not in first
    assert b"<dc:date>" not in first


def test_what_matplotlib_was_set_to_changes_nothing(training: Answers) -> None:
    mpl = pytest.importorskip("matplotlib", reason="needs the extra `figures`")
    plain = draw(training, find("A03"), "svg").content
    with mpl.rc_context({"patch.linewidth": 40, "axes.grid": True, "svg.image_inline": False, "xtick.labelsize": 30}):
        assert draw(training, find("A03"), "svg").content == plain


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"patch.linewidth: 40\naxes.grid: True\nno setting: 1\n", b"\xbc\x00", None])
def test_a_matplotlibrc_of_the_current_folder_is_not_read(tmp_path: Path, content: bytes | None) -> None:
    """The folder may be a stranger's; without content it holds a pipe, which nobody writes into."""
    pytest.importorskip("matplotlib", reason="needs the extra `figures`")

    def drawn(folder: str) -> bytes:
        arguments = ["figure", str(_TRAINING), "-a", "A03", "-o", f"{folder}.svg"]
        program = f"import sys; from xsp.cli.main import main; sys.exit(main({arguments!r}))"
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, cwd=tmp_path / folder, capture_output=True, check=True, timeout=HANG_S)
        assert b"matplotlib" not in done.stderr
        return (tmp_path / folder / f"{folder}.svg").read_bytes()

    for folder in ("own", "foreign"):
        (tmp_path / folder).mkdir()
    if content is None:
        os.mkfifo(tmp_path / "foreign" / "matplotlibrc")
    else:
        (tmp_path / "foreign" / "matplotlibrc").write_bytes(content)
    assert drawn("foreign") == drawn("own")


def test_fonts_of_a_pdf_are_embedded_and_of_no_type_that_publishers_refuse(training: Answers) -> None:
    content = draw(training, find("A10"), "pdf").content
    assert b"/Type3" not in content
    assert b"/FontFile2" in content


@pytest.mark.slow
@pytest.mark.parametrize("analysis", [a for a in all_analyses() if a.figure], ids=lambda a: a.id)
def test_every_figure_that_the_page_draws_can_be_printed(
    training: Answers, counted: Answers, analysis: Analysis
) -> None:
    for answers in (training, counted):
        result = answers.of(analysis.id)
        if isinstance(result, str) or all(b["type"] == "text" for b in blocks_of(answers, result)):
            with pytest.raises(XspError):
                draw(answers, analysis, "svg")
        else:
            assert draw(answers, analysis, "svg").content.startswith(_MAGIC["svg"])


def test_bars_are_as_long_as_the_table_says(training: Answers) -> None:
    result = training.of("A10")
    assert not isinstance(result, str)
    longest = sorted(result.table["duration_ns"].to_list(), reverse=True)[:20]
    axes = _axes(training, "A10")
    scale = {"us": 1e3, "\N{MICRO SIGN}s": 1e3, "ms": 1e6}[re.findall(r"\((.*)\)", axes.get_xlabel())[0]]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([v / scale for v in longest])


def test_of_one_batch_size_the_axes_are_steps_and_durations(training: Answers) -> None:
    axes = _axes(training, "A01")
    assert axes.get_xlabel() == "step"
    assert axes.get_ylabel().startswith("duration (")
    assert axes.get_ylim()[0] == 0


def test_shares_of_layers_fill_their_columns(training: Answers) -> None:
    axes = _axes(training, "A13")
    tops: dict[float, float] = {}
    for bar in axes.patches:
        left = round(bar.get_x(), 6)
        tops[left] = max(tops.get(left, 0.0), bar.get_y() + bar.get_height())
    assert list(tops.values()) == pytest.approx([100.0] * len(tops))


def test_operators_without_counters_have_a_roofline_that_says_it_is_modelled(cards: dict[str, Answers]) -> None:
    axes = _axes(cards["old"], "B23")
    assert axes.get_xlabel() == "modelled arithmetic intensity (FLOP/byte)"
    assert axes.get_ylabel() == "throughput of modelled work (FLOP/s)"
    texts = {t.get_text() for t in axes.texts}
    assert texts == {"mm 100x200, 200x300", "relu 1000x50", "fp32 1 TFLOP/s", "100 GB/s", "ridge 10"}
    at = [(float(x), float(y)) for c in axes.collections for x, y in c.get_offsets()]
    assert at[0] == pytest.approx((24e6 / 880e3, 24e6 / 48e-6))


def test_traces_in_one_roofline_have_a_colour_each_and_share_the_roofs_of_one_device(cards: dict[str, Answers]) -> None:
    block, *notes = joint_blocks(cards, find("B23"))
    assert block["traces"] == ["old", "new", "again"]
    assert [(p["trace"], round(p["share"], 3)) for p in block["points"]] == [
        (0, 0.5), (0, 0.25), (1, 0.25), (1, 0.125), (2, 0.5), (2, 0.25),
    ]  # fmt: skip
    assert [(r["trace"], r["peak"], r["bandwidth"]) for r in block["roofs"]] == [(None, 1e12, 1e11), (1, 2e12, 2e11)]
    assert [note["text"].split(":")[0] for note in notes] == ["old", "new", "again"]
    from xsp_analyze.figure.panels import panel  # noqa: PLC0415 (needs matplotlib)

    axes: Axes = figure_module.Figure().subplots()
    panel(axes, block, "modelled_intensity")
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["old, fp32", "new, fp32", "again, fp32", "the model"]
    colors = {tuple(c.get_facecolor()[0][:3]) for c in axes.collections if c.get_label() in names[:3]}
    assert len(colors) == 3


def test_every_trace_of_a_roofline_needs_an_answer(cards: dict[str, Answers]) -> None:
    with pytest.raises(XspError, match="counted: B23"):
        draw_several({"old": cards["old"], "counted": Answers(mixed().build())}, find("B23"), "svg")


def test_a_roofline_has_a_ridge_for_each_precision(counted: Answers) -> None:
    # fp32: 1e12 flop/s over 2e10 byte/s is 50 flop/byte; bf16: 4e13 over 2e10 is 2000.
    axes = _axes(counted, "A09")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {t.get_text() for t in axes.texts} >= {"ridge 50", "ridge 2e+03", "fp32 1 TFLOP/s", "20 GB/s"}
    flats = sorted(max(line.get_ydata()) for line in axes.lines if len(set(line.get_ydata())) == 1)
    assert flats == pytest.approx([1e12, 4e13])
    at = [(float(x), float(y)) for c in axes.collections for x, y in c.get_offsets()]
    assert any(point == pytest.approx((2000.0, 2e13)) for point in at)


def test_the_nodes_of_an_icicle_stand_within_their_parents() -> None:
    # all 10: a 6 (a1 1, a2 5), b 4
    assert layout([-1, 0, 1, 1, 0], [10, 6, 1, 5, 4]) == ([0, 1, 2, 2, 1], [0, 0, 0, 1, 6])


def test_a_dollar_in_a_name_is_no_formula(training: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    result = training.of("A06")
    assert not isinstance(result, str)
    odd = [f"$x_{{{i}$ \\frac{{ \u4e2d" for i in range(result.table.height)]
    answers = Answers(training.trace)
    changed = replace(result, table=result.table.with_columns(pl.Series("layer_type", odd)))
    monkeypatch.setattr(answers, "of", lambda _: changed)
    assert draw(answers, find("A06"), "svg").content


@pytest.mark.parametrize(
    ("text", "inches"), [("single", 3.5), ("double", 7.16), ("3.5in", 3.5), ("89mm", 3.504), ("4", 4), ("10 cm", 3.937)]
)
def test_widths(text: str, inches: float) -> None:
    assert width_inches(text) == pytest.approx(inches, abs=1e-3)


@pytest.mark.parametrize("text", ["wide", "0", "-3in", "900in", "3.5 parsec", ""])
def test_what_is_no_width_is_refused(text: str) -> None:
    with pytest.raises(XspError, match="no width"):
        width_inches(text)


def test_a_figure_is_as_wide_as_it_was_asked_to_be(training: Answers) -> None:
    content = draw(training, find("A06"), "svg", Look(width=5.0)).content.decode()
    assert 'width="360pt"' in content


def test_a_style_file_goes_before_the_defaults(training: Answers, tmp_path: Path) -> None:
    style = tmp_path / "serif.mplstyle"
    style.write_text("# ours\nfont.size: 11\naxes.labelsize: 13 # large\n", encoding="utf-8")
    assert (settings(style)["font.size"], settings(style)["axes.labelsize"]) == (11.0, 13.0)
    plain = draw(training, find("A06"), "svg").content
    assert draw(training, find("A06"), "svg", Look(style=style)).content != plain


@pytest.mark.parametrize(
    ("line", "message"),
    [("font.sice: 9", "Did you mean font.size"), ("font.size: huge", "refuses"), ("nonsense", "line 1")],
)
def test_a_mistake_in_a_style_file_is_named(tmp_path: Path, line: str, message: str) -> None:
    style = tmp_path / "bad.mplstyle"
    style.write_text(line, encoding="utf-8")
    with pytest.raises(XspError, match=message):
        settings(style)


def test_what_has_no_figure_says_which_have(training: Answers) -> None:
    with pytest.raises(XspError, match=r"has no figure.*A03"):
        draw(training, find("A08"), "svg")
    with pytest.raises(XspError, match="needs"):
        draw(training, find("B14"), "svg")
