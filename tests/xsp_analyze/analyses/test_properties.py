"""What holds for every trace: time is conserved, and order of rows, origin of time and repeated steps do not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.hand import Hand, total
from xsp_analyze.catalog import all_analyses, find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.needs import holds
from xsp_analyze.trace.step_view import StepView
from xsp_model import Attribution

if TYPE_CHECKING:
    from xsp_model import Trace

_OUTSIDE = [str(a) for a in Attribution if a is not Attribution.LAYER]
_LENGTH = 10_000


@dataclass(frozen=True)
class Work:
    """One device activity of a step."""

    name: str
    kind: str
    layer: int | None  # index of a layer, or None: attributed as `outside` says
    outside: str
    backward: bool
    launch: int
    delay: int
    duration: int
    device: int


_WORK = st.builds(
    Work,
    name=st.sampled_from(["gemm", "add", "ncclDevKernel_AllReduce", "ncclDevKernel_AllToAll", "fused_moe_kernel"]),
    kind=st.sampled_from(["kernel", "kernel", "memcpy", "memset", "graph"]),
    layer=st.one_of(st.none(), st.integers(0, 2)),
    outside=st.sampled_from(_OUTSIDE),
    backward=st.booleans(),
    launch=st.integers(0, _LENGTH - 100),
    delay=st.integers(0, 3000),
    duration=st.integers(0, 2000),
    device=st.integers(0, 1),
)
_STEP = st.lists(_WORK, max_size=8)


def build(steps: list[list[Work]], orphans: list[int], **options: Any) -> Trace:  # noqa: ANN401 (passed on)
    """Each step calls three layers, the last one in a container; `orphans` are durations of work in no step."""
    hand = Hand()
    hand.run(0, batch_size=4)
    for number, works in enumerate(steps):
        start = number * 2 * _LENGTH
        step = hand.step(number, start, _LENGTH)
        here: dict[str, Any] = {"step": number}
        first = hand.module("A_0", start, 3000, 0, parent_id=step, **here)
        outer = hand.module("B_0", start + 3000, 6000, 1, self_host=2000, parent_id=step, **here)
        inner = hand.module("B_0.A_1", start + 4000, 4000, 2, parent_id=outer, **here)
        layers = (first, outer, inner)
        for work in works:
            _launch(hand, work, start, layers, here)
    for duration in orphans:
        hand.work("late", len(steps) * 2 * _LENGTH, duration, attribution="orphan_no_launch")
    return hand.build(**options)


def _launch(hand: Hand, work: Work, start: int, layers: tuple[int, ...], here: dict[str, Any]) -> None:
    layer = None if work.layer is None else layers[work.layer]
    phase = "other" if layer is None else "backward" if work.backward else "forward"
    where = {"layer": layer} if layer is not None else {"attribution": work.outside}
    parent = layer if phase == "forward" else None
    launch = start + work.launch
    facts = {"kind": work.kind, "phase": phase, "device_id": work.device, **here, **where}
    hand.work(work.name, launch + work.delay, work.duration, launch=launch, parent=parent, **facts)


def tables(trace: Trace, steps: str | None) -> dict[str, pl.DataFrame]:
    view = StepView.of(trace, steps)
    applicable = [a for a in all_analyses() if a.id[0] in "AB" and all(holds(view.of_trace, need) for need in a.needs)]
    return {a.id: run(a, view).table for a in applicable}


@settings(max_examples=examples(40))
@given(st.lists(_STEP, min_size=1, max_size=6), st.lists(st.integers(0, 500), max_size=2))
def test_time_is_conserved(steps: list[list[Work]], orphans: list[int]) -> None:
    trace = build(steps, orphans)
    for choice, slack in (("all", 0.0), ("mean", 1e-6), ("each", 0.0), ("0", 0.0)):
        view = StepView.of(trace, choice)
        if not holds(view.of_trace, "kernel"):
            return
        everything = total(run(find("A10"), view).table["duration_ns"])
        lost = total(
            coverage.ledger(view).filter(pl.col("kind").str.contains("^orphan_|^model_only$|^unified_memory$"))[
                "duration_ns"
            ]
        )
        by_layer = total(run(find("A11"), view).table["kernel_duration_ns"])
        assert abs(by_layer + lost - everything) <= slack
        assert abs(total(run(find("A15"), view).table["kernel_duration_ns"]) - everything) <= slack
        assert abs(total(run(find("A08"), view).table["duration_ns"]) - everything) <= slack
        shares = run(find("B01"), view).table.filter(pl.col("share").is_not_null())
        assert everything == 0 or abs(total(shares["duration_ns"]) - everything) <= slack
        own = total(run(find("B06"), view).table["self_device_sum_ns"])
        assert abs(own - _of_modules(view)) <= slack
    given_ns = [work.duration for step in steps for work in step] + orphans
    assert total(StepView.of(trace, "all").once(kernel_executions)["duration_ns"]) == sum(given_ns)


def _of_modules(view: StepView) -> float:
    """In these traces the work of modules is the work of layers: nothing else is launched inside their calls."""
    return total(coverage.ledger(view).filter(pl.col("kind") == "layer")["duration_ns"])


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(
    st.lists(_STEP, min_size=1, max_size=4),
    st.sampled_from(["all", "mean", "each"]),
    st.integers(0, 100),
    st.integers(0, 10**15),
)
def test_order_of_rows_and_origin_of_time_do_not_matter(
    steps: list[list[Work]], choice: str, seed: int, shift: int
) -> None:
    plain = tables(build(steps, []), choice)
    moved = tables(build(steps, [], shuffle=seed, shift=shift), choice)
    assert plain.keys() == moved.keys()
    for identifier, table in plain.items():
        assert _near(table, moved[identifier]), identifier


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(_STEP.filter(bool), st.integers(1, 5))
def test_a_mean_of_equal_steps_is_each_of_them(step: list[Work], count: int) -> None:
    trace = build([step] * count, [])
    mean = tables(trace, "mean")
    each = tables(trace, "each")
    for identifier in ("A02", "A06", "A10", "A11", "A13", "A15", "B03", "B06"):
        for number in range(count):
            one = each[identifier].filter(pl.col("step") == number).drop("step")
            measures = [c for c in one.columns if c not in {"low_ns", "high_ns"}]
            assert _near(one.select(measures), mean[identifier].select(measures)), identifier


def _near(left: pl.DataFrame, right: pl.DataFrame) -> bool:
    """Whether the tables hold the same rows in the same order, numbers to rounding."""
    if left.columns != right.columns or left.height != right.height:
        return False
    return all(_near_column(left[name], right[name]) for name in left.columns)


def _near_column(left: pl.Series, right: pl.Series) -> bool:
    if left.dtype.is_numeric():
        slack = left.abs().cast(pl.Float64) * 1e-9 + 1e-6
        gap = (left.cast(pl.Float64) - right.cast(pl.Float64)).abs()
        return bool((left.is_null() == right.is_null()).all()) and bool((gap <= slack).fill_null(value=True).all())
    return left.to_list() == right.to_list()
