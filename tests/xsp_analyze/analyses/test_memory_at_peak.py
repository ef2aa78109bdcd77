"""B32 to B34: memory over time, whose it is at the peak, and the blocks it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from xsp_model import Trace

_TRAINING = Path(__file__).parents[3] / "fixtures" / "torch_profiler" / "training_memory_cpu"

_KINDS = ("weights", "optimizer_state", "gradients", "activations", "inputs", "workspace", "other", "unknown", "before")


def _ask(identifier: str, trace: Trace) -> pl.DataFrame:
    return run(find(identifier), StepView.of(trace)).table


def _events(*events: tuple[int, int, int | None, int | None], **columns: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Of (time, bytes, address, owner) rows of `allocations`."""
    keys = ("time_ns", "bytes", "address", "owner_id")
    return [
        {
            "run_id": 0,
            "sequence": number,
            "process_id": 1,
            "device_id": 0,
            **dict(zip(keys, event, strict=True)),
            **columns,
        }
        for number, event in enumerate(events)
    ]


def _training() -> Hand:
    """One step from 100 on: forward to 200, backward to 300, optimizer to 400; 1,000 bytes are there before it."""
    hand = Hand()
    hand.run(0)
    hand.step(0, 100, 300)
    linear = hand.module("Net_0.Linear_0", 110, 50, 0, parent_id=0, step=0)
    forward = {"step": 0, "phase": "forward", "layer_id": linear}
    outer = hand.span("operator", "operator", "aten::linear", 115, 40, parent_id=linear, **forward)
    inner = hand.span("operator", "operator", "aten::empty", 120, 2, parent_id=outer, **forward)
    backward = {"step": 0, "phase": "backward", "layer_id": linear}
    back = hand.span("operator", "operator", "AddmmBackward0", 210, 60, parent_id=0, **backward)
    optimizer = {"step": 0, "phase": "optimizer"}
    stepping = hand.span("model", "range", "Optimizer.step", 300, 90, parent_id=0, **optimizer)
    square = hand.span("operator", "operator", "aten::sqrt", 310, 5, parent_id=stepping, **optimizer)
    load = hand.span("operator", "operator", "aten::to", 102, 3, parent_id=0, step=0, phase="other")
    totals: list[dict[str, Any]] = []
    in_use = 1_000
    for number, (time, size, address, owner) in enumerate(
        (
            (10, 400, 1, None),  # before the first step, and stays: weights
            (103, 8, 2, load),  # input: other
            (121, 64, 3, inner),  # kept for the backward: activation
            (122, 32, 4, inner),  # gone within aten::linear: workspace
            (150, -32, 4, outer),
            (215, 200, 5, back),  # gradient
            (260, -64, 3, back),
            (312, 16, 6, square),  # outlives its operator, not the optimizer: workspace
            (314, 128, 7, square),  # stays: optimizer state
            (350, -16, 6, stepping),
            (395, -200, 5, None),
            (396, -300, 9, None),  # was there before the recording
        )
    ):
        in_use += size
        totals += _events((time, size, address, owner), sequence=number, allocated_bytes=in_use, reserved_bytes=2_048)
    hand.extra["allocations"] = totals
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "memory_bytes": 4_096})
    return hand


def test_each_kind_is_told_by_when_and_where_it_was_allocated_and_freed() -> None:
    # In use over time: 1400, 1408, 1472, 1504, 1472, 1672, 1608, 1624, 1752 (the peak), 1736, 1536, 1236.
    table = _ask("B33", _training().build())
    kinds = {row["owner"]: row["bytes"] for row in table.filter(pl.col("grouping") == "kind").to_dicts()}
    assert kinds == {
        "from before the recording": 1_000,
        "weights": 400,
        "gradients": 200,
        "optimizer state": 128,
        "workspace": 16,
        "other": 8,
    }
    peak = table.row(0, named=True)
    assert (peak["total_bytes"], peak["peak_time_ns"]) == (1_752, 314)


def test_owners_by_phase_and_layer_are_all_of_the_peak_and_reserved_memory_is_divided() -> None:
    table = _ask("B33", _training().build())
    rows = {(row["grouping"], row["owner"]): (row["bytes"], row["total_bytes"]) for row in table.to_dicts()}
    assert rows["phase", "optimizer"] == (144, 1_752)
    assert rows["phase", "backward"] == (200, 1_752)
    assert rows["phase", None] == (400, 1_752)
    assert rows["layer_name", "Linear_0"] == (200, 1_752)
    assert rows["reserved", "reserved and free"] == (296, 2_048)
    assert rows["device", "not reserved"] == (2_048, 4_096)


