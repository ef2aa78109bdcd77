"""The section on memory: what it says, what it draws, and how one reads it, in a real browser too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.hand import Hand
from xsp_analyze.pages.report.memory import memory
from xsp_analyze.pages.report.page import render
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIXTURES = Path(__file__).parents[3] / "fixtures"
_TRAINING = _FIXTURES / "torch_profiler" / "transformer_train_cpu" / "trace.json.gz"
_HOSTILE = "<img src=x onerror=alert(1)>"


def _blocks(answers: Answers, kind: str) -> list[dict[str, Any]]:
    section = memory(answers)
    assert section is not None
    return [block for block in section["blocks"] if block["type"] == kind]


def _inference() -> Hand:
    """64 bytes of an operator's output on a device with 200 in all, of which 100 were in use before; 150 reserved."""
    hand = Hand()
    hand.run(0)
    hand.step(0, 100, 100)
    layer = hand.module("Linear_0", 110, 50, 0, parent_id=0, step=0)
    columns = {"step": 0, "phase": "forward", "layer_id": layer}
    operator = hand.span("operator", "operator", _HOSTILE, 115, 40, parent_id=layer, **columns)
    shared = {"run_id": 0, "process_id": 1, "device_id": 0, "address": 7, "reserved_bytes": 150}
    hand.extra["allocations"] = [
        {**shared, "sequence": 0, "time_ns": 120, "bytes": 64, "owner_id": operator, "allocated_bytes": 164},
        {**shared, "sequence": 1, "time_ns": 180, "bytes": -64, "owner_id": None, "allocated_bytes": 100},
    ]
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "memory_bytes": 200})
    return hand


def test_the_curve_is_stacked_by_kind_with_steps_and_what_the_device_has() -> None:
    answers = Answers(_inference().build())
    (curve,) = _blocks(answers, "memory")
    assert (curve["time"], curve["allocated"], curve["reserved"]) == ([120, 180], [164, 100], [150, 150])
    assert [(kind["name"], kind["values"]) for kind in curve["kinds"]] == [
        ("from before the recording", [100, 100]),
        ("activations", [64, 0]),
    ]
    assert (curve["peak"], curve["limit"], curve["steps"]) == (0, 200, [(0, 100, 200)])


def test_what_is_from_before_the_recording_is_told_and_not_guessed() -> None:
    text = _blocks(Answers(_inference().build()), "text")[0]["text"]
    assert "61.0\u202f% of it is from before the recording" in text
    assert "in step 0" in text


def test_bars_of_each_grouping_are_all_of_the_peak() -> None:
    answers = Answers(convert([_TRAINING], Options()))
    titles = {}
    for block in _blocks(answers, "bars"):
        titles[block["title"]] = sum(block["series"][0]["values"])
    assert titles == dict.fromkeys(
        (f"Memory at the peak by {what}" for what in ("type of layer", "layer", "phase")), 1_066_252
    )
    (stack,) = _blocks(answers, "stack")
    assert sum(series["values"][0] for series in stack["series"]) == 1_066_252


def test_samples_alone_give_a_curve_without_owners() -> None:
    hand = Hand()
    hand.run(0)
    hand.module("Linear_0", 0, 100, 0)
    shared = {"run_id": 0, "counter": "allocated_bytes", "device_id": 0, "unit": "byte"}
    hand.extra["counters"] = [{**shared, "time_ns": 0, "value": 5.0}, {**shared, "time_ns": 9, "value": 8.0}]
    hand.extra["counters"] += [{**shared, "time_ns": 5, "value": 2.0**63}]  # no size of anything
    answers = Answers(hand.build())
    (curve,) = _blocks(answers, "memory")
    assert (curve["allocated"], curve["kinds"], curve["peak"]) == ([5, 8], [], 1)
    assert not _blocks(answers, "table")


def test_a_trace_that_says_nothing_of_memory_has_no_such_section() -> None:
    hand = Hand()
    hand.run(0)
    hand.module("Linear_0", 0, 100, 0)
    assert memory(Answers(hand.build())) is None


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("memory")
    pages = {"training": render(convert([_TRAINING], Options())), "inference": render(_inference().build())}
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(name="page")
def fixture_page(browser: Browser, files: dict[str, Path]) -> Iterator[Page]:
    with opened(browser, files["training"]) as page:
        yield page


@pytest.mark.browser
def test_one_reads_any_moment_by_slider_and_comes_back_to_the_peak(page: Page) -> None:
    caption = page.locator("#memory .memory-caption")
    assert caption.get_attribute("data-bytes") == "1066252"
    slider = page.locator("#memory .memory-moment")
    slider.focus()
    page.keyboard.press("Home")
    first = caption.get_attribute("data-bytes")
    assert first != "1066252"
    page.keyboard.press("ArrowRight")
    assert caption.get_attribute("data-bytes") != first
    assert slider.get_attribute("aria-valuetext") == caption.inner_text()
    page.get_by_role("button", name="At the peak", exact=True).click()
    assert caption.get_attribute("data-bytes") == "1066252"


@pytest.mark.browser
def test_the_pointer_reads_the_moment_under_it_and_the_peak_stays_marked(page: Page) -> None:
    hit = page.locator("#memory .memory svg .hit")
    hit.scroll_into_view_if_needed()
    box = hit.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    assert page.locator("#memory .memory-caption").get_attribute("data-bytes") != "1066252"
    assert page.locator("#memory .memory-peak").count() == 1


@pytest.mark.browser
def test_zooming_in_shows_a_part_of_the_curve_and_keeps_the_moment(page: Page) -> None:
    before = page.locator("#memory .memory-cursor").get_attribute("x1")
    page.locator("#memory .memory figure button", has_text="+").click()
    assert page.locator("#memory .memory-cursor").get_attribute("x1") != before
    assert page.locator("#memory .memory-caption").get_attribute("data-bytes") == "1066252"


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_and_names_are_only_text(browser: Browser, files: dict[str, Path], width: int) -> None:
    with opened(browser, files["inference"]) as page:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.querySelector('#memory .memory').scrollWidth") <= width
        assert page.evaluate("document.querySelector('.memory-moment').getBoundingClientRect().height") >= 24
        assert page.locator("#memory img").count() == 0
        assert page.locator("#memory .memory-limit").count() == 1
