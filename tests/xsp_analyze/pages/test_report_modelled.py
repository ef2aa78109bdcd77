"""What a report says of work that no counter measured: how far operators are from their roofs, by their shapes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.helpers.counted_layer import mixed
from tests.helpers.shaped_trace import shaped
from xsp_analyze.pages.report.page import render
from xsp_analyze.pages.report.roofline import roofline_blocks


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


@pytest.fixture(name="data", scope="module")
def fixture_data() -> dict[str, Any]:
    return _data(render(shaped()))


@pytest.fixture(name="unnamed", scope="module")
def fixture_unnamed() -> dict[str, Any]:
    return _data(render(shaped(peak=None, bandwidth=None, name=None)))


def _section(data: dict[str, Any], identity: str) -> dict[str, Any]:
    return next(s for s in data["sections"] if s["id"] == identity)


def _texts(data: dict[str, Any], identity: str) -> list[str]:
    return [b["text"] for b in _section(data, identity)["blocks"] if b["type"] == "text"]


def _figures(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for b in _section(data, "rooflines")["blocks"] if b["type"] == "roofline"]


def _column(data: dict[str, Any], key: str) -> list[Any]:
    (table,) = (b for b in _section(data, "gain")["blocks"] if b["type"] == "table")
    index = [c["key"] for c in table["columns"]].index(key)
    values = table["values"][index]
    return [values["words"][at] for at in values["at"]] if isinstance(values, dict) else list(values)


def test_operators_are_the_points_where_nothing_was_measured(data: dict[str, Any]) -> None:
    operators, layers = _figures(data)
    assert operators["title"] == "Operators under the roof (modelled work)"
    assert layers["title"] == "Layers under the roof (modelled work)"
    assert operators["basis"] == "modelled"
    assert operators["roofs"] == [{"precision": 0, "peak": 1e12, "bandwidth": 1e11}]
    product, relu = operators["points"]
    assert product["name"] == "aten::mm of 100x200, 200x300 in fp32"
    assert product["label"] == "mm 100x200, 200x300"
    # 24 Mflop over 880,000 bytes, in 48 us; at 1 TFLOP/s 24 us
    assert (product["x"], product["y"]) == pytest.approx((24e6 / 880e3, 24e6 / 48e-6))
    assert (product["bound"], product["share"], product["gain"]) == ("compute", 0.5, 24_000)
    assert (product["time"], product["part"]) == (48_000, 0.75)
    assert product["roof"] == "fp32 peak of Card (its data sheet)"
    # no products: 50,000 comparisons over 400,000 bytes, in 16 us; at 100 GB/s 4 us
    assert (relu["x"], relu["y"]) == pytest.approx((0.125, 50e3 / 16e-6))
    assert (relu["bound"], relu["roof"]) == ("memory", "DRAM bandwidth of Card (its data sheet)")
    assert relu["share"] == pytest.approx(0.25)


def test_a_figure_of_modelled_work_says_what_it_is_of_and_whose_roofs_are_drawn(data: dict[str, Any]) -> None:
    assert "No counter measured this" in _section(data, "rooflines")["means"]
    covered, model, roofs = _texts(data, "rooflines")
    assert covered == "The work of 94.1\u202f% of device time is modelled; not that of my::op (5.88\u202f%)."
    assert model.startswith(
        "The model in fp32: 18.8\u202fmodelled flop/byte, so the roof over it is the fp32 peak of Card"
    )
    assert roofs == ("The roofs of Card (its data sheet): fp32 peak 1.00\u202fTFLOP/s, DRAM bandwidth 100\u202fGB/s.")


def test_the_work_list_has_most_to_gain_first(data: dict[str, Any]) -> None:
    assert [s["id"] for s in data["sections"]][:4] == ["next", "what-if", "gain", "ledger"]
    assert _column(data, "operator") == ["aten::mm", "aten::relu"]
    assert _column(data, "gain_ns") == [24_000, 12_000]
    assert _column(data, "roof_share") == pytest.approx([0.5, 0.25])
    assert _column(data, "layers") == ["Linear_0", "ReLU_0"]
    # 48 + 16 us, of which 24 + 4 at the roof; my::op has none
    first = (
        "64.0\u202fµs of device time would be 28.0\u202fµs at the roof, 43.8\u202f% of it:"
        " 36.0\u202fµs to gain at most."
    )
    assert _texts(data, "gain")[0] == first


def test_the_head_and_the_key_numbers_say_how_far_from_the_peak(data: dict[str, Any]) -> None:
    (sentence,) = (line for line in data["short"] if line.startswith("Operators run at"))
    assert sentence == (
        "Operators run at 43.8\u202f% of what their shapes allow on this device (modelled for 94.1\u202f% of device"
        " time), MFU is at least"
        " 24.0\u202f%: 36.0\u202fµs of device time to gain at most, most at"
        " aten::mm of 100x200, 200x300 in fp32 (24.0\u202fµs)."
    )
    (block,) = (b for b in _section(data, "model")["blocks"] if b["type"] == "facts")
    numbers = {item["label"]: item for item in block["items"]}
    assert numbers["MFU"]["value"] == "24.0\u202f%"  # 24 Mflop at 1 TFLOP/s, of a step of 100 us
    assert numbers["Work"]["value"] == "24.0\u202fMFLOP"
    assert "not measured" in numbers["Work"]["note"]
    assert "Arithmetic intensity" not in numbers


def test_types_of_layers_say_what_part_of_the_peak_they_use(data: dict[str, Any]) -> None:
    (sentence,) = _texts(data, "types")
    assert "those with most flop first: Linear 50.0\u202f%." in sentence  # 24 us at the peak, of 48


def test_of_an_unnamed_device_there_are_points_and_how_to_name_it(unnamed: dict[str, Any]) -> None:
    operators = _figures(unnamed)[0]
    assert (len(operators["points"]), operators["roofs"]) == (2, [])
    assert "gain" not in [s["id"] for s in unnamed["sections"]]
    assert any(text.startswith("No roof is drawn") and "--gpu NAME" in text for text in _texts(unnamed, "rooflines"))
    assert any(line.startswith("How far operators are") and "--gpu NAME" in line for line in unnamed["short"])


def test_of_a_named_device_without_known_peaks_its_rates_are_asked_for_not_its_name() -> None:
    named = _data(render(shaped(peak=None, bandwidth=None)))
    (line,) = (line for line in named["short"] if line.startswith("How far operators are"))
    assert line.endswith("as peak rates of Card are not known: give them with --device FILE.toml.")


def test_what_counters_measured_is_called_neither_modelled_nor_at_the_roof_of_operators() -> None:
    data = _data(render(mixed().build()))
    assert [b["title"] for b in _figures(data)] == ["Layers under the roof", "Kernels under the roof"]
    assert "modelled" not in json.dumps([b["points"] for b in _figures(data)])
    assert "gain" not in [s["id"] for s in data["sections"]]


def test_what_holds_next_to_no_time_is_left_out_of_the_figure_and_said() -> None:
    rows = [_row(1_000_000), *(_row(10_000) for _ in range(20)), _row(300), _row(300)]
    block, note = roofline_blocks("Operators", rows, [], "device_sum_ns", [])
    assert len(block["points"]) == 21  # 600 ns of 1,200,600 are less than a thousandth
    assert note["text"] == "Only the 21 longest of 23 are drawn."


def _row(time_ns: int) -> dict[str, Any]:
    row = {"precision": "fp32", "arithmetic_intensity": 1.0, "flop_per_s": 1.0, "work_basis": "modelled"}
    return {**row, "device_sum_ns": time_ns, "bound": None, "roof_share": None, "roof": "unknown"}