def test_the_curve_says_of_what_it_is_made_at_every_moment() -> None:
    table = _ask("B32", _training().build())
    assert table["allocated_bytes"].to_list() == [
        *(1_400, 1_408, 1_472, 1_504, 1_472, 1_672, 1_608, 1_624, 1_752, 1_736, 1_536, 1_236)
    ]
    at_122 = table.filter(pl.col("time_ns") == 122).row(0, named=True)
    assert {name: at_122[f"{name}_bytes"] for name in _KINDS if at_122[f"{name}_bytes"]} == {
        "weights": 400,
        "activations": 64,
        "workspace": 32,
        "other": 8,
        "before": 1_000,
    }
    last = table.row(-1, named=True)
    assert (last["before_bytes"], last["basis"]) == (700, "recorded")


def test_blocks_at_the_peak_name_operator_layer_and_lifetime() -> None:
    table = _ask("B34", _training().build())
    gradient = table.filter(pl.col("kind") == "gradients").row(0, named=True)
    assert (gradient["operator"], gradient["layer_name"], gradient["phase"]) == (
        "AddmmBackward0",
        "Linear_0",
        "backward",
    )
    assert (gradient["start_ns"], gradient["end_ns"]) == (215, 395)
    last = table.row(-1, named=True)
    assert (last["bytes"], last["kind"], last["start_ns"]) == (1_000, "from before the recording", None)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_the_order_of_rows_owners_and_blocks_add_up_to_the_curve(seed: int) -> None:
    trace = _training().build(shuffle=seed)
    peak = _ask("B32", trace)["allocated_bytes"].max()
    owners, blocks = _ask("B33", trace), _ask("B34", trace)
    sums = owners.filter(pl.col("total_bytes") == peak).group_by("grouping").agg(pl.col("bytes").sum())
    assert set(sums["grouping"]) == {"kind", "phase", "layer_type", "layer_name"}
    assert sums["bytes"].unique().to_list() == [peak]
    assert blocks["bytes"].sum() == peak
    assert (
        _ask("B32", trace).select(f"{name}_bytes" for name in _KINDS).sum_horizontal()
        == _ask("B32", trace)["allocated_bytes"]
    ).all()


def test_without_addresses_nothing_is_told_but_how_much() -> None:
    # Nobody counted what is in use: at least the 30 that were freed first were.
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 100)
    hand.extra["allocations"] = _events((10, -30, None, None), (20, 50, None, None))
    trace = hand.build()
    assert _ask("B32", trace).select("allocated_bytes", "unknown_bytes", "basis").rows() == [
        (0, 0, "summed"),
        (50, 50, "summed"),
    ]
    assert _ask("B33", trace).select("grouping", "owner", "bytes").rows() == [("kind", "unknown", 50)]


def test_an_inference_trace_that_starts_late_guesses_no_weights() -> None:
    hand = Hand()
    hand.run(0)
    hand.step(0, 100, 100)
    layer = hand.module("Linear_0", 110, 50, 0, parent_id=0, step=0)
    columns = {"step": 0, "phase": "forward", "layer_id": layer}
    operator = hand.span("operator", "operator", "aten::linear", 115, 40, parent_id=layer, **columns)
    first, second = _events((120, 64, 3, operator), (180, -64, 3, None))
    hand.extra["allocations"] = [first | {"allocated_bytes": 9_064}, second | {"allocated_bytes": 9_000}]
    kinds = _ask("B33", hand.build()).filter(pl.col("grouping") == "kind")
    assert kinds.select("owner", "bytes").rows() == [("from before the recording", 9_000), ("activations", 64)]


def _kinds_of(file: str) -> dict[str, int]:
    trace = convert([_TRAINING / file], Options())
    rows = _ask("B33", trace).filter(pl.col("grouping") == "kind")
    return dict(rows.select("owner", "bytes").iter_rows())


def test_kinds_are_those_of_torch_but_for_inputs_which_it_knows_as_such() -> None:
    # Linear(64, 32) and Linear(32, 8) in fp32: 2,344 parameters; Adam keeps two of each and four counts of steps.
    ours, theirs = _kinds_of("trace.json.gz"), _kinds_of("timeline.raw.json.gz")
    assert ours["weights"] == theirs["weights"] == 2_344 * 4
    assert ours["optimizer state"] == theirs["optimizer state"] == 2 * 2_344 * 4 + 4 * 4
    assert ours["gradients"] == theirs["gradients"]
    assert sum(ours.values()) == sum(theirs.values()) == 356_888
    # Inputs are x, of 512 x 64 numbers; a number of 4 bytes each it counts as an activation, and we do not.
    assert (theirs["inputs"], ours["other"]) == (512 * 64 * 4, 512 * 64 * 4 + 4)
    assert theirs["activations"] - ours["activations"] == 4


def test_more_moments_than_a_thousand_are_those_at_which_most_is_in_use() -> None:
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 10_000)
    pairs = [
        (time, size, 1, None) for time in range(0, 6_000, 2) for size, time in ((time + 1, time), (-time - 1, time + 1))
    ]
    hand.extra["allocations"] = _events(*pairs)
    table = _ask("B32", hand.build())
    assert table.height <= 1_000
    assert table["allocated_bytes"].max() == 5_999
