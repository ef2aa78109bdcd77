"""Figures of several traces: bars side by side, boxes of step times, scaling, parts under one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from tests.helpers.shaped_trace import shaped
from xsp.cli.commands.figure import Scales
from xsp_analyze.catalog import find
from xsp_analyze.figure import Over, draw_several
from xsp_analyze.figure.draw import blocks_of_several
from xsp_analyze.figure.panels import panel
from xsp_analyze.service import Answers
from xsp_model import XspError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

figure_module = pytest.importorskip("matplotlib.figure")


def _trace(steps: list[int], kernels: dict[str, int], *, batch_size: int | None = None, devices: int = 1) -> Answers:
    """Steps so long, one after another; in each the kernels, and on every device the same."""
    hand = Hand()
    hand.run(0, **({"batch_size": batch_size} if batch_size else {}))
    begin = 0
    for number, duration in enumerate(steps):
        hand.step(number, begin, duration)
        for device in range(devices):
            at = begin
            for name, time in kernels.items():
                hand.work(name, at, time, step=number, device_id=device)
                at += time
        begin += duration
    return Answers(hand.build())


@pytest.fixture(scope="module", name="two")
def fixture_two() -> dict[str, Answers]:
    return {
        "one": _trace([100, 100], {"alpha": 40, "only_one": 10}),
        "two": _trace([200, 300, 300], {"alpha": 80, "only_two": 20}),
    }


def _axes(block: dict[str, object], x: str) -> Axes:
    axes: Axes = figure_module.Figure().subplots()
    panel(axes, block, x)
    return axes


def test_bars_of_all_traces_stand_side_by_side_and_what_one_lacks_has_none(two: dict[str, Answers]) -> None:
    (block,) = blocks_of_several(two, find("A10"))
    assert block["type"] == "grouped"
    assert [series["name"] for series in block["series"]] == ["one", "two"]
    assert block["labels"] == ["alpha", "only_two", "only_one"]
    assert [series["values"] for series in block["series"]] == [[40.0, None, 10.0], [80.0, 20.0, None]]
    axes = _axes(block, "kernel_name")
    assert sorted(bar.get_width() for bar in axes.patches) == [10.0, 20.0, 40.0, 80.0]
    assert axes.get_xlabel() == f"duration ({block['unit']})"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]


def test_a_row_s_rank_is_by_the_most_in_any_trace_and_the_others_are_told() -> None:
    many = {f"kernel_{'abcdefghijklmnopqrstuvwxyz'[n]}": 1 + n for n in range(20)}
    block, note = blocks_of_several({"one": _trace([1_000], many), "two": _trace([1_000], many)}, find("A10"))
    assert len(block["labels"]) == 12
    assert block["labels"][0].startswith("t")
    assert note == {"type": "text", "text": "Drawn: the 12 of 20 with most."}


def test_step_times_are_boxes_with_all_their_steps(two: dict[str, Answers]) -> None:
    # A step lasts from the end of the device work before it to the end of its own: the second from 100 to 300.
    (block,) = blocks_of_several(two, find("A01"))
    assert (block["type"], block["labels"]) == ("boxes", ["one", "two"])
    assert [sorted(box) for box in block["boxes"]] == [[100, 100], [200, 200, 300]]
    axes = _axes(block, "batch_size")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one (2)", "two (3)"]
    assert axes.get_xlim()[0] == 0


def test_latency_and_throughput_over_batch_sizes() -> None:
    traces = {f"b{size}": _trace([100 * size], {"gemm": 10}, batch_size=size) for size in (8, 1, 2)}
    latency, throughput = blocks_of_several(traces, find("A01"), Over.BATCH_SIZE)
    assert latency["points"] == [[1, 100.0], [2, 200.0], [8, 800.0]]
    assert (latency["x"], latency["title"], throughput["title"]) == ("batch size", "latency", "throughput")
    assert [value for _, value in throughput["points"]] == pytest.approx([1e7, 1e7, 1e7])


def test_latency_over_numbers_of_devices() -> None:
    traces = {f"d{count}": _trace([1_000 // count], {"gemm": 10}, devices=count) for count in (4, 1, 2)}
    (latency,) = blocks_of_several(traces, find("A01"), Over.DEVICES)
    assert latency["points"] == [[1, 1000.0], [2, 500.0], [4, 250.0]]
    assert [tick.get_text() for tick in _axes(latency, "batch_size").get_xticklabels()] == ["1", "2", "4"]


def test_what_cannot_be_drawn_is_one_sentence(two: dict[str, Answers]) -> None:
    with pytest.raises(XspError, match="batch size of one, two is unknown"):
        blocks_of_several(two, find("A01"), Over.BATCH_SIZE)
    with pytest.raises(XspError, match="all traces have the same devices, 1"):
        blocks_of_several(two, find("A01"), Over.DEVICES)
    with pytest.raises(XspError, match=r"is not drawn over devices\. A01 is"):
        blocks_of_several(two, find("A10"), Over.DEVICES)
    for identity in ("A13", "B06", "A08"):
        with pytest.raises(XspError, match="has no figure of several traces"):
            blocks_of_several(two, find(identity))


def test_parts_of_devices_stand_under_one_another(two: dict[str, Answers]) -> None:
    block = blocks_of_several(two, find("B03"))[0]
    assert block["type"] == "stack"
    assert block["labels"] == ["one: run 0, device 0", "two: run 0, device 0"]
    assert {len(series["values"]) for series in block["series"]} == {2}


@pytest.mark.parametrize("identity", ["A01", "A10", "B03", "B23"])
def test_the_same_traces_give_the_same_file(identity: str) -> None:
    traces = {"old": Answers(shaped()), "new": Answers(shaped(peak=2e12, bandwidth=2e11, name="Other"))}
    first, second = (draw_several(traces, find(identity), "svg").content for _ in range(2))
    assert first == second
    assert first.startswith(b"<?xml")


def test_the_command_takes_what_there_is_to_scale_over() -> None:
    assert [str(one) for one in Scales] == [str(one) for one in Over]
