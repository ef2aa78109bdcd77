"""Ranks in the report and on the page of a job: what is drawn of them, and how a reader goes about it in a browser.

Screenshots at 1440, 768 and 390 px go to the folder that XSP_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.profile_trace import profile
from tests.helpers.rank_traces import grouped_traces, rank_trace, write_rank, write_ranks
from xsp_analyze.pages.ranks import bandwidth, heat_map
from xsp_analyze.pages.ranks import render as render_job
from xsp_analyze.pages.report.page import render
from xsp_analyze.pages.report.ranks import ranks
from xsp_analyze.ranks.job import open_job
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.helpers.synth import KinetoTrace
    from xsp_model import Trace

_MS = 1_000_000
_COMPUTE_MS = (4, 4, 6)


def _read(folder: Path, traces: Sequence[KinetoTrace], options: Options | None = None) -> Trace:
    folder.mkdir(parents=True, exist_ok=True)
    return convert(write_ranks(folder, traces), options or Options())


def _three(steps: int = 3) -> list[KinetoTrace]:
    """Rank 2 computes 6 ms where the others do 4, so that they wait 2 ms for it in each step."""
    return [rank_trace(compute, 7 - compute, steps=steps) for compute in _COMPUTE_MS]


def _section(trace: Trace) -> dict[str, Any]:
    section = ranks(Answers(trace))
    assert section is not None
    return section


def _blocks(section: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All blocks of a section, those within others too."""
    for block in section["blocks"]:
        yield block
        yield from _blocks(block) if "blocks" in block else ()


