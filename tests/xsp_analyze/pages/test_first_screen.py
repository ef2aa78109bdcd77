"""What the first screen says: parts that add up to a step, tiles, doubts beside numbers, what is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from tests.helpers.profile_trace import profile
from tests.helpers.rank_traces import rank_trace, write_rank
from tests.helpers.report_trace import US, small_trace
from tests.helpers.serving_trace import serving_trace
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import all_analyses
from xsp_analyze.pages.blocks import TONES
from xsp_analyze.pages.report.attribution import split_sections
from xsp_analyze.pages.report.first_screen import first_screen
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import LedgerKind, TraceBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_TARGETS = {
    "next", "gain", "ledger", "model", "overhead", "serving", "timeline", "tree", "layers", "gpu", "types", "kernels",
    "rooflines", "devices", "modules", *(one.id for one in all_analyses()),
}  # fmt: skip


def _first(trace: Trace) -> dict[str, Any]:
    return first_screen(Answers(trace), _TARGETS)


def _tiles(first: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tile["id"]: tile for tile in first["tiles"]}


def _times(first: dict[str, Any]) -> dict[str, float]:
    return {part["label"]: part["time"] for part in first["bar"]["parts"]}


@pytest.fixture(name="small", scope="module")
def fixture_small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _first(small_trace(tmp_path_factory.mktemp("small")))


# The bar


@every(SOUND)
def test_the_parts_add_up_to_the_whole_on_every_fixture(case: FixtureCase) -> None:
    first = _first(trace_of(case))
    bar = first["bar"]
    assert all(tile["value"] not in ("", "-") and tile["note"] for tile in first["tiles"])
    assert first["line"]
    if bar is not None:
        assert sum(part["time"] for part in bar["parts"]) == pytest.approx(bar["total"], rel=1e-12)
        assert sum(part["share"] for part in bar["parts"]) == pytest.approx(1)
        assert all(part["time"] > 0 for part in bar["parts"])
        assert all(part["tone"].removeprefix("c-") in TONES or part["tone"].startswith("t-g") for part in bar["parts"])


def test_the_bar_is_the_mean_step_of_the_timeline(small: dict[str, Any]) -> None:
    # two steps of 1,000 us, in the first of which work of before it ran for 6.01 us; products of 3 x 13.333 and
    # 3 x 26.666 us, a hostile kernel of 20 and 40 us
    assert small["bar"]["total"] == (993_990 + 1_000_000) / 2
    times = _times(small)
    assert times["matrix product"] == (3 * 13_333 + 3 * 26_666) / 2
    assert times["elementwise"] == 30 * US
    assert sum(time for label, time in times.items() if label.startswith("idle")) == 996_995 - 89_998.5


@pytest.mark.slow
def test_of_several_devices_the_bar_is_of_the_busiest_and_says_so(tmp_path: Path) -> None:
    for rank, (compute, reduce) in enumerate([(5, 5), (12, 3)]):
        write_rank(tmp_path / f"rank{rank}", rank, rank_trace(compute, reduce))
    first = _first(convert([tmp_path / f"rank{rank}" for rank in range(2)], Options()))
    assert first["bar"]["title"].startswith("A step on device 0 of run 1, ")
    assert "Of 2 devices it is the one with most work" in first["bar"]["about"]
    assert _times(first)["communication, exposed"] == 3_000_000


def test_the_bar_of_a_profile_says_that_kernels_were_profiled() -> None:
    bar = _first(profile())["bar"]
    assert bar["title"] == "A step, 140\u202f\u00b5s, with kernels profiled (100\u202f\u00b5s without)"
    assert bar["total"] == 140_000


def test_of_the_host_alone_the_bar_is_of_types_of_layers(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(0, 0, 100 * US)
    kineto.module("Linear_0", 10 * US, 50 * US)
    kineto.operator("aten::linear", 12 * US, 40 * US)
    first = _first(convert([kineto.write(tmp_path / "host.json")], Options()))
    assert "no device work recorded" in first["line"]
    assert _times(first) == {"Linear": 50 * US, "outside of layers": 50 * US}


def test_sums_without_times_make_no_idle_time_up() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    spans = {
        "span_id": [0, 1], "run_id": [0, 0], "level": ["kernel", "kernel"], "kind": ["kernel", "kernel"],
        "name": ["sgemm", "softmax"], "start_ns": [0, 500], "duration_ns": [100, 300], "device_id": [0, 0],
        "attribution": ["model_only", "model_only"],
    }  # fmt: skip
    builder.add("spans", pl.DataFrame(spans))
    ledger = {
        "run_id": [0], "kind": [str(LedgerKind.NO_TIMESTAMPS)], "severity": ["info"], "count": [2],
        "detail": [LedgerKind.NO_TIMESTAMPS.sentence], "advice": [""],
    }  # fmt: skip
    builder.add("ledger", pl.DataFrame(ledger))
    first = _first(builder.build())
    assert _times(first) == {"softmax": 300, "matrix product": 100}
    assert "in sum" in first["bar"]["title"]
    assert "busy" not in _tiles(first)
    assert not any("recorded, no steps" in part for part in first["line"])


# Links


def test_each_part_leads_to_where_more_is_told(small: dict[str, Any]) -> None:
    links = {part["label"]: part["link"] for part in small["bar"]["parts"]}
    assert links["matrix product"] == "kernels?class=matrix+product"
    assert all(link and link.partition("?")[0] in _TARGETS for link in links.values())


def test_nothing_leads_to_what_the_page_does_not_have(tmp_path: Path) -> None:
    first = first_screen(Answers(small_trace(tmp_path)), {"kernels"})
    links = {part["link"] for part in first["bar"]["parts"]} | {tile["link"] for tile in first["tiles"]}
    assert {link.partition("?")[0] for link in links if link} == {"kernels"}


# The line and the tiles


def test_the_line_says_what_ran_and_how_long_a_step_took(small: dict[str, Any]) -> None:
    assert small["line"][0] == "Forward passes"
    assert small["line"][-1] == "997\u202f\u00b5s on the device, mean of 2 steps"


def test_a_median_is_called_one(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for step, length in enumerate((100, 120, 90)):
        kineto.step(step, step * 200 * US, length * US)
    line = _first(convert([kineto.write(tmp_path / "three.json")], Options()))["line"]
    assert line[-1] == "100\u202f\u00b5s on the host, median of 3 steps"


def test_tiles_draw_a_value_a_step(small: dict[str, Any]) -> None:
    tiles = _tiles(small)
    assert tiles["step"]["exact"] == "996\u202f995\u202fns"
    busy = tiles["busy"]["spark"]
    assert busy["values"] == pytest.approx([59_999 / 993_990, 119_998 / 1_000_000])
    assert busy["left_out"] == [False, False]
    assert not {"peak", "memory"} & set(tiles)  # nothing is known of them


def test_steps_of_ramp_up_are_marked(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for step in range(8):
        length = 900 if step == 0 else 100
        start = 0 if step == 0 else (900 + (step - 1) * 100)
        kineto.step(step, start * US, length * US)
    first = _first(convert([kineto.write(tmp_path / "ramp.json")], Options()))
    line = _tiles(first)["step"]["spark"]
    assert line["left_out"] == [True, *[False] * 7]
    assert line["values"] == [900 * US, *[100 * US] * 7]
    assert "1 step of ramp-up" in line["text"]


def test_many_steps_are_drawn_as_means_of_several(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for step in range(150):
        kineto.step(step, step * 100 * US, (100 - step % 3) * US)
    line = _tiles(_first(convert([kineto.write(tmp_path / "many.json")], Options())))["step"]["spark"]
    assert line["values"] == [99 * US] * 50
    assert "a mark is the mean of 3 steps" in line["text"]


def test_the_memory_of_a_step_is_the_most_that_was_held_in_it(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for step in range(2):
        kineto.step(step, step * 100 * US, 100 * US)
    held = ((10, 100), (50, 300), (90, 200), (150, 180))  # at 90 us 200 bytes are held, and so into the next step
    for (time_us, bytes_), (_, before) in zip(held, ((0, 0), *held), strict=False):
        kineto.memory(time_us * US, bytes_ - before, allocated=bytes_, reserved=400)
    tile = _tiles(_first(convert([kineto.write(tmp_path / "memory.json")], Options())))["memory"]
    assert tile["exact"] == "300\u202fbytes"
    assert tile["spark"]["values"] == [300, 200]
    assert tile["note"].startswith("Most allocated memory on device 0, ")
    assert "The allocator held 400" in tile["note"]


def test_a_server_has_its_throughput_in_tokens(tmp_path: Path) -> None:
    tile = _tiles(_first(serving_trace(tmp_path)))["throughput"]
    assert tile["value"].endswith("tokens/s")
    assert "steady state" in tile["note"]


# Doubts


def test_doubts_stand_beside_the_number_they_concern(small: dict[str, Any]) -> None:
    tiles = _tiles(small)
    assert any("no launch in the trace" in text for text in tiles["coverage"]["doubts"])
    assert any("2 steps" in text for text in tiles["step"]["doubts"])


def test_the_profiler_overhead_is_a_doubt_about_the_step() -> None:
    doubts = [text for tile in _first(profile())["tiles"] for text in tile["doubts"]]
    assert any("longer" in text or "40" in text for text in doubts)


# What is not here


def test_an_empty_section_is_told_in_one_line_with_how_to_get_it() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    answers = Answers(builder.build())
    empty = {"id": "kernels", "title": "Kernels", "blocks": [{"type": "missing", "text": "None here."}]}
    half = {"id": "layers", "title": "Layers", "blocks": [{"type": "missing", "text": "x"}, {"type": "text"}]}
    shown, missing = split_sections(answers, [empty, None, half])
    assert [one["id"] for one in shown] == ["layers"]
    assert missing[0]["why"] == "None here."
    assert missing[0]["how"].startswith("Record device work")
    assert {"overhead", "serving", "rooflines", "gain"} <= {one["id"] for one in missing}
