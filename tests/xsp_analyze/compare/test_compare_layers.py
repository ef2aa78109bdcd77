"""Which layer is which, across numbering, batch sizes and frameworks; and comparisons without device work."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.helpers.hand import Hand
from tests.helpers.profile_trace import profile
from tests.helpers.run_sets import merged
from xsp_analyze.compare import levels
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.side import family, pair_layers
from xsp_analyze.frames.kernels.kernel_means import chosen_activities, kernel_executions
from xsp_analyze.frames.layers.layer_time import layer_latencies
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.merge.matching import align
from xsp_analyze.trace.step_view import StepView


def _layers(*rows: tuple[str, str, str | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["layer_name", "layer_type", "shapes"], orient="row")


def _net(*types: str, shape: str | None = "[[8, 4]]") -> pl.DataFrame:
    """Layers as a profiler numbers them: by type, in order."""
    counts: dict[str, int] = {}
    rows = []
    for kind in types:
        rows.append((f"{kind}_{counts.get(kind, 0)}", kind, shape))
        counts[kind] = counts.get(kind, 0) + 1
    return _layers(*rows)


def test_equal_layers_pair_by_all_that_is_known() -> None:
    one = _net("Linear", "ReLU", "Linear")
    paired = pair_layers(one, one)
    assert (paired.rows, paired.rate, paired.by) == ([(0, 0), (1, 1), (2, 2)], 1.0, "name, type and shapes")


def test_a_layer_put_in_between_moves_the_numbers_and_not_the_partners() -> None:
    before = _net("Linear", "ReLU", "Linear", "Linear")
    after = _net("Linear", "Linear", "ReLU", "Linear", "Linear")
    paired = pair_layers(before, after)
    assert [pair for pair in paired.rows if None not in pair] == [(0, 0), (1, 2), (2, 3), (3, 4)]
    assert paired.rate == pytest.approx(4 / 5)


def test_another_batch_size_pairs_without_shapes() -> None:
    paired = pair_layers(_net("Linear", "ReLU"), _net("Linear", "ReLU", shape="[[16, 4]]"))
    assert (paired.rate, paired.by) == (1.0, "name and type")


def test_other_frameworks_pair_by_family() -> None:
    torch = _net("Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d", "Linear", shape=None)
    keras = _layers(("conv1", "Conv2D", None), ("bn1", "BatchNormalization", None), ("act", "Activation", None),
                    ("pool", "MaxPooling2D", None), ("fc", "Dense", None))  # fmt: skip
    assert pair_layers(torch, keras).rate == 0.0
    paired = pair_layers(torch, keras, same_framework=False)
    assert (paired.rate, paired.by) == (1.0, "family of layers, in order")


_FIXTURES = Path(__file__).parents[3] / "fixtures"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten::convolution", "Conv2D"),
        ("Linear", "aten::addmm"),
        ("LayerNorm", "layer_normalization"),
        ("GELU", "Tanh"),
    ],
)
def test_families_hold_what_frameworks_call_differently(one: str, other: str) -> None:
    assert family(one) == family(other)


def test_a_normalisation_of_layers_is_none_of_batches() -> None:
    assert len({family(kind) for kind in ("LayerNorm", "BatchNorm2d", "Conv2d", "MaxPool2d", "Linear")}) == 5


def test_sides_without_layers_have_no_match_rate() -> None:
    assert pair_layers(_net(), _net("Linear")).rate is None


def test_sequences_that_differ_much_are_aligned_exactly_all_the_same() -> None:
    # 300 of a, then 300 that only one has, interleaved: more edits than are followed one by one.
    first = [x for i in range(300) for x in (f"a{i}", f"only first {i}")]
    second = [x for i in range(300) for x in (f"only second {i}", f"a{i}")]
    alignment = align(first, second)
    assert len(alignment.pairs) == 300
    assert all(first[i] == second[j] for i, j in alignment.pairs)
    assert all(i < k and j < m for (i, j), (k, m) in zip(alignment.pairs, alignment.pairs[1:], strict=False))


def test_long_sequences_that_differ_much_are_aligned_window_by_window() -> None:
    first = [x for i in range(6_000) for x in (f"a{i}", f"only first {i}")]
    second = [x for i in range(6_000) for x in (f"only second {i}", f"a{i}")]
    alignment = align(first, second)
    assert len(alignment.pairs) > 5_900
    assert all(first[i] == second[j] for i, j in alignment.pairs)


def _on_the_host(slow_ns: int) -> StepView:
    """Four steps of two layers, each with an operator; no device."""
    hand = Hand()
    hand.run(0, batch_size=1, model="net", framework="pytorch 2.11.0")
    for step in range(4):
        start = step * 100_000
        step_id = hand.step(step, start, 60_000 + slow_ns)
        for index, (name, length) in enumerate((("Linear_0", 20_000), ("ReLU_0", 10_000 + slow_ns))):
            begin = start + index * 25_000
            layer = hand.module(f"Net_0.{name}", begin, length, index, step=step, parent_id=step_id)
            hand.span("operator", "operator", f"aten::{name[:4].lower()}", begin + 1_000, length - 2_000, step=step,
                      parent_id=layer, layer_id=layer)  # fmt: skip
    return StepView.of(hand.build())


def test_without_device_work_host_time_is_compared_and_adds_up() -> None:
    comparison = compare([_on_the_host(0)], [_on_the_host(5_000)])
    assert comparison.operator_basis == "host"
    assert comparison.kernel_match is None
    assert {row.name: row.difference_ns for row in comparison.rows if row.level != "layer_type"} == {
        "Linear_0": 0.0,
        "ReLU_0": 5_000.0,
        "aten::line": 0.0,
        "aten::relu": 5_000.0,
    }
    falls = comparison.waterfall
    assert falls is not None
    assert [(p.name, p.difference_ns, p.kernel) for p in falls.parts] == [
        ("ReLU_0", 5_000, "aten::relu"),
        ("Linear_0", 0, falls.parts[1].kernel),
        ("outside of layers", 0, None),
    ]
    assert (falls.before_ns, falls.difference_ns) == (60_000, 5_000)


def test_a_profile_of_leveled_runs_takes_each_number_from_its_own_run() -> None:
    view = StepView.of(profile())
    comparison = compare([view], [view])
    assert comparison.latency.before_ns == view.once(latency_of_model)["latency_ns"][0]
    assert [row.before_ns for row in comparison.level("layer")] == view.once(layer_latencies)["latency_ns"].to_list()
    device = comparison.model[1]
    assert device.before_ns == pytest.approx(view.once(kernel_executions)["duration_ns"].sum())
    assert {row.ratio for row in comparison.rows} == {1.0}


def test_operators_of_a_profile_merged_of_several_runs_have_their_own_names() -> None:
    """The innermost operator is found among the spans of all runs, and rows are those of one of them."""
    view = StepView.of(merged(_FIXTURES / "run_set" / "convnet_v100_synthetic"))
    measured = levels.operators(view)
    spans = view.trace.frame("spans")
    names = dict(zip(spans["span_id"], spans["name"].cast(pl.String), strict=True))
    operators = set(spans.filter(pl.col("level").cast(pl.String) == "operator")["span_id"])
    parents = dict(zip(spans["span_id"], spans["parent_id"], strict=True))
    launched = set()
    for span in view.once(chosen_activities)["span_id"]:
        at = span
        while at is not None and at not in operators:
            at = parents[at]
        if at is not None:
            launched.add(names[at])
    assert set(measured.keys) == launched