def _of(section: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return next(block for block in _blocks(section) if block["type"] == kind)


def _text(section: Mapping[str, Any]) -> str:
    return " ".join(block["text"] for block in _blocks(section) if block["type"] == "text")


# What is drawn


def test_the_heat_map_holds_every_rank_and_step(tmp_path: Path) -> None:
    drawn = _of(_section(_read(tmp_path, _three())), "heat_map")
    assert drawn["ranks"] == ["rank 0", "rank 1", "rank 2"]
    assert drawn["steps"] == ["step 0", "step 1", "step 2"]
    values = {measure["name"]: measure["values"] for measure in drawn["measures"]}
    assert values == {
        "Step": [20 * _MS] * 9,
        "Compute": [4 * _MS] * 6 + [6 * _MS] * 3,
        "Exposed communication": [3 * _MS] * 6 + [1 * _MS] * 3,
        "Waiting": [2 * _MS] * 6 + [0] * 3,
    }


def test_the_section_says_who_is_waited_for(tmp_path: Path) -> None:
    text = _text(_section(_read(tmp_path, _three())))
    assert "3 ranks, of which each is a run" in text
    assert "Rank 2 came last to 1 of 1 collectives: the others wait for it." in text
    assert "waiting for the last rank to come" in text


def test_of_a_mean_step_a_rank_comes_last_to_a_part(tmp_path: Path) -> None:
    traces = [rank_trace(4, 3, steps=3) for _ in range(6)]
    for trace, numbers in ((traces[0], (0,)), (traces[4], (1, 2))):
        calls = [event for event in trace.events if "AllReduce" in str(event["name"])]
        for number in numbers:
            calls[number]["dur"] = 2 * _MS
    text = _text(_section(_read(tmp_path, traces)))
    assert "Rank 4 came last to 66.7 % of all collectives" in text.replace("\u202f", " ")


def test_a_rank_that_is_slow_only_because_it_waits_is_not_blamed(tmp_path: Path) -> None:
    traces = [rank_trace(4, 3), rank_trace(4, 3), rank_trace(4, 9, length_ms=30)]
    text = _text(_section(_read(tmp_path, traces)))
    assert "Rank 2 is slowest" in text
    assert "though it waits for others for 6" in text


def test_there_is_no_section_of_one_rank_or_of_a_leveled_set(tmp_path: Path) -> None:
    assert ranks(Answers(_read(tmp_path, _three()[:1]))) is None
    assert ranks(Answers(profile())) is None


@pytest.mark.slow
def test_long_tables_are_folded_away(tmp_path: Path) -> None:
    short = _section(_read(tmp_path / "short", _three(1)))
    assert [block["type"] for block in short["blocks"]] == ["text", "beside", "table", "folded_away", "text"]
    many = _section(_read(tmp_path / "many", [rank_trace(4, 3, steps=1)] * 17))
    assert [block["type"] for block in many["blocks"]] == ["text", "beside", "folded_away", "folded_away", "text"]


@pytest.mark.slow
def test_clocks_are_told_with_whether_they_were_aligned(tmp_path: Path) -> None:
    traces = _three()
    traces[1] = _shifted(traces[1], 5_000)
    recorded = _text(_section(_read(tmp_path / "a", traces)))
    assert "Clocks of ranks differ: furthest off, rank 1 is" in recorded
    assert "Not corrected: --align-clocks" in recorded
    aligned = _section(_read(tmp_path / "b", traces, Options(align_clocks=True)))
    assert "Clocks were aligned: none differs from that of rank 0" in _text(aligned)
    entries = _of(aligned, "list")["items"]
    assert [entry["name"] for entry in entries] == ["rank 1", "rank 2"]
    assert "its times were moved by -5000 ns" in entries[0]["text"]


def _shifted(trace: KinetoTrace, by_ns: int) -> KinetoTrace:
    for event in trace.events:
        start = event["ts"]
        assert isinstance(start, int)
        event["ts"] = start + by_ns
    return trace


def test_bandwidth_is_a_line_an_operation_and_group(tmp_path: Path) -> None:
    drawn = _of(_section(_read(tmp_path, grouped_traces())), "bandwidth")
    lines = {line["name"]: [(p["bytes"], p["matched"]) for p in line["points"]] for line in drawn["series"]}
    assert lines == {
        "all_reduce tp [0, 1]": [(4000.0, True)],
        "all_reduce tp [2, 3]": [(4000.0, True)],
        "all_reduce dp [0, 2]": [(1600.0, True)],
        "all_reduce dp [1, 3]": [(1600.0, True)],
    }
    assert [mark["at"] for mark in drawn["sizes"]] == [1024, 2048, 4096]


def test_one_size_of_message_is_no_curve() -> None:
    row = {"operation": "all_reduce", "process_group": None, "bus_byte_per_s": 1e9, "message_bytes": 8.0, "count": 1}
    assert bandwidth(pl.DataFrame([row])) is None


def _cells(rank_count: int, step_count: int) -> pl.DataFrame:
    grid = pl.DataFrame({"rank": range(rank_count)}).join(pl.DataFrame({"step": range(step_count)}), how="cross")
    step = (100 + pl.when(pl.col("rank") == rank_count - 1).then(pl.col("step"))).fill_null(100).alias("step_ns")
    rest = (pl.lit(1, pl.Int64).alias(c) for c in ("compute_ns", "exposed_communication_ns", "wait_ns"))
    return grid.with_columns(step, *rest)


def test_of_many_steps_a_column_shows_the_longest_of_several() -> None:
    drawn = heat_map(_cells(10, 1_200))
    assert drawn is not None
    assert (len(drawn["ranks"]), len(drawn["steps"])) == (10, 600)
    assert drawn["steps"][1] == "steps 2 to 3"
    assert drawn["measures"][0]["values"][-600:-598] == [101, 103]
    assert "A column is 2 steps" in drawn["note"]


def test_of_many_ranks_those_are_drawn_that_are_furthest_from_the_median() -> None:
    drawn = heat_map(_cells(1_000, 4))
    assert drawn is not None
    assert (len(drawn["ranks"]), drawn["ranks"][-1]) == (128, "rank 999")
    assert "the 128 of 1\u202f000 ranks" in drawn["note"]


def test_ranks_stand_in_order_of_their_numbers() -> None:
    drawn = heat_map(_cells(12, 2).sort(pl.col("rank").cast(pl.String)))
    assert drawn is not None
    assert drawn["ranks"][:3] + drawn["ranks"][-2:] == ["rank 0", "rank 1", "rank 2", "rank 10", "rank 11"]


@pytest.mark.real
def test_eight_real_ranks_wait_for_the_seventh(real_dir: Path) -> None:
    # 4.700 of 4.742 ms of all_to_all; rank 7 is alone the shortest in 5 of the 8 collectives.
    section = _section(convert([real_dir / "kineto" / "dlrm_8rank.v100"], Options()))
    assert "Rank 7 came last to 5 of 8 collectives" in _text(section)
    waiting = {measure["name"]: measure["values"] for measure in _of(section, "heat_map")["measures"]}["Waiting"]
    assert waiting[:2] + waiting[-1:] == [5_581_000, 11_119_000, 1_529_000]
    assert len(_of(section, "bandwidth")["series"]) == 2


# In a browser

_NARROW, _TABLET, _WIDE = 390, 768, 1440


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    for rank, trace in enumerate(_three()):
        write_rank(folder / "ranks" / f"rank-{rank}", rank, trace)
    pages = {
        "report": render(_read(folder / "steps", _three())),
        "groups": render(_read(folder / "groups", grouped_traces())),
        "job": render_job(open_job(folder, "job")),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.browser
def test_arrows_go_from_cell_to_cell_and_read_them(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["report"]) as page:
        page.locator("#ranks .heat").focus()
        caption = page.locator("#ranks .heat-map .caption")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        assert caption.inner_text().startswith("rank 2, step 1: compute 6")  # steps are equal, compute is not
        page.locator("#ranks").get_by_role("button", name="Waiting").click()
        assert caption.inner_text().startswith("rank 2, step 1: waiting 0")
        page.locator("#ranks .heat").focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("End")
        assert caption.inner_text().startswith("rank 1, step 2: waiting 2")
        assert page.locator("#ranks .heat-at").get_attribute("data-value") == str(2 * _MS)


@pytest.mark.browser
def test_the_switch_says_what_is_shown_and_cells_say_what_they_are(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["report"]) as page:
        button = page.locator("#ranks").get_by_role("button", name="Compute", exact=True)
        button.click()
        pressed = page.locator("#ranks .heat-switches [aria-pressed=true]").all_inner_texts()
        assert pressed == ["Compute"]
        cell = page.locator('#ranks [data-row="2"][data-column="0"]')
        assert (cell.locator("title").text_content() or "").startswith("rank 2, step 0: compute 6")
        assert "over the median of ranks" in (cell.locator("title").text_content() or "")
        cell.hover()
        assert page.locator("#ranks .heat-map .caption").inner_text().startswith("rank 2, step 0: compute 6")
        faint = page.locator('#ranks [data-row="0"][data-column="0"] rect').get_attribute("fill-opacity")
        assert (float(faint or 0), cell.locator("rect").get_attribute("fill-opacity")) == (0.08, "1.000")


@pytest.mark.browser
def test_a_dot_of_bandwidth_is_read_by_keyboard(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["groups"]) as page:
        dot = page.locator("#ranks .rate").first
        dot.focus()
        label = dot.get_attribute("aria-label") or ""
        assert label.startswith("all_reduce tp [")
        assert page.locator("#ranks .bandwidth .caption").inner_text() == label


@pytest.mark.browser
@pytest.mark.parametrize("name", ["report", "groups", "job"])
@pytest.mark.parametrize("width", [_WIDE, _TABLET, _NARROW])
def test_ranks_fit_every_width_light_dark_and_printed(
    browser: Browser, files: dict[str, Path], name: str, width: int, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("XSP_SCREENSHOTS") or tmp_path)
    section = page_part = "#R01" if name == "job" else "#ranks"
    with opened(browser, files[name]) as page:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            _assert_fits(page, section)
            page.locator(page_part).screenshot(path=str(shots / f"ranks-{name}-{width}-{scheme}.png"))
        page.emulate_media(media="print")
        assert page.locator(f"{section} .heat svg").is_visible()
        assert page.locator(f"{section} .heat-switches").is_hidden()


def _assert_fits(page: Page, section: str) -> None:
    """Nothing but what scrolls by itself reaches beyond the section, and what one presses is large enough."""
    page.wait_for_function(  # charts are drawn anew once they have heard of the width
        """section => {
          const root = document.querySelector(section);
          const right = root.getBoundingClientRect().right + 1;
          return [...root.querySelectorAll("*")].every((e) => e.parentElement.closest(".scroll")
            || e.getBoundingClientRect().right <= right);
        }""",
        arg=section,
    )
    heights = page.evaluate(
        "section => [...document.querySelectorAll(`${section} .heat-switches button, ${section} .folded > summary`)]"
        ".map((e) => e.getBoundingClientRect().height)",
        section,
    )
    assert heights
    assert min(heights) >= 24


@pytest.mark.browser
def test_the_page_of_a_job_is_a_few_screens_high(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["job"]) as page:
        page.set_viewport_size({"width": _NARROW, "height": 900})
        assert page.evaluate("document.documentElement.scrollHeight") < 5 * 900
        page.locator("#R02 summary").first.click()
        assert page.locator("#R02 table").first.is_visible()
