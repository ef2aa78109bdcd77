"""Comparisons of real captures: across devices, against totals that another program counted, and across vendors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from xsp_analyze.compare.comparison import Comparison, compare
from xsp_analyze.compare.facts import DifferenceKind
from xsp_analyze.compare.kernel_changes import ChangeKind
from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.pages.compare.sections import sections
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real


def _trace(real: Path, name: str, layer_source: str = "auto") -> Trace:
    return convert([real / "kineto" / f"{name}.json.gz"], Options(layer_source=layer_source))


@pytest.fixture(name="pair", scope="module")
def fixture_pair(real_dir: Path) -> tuple[Trace, Trace]:
    """A training job before (A100) and after (V100, compiled, its graphs replayed).

    Its ranges hold 91.0 % of the work before and less than 90 % after: the layers are operators on both sides.
    """
    return _trace(real_dir, "diff_control", "operator"), _trace(real_dir, "diff_test", "operator")


@pytest.fixture(name="steps", scope="module")
def fixture_steps(pair: tuple[Trace, Trace]) -> Comparison:
    return compare([StepView.of(pair[0])], [StepView.of(pair[1])])


def test_whole_traces_have_the_kernel_counts_and_times_of_the_reference(
    pair: tuple[Trace, Trace], real_dir: Path
) -> None:
    comparison = compare(*([StepView.of(trace, steps="all")] for trace in pair))
    expected = [
        json.loads((real_dir / "reference" / "kineto" / f"diff_{side}.json").read_text())["kernels_by_name"]
        for side in ("control", "test")
    ]
    checked = [0, 0]
    for row in comparison.level("kernel"):
        names = row.name, row.after_name or row.name
        values = (row.before_count, row.before_ns), (row.after_count, row.after_ns)
        for side, (name, (count, ns)) in enumerate(zip(names, values, strict=True)):
            if count is not None and name in expected[side]:
                reference = expected[side][name]
                assert (count, ns) == (reference["count"], reference["duration_ns"])
                checked[side] += 1
    assert checked == [len(kernels) for kernels in expected]


def test_the_pair_says_what_differs_before_any_number(steps: Comparison) -> None:
    differing = {d.what: (d.before, d.after, d.kind) for d in steps.differences}
    assert differing["device"] == ("NVIDIA A100-PG509-200", "Tesla V100-SXM2-16GB", DifferenceKind.SYSTEM)
    assert differing["ranks in the job"] == ("8", "2", DifferenceKind.SYSTEM)


def test_three_quarters_of_the_pair_s_operators_find_their_partner(steps: Comparison) -> None:
    # The longest common subsequence, by a table of all 1,325 x 1,062 lengths, is 1,032 long.
    assert steps.layer_match == pytest.approx(1032 / 1325)


def test_what_explains_the_pair_is_the_compiled_part_and_adds_up(steps: Comparison) -> None:
    falls = steps.waterfall
    assert falls is not None
    assert (falls.before_ns, falls.after_ns) == (77_075_250, 117_022_750)
    assert sum(part.difference_ns for part in falls.parts) == falls.difference_ns == 39_947_500
    assert [part.name for part in falls.parts[:3]] == [
        "graph replay, backward",
        "graph replay, forward",
        "CompiledFunction",
    ]
    assert {part.before_ns for part in falls.parts[:3]} == {None}


def test_the_pair_s_steps_took_half_as_long_again_and_that_is_not_noise(steps: Comparison) -> None:
    """By hand: 75.7 76.8 76.3 76.7 78.5 81.2 ms before, 118.1 117.1 114.8 123.1 116.7 116.1 ms after."""
    latency = steps.latency
    assert latency.conclusion is Conclusion.CHANGED
    assert latency.ratio == pytest.approx(1.52, abs=0.01)
    assert latency.low is not None
    assert latency.low > 1.3
    assert latency.rank_p_value == latency.rank_min_p == pytest.approx(2 / 924)
    assert any("every step after took longer than every one before" in note for note in sections(steps)[0].notes)


def test_products_of_the_pair_moved_into_graph_replays_and_are_not_faster(steps: Comparison) -> None:
    """By hand: matrix products take 13.8 ms of a step before and 34.8 ms after, of which 30.7 ms are replayed.

    (Kernels with gemm in their name but fbgemm's own, split-K reductions, matrix by vector, cuBLASLt's epilogues.)
    """
    products = {
        row.name: row for row in steps.level("operator") if row.name in {"aten::mm", "aten::addmm", "aten::bmm"}
    }
    assert {name: row.change for name, row in products.items()} == {
        "aten::mm": "moved",
        "aten::addmm": "moved",
        "aten::bmm": "vanished",
    }
    assert {name: row.moved_to for name, row in products.items()} == dict.fromkeys(products, ("graph replay",))
    (moved,) = (one for one in steps.moves if one.kernel_class == "matrix product")
    assert moved.before_ns == pytest.approx(13.8e6, rel=0.02)
    assert moved.after_ns == pytest.approx(34.8e6, rel=0.02)
    assert {name for name, _ in moved.losses} >= set(products)
    name, gained = moved.gains[0]
    assert name == "graph replay"
    assert gained == pytest.approx(30.7e6, rel=0.02)
    row = next(row for row in steps.level("kernel_class") if row.name == "matrix product")
    assert row.conclusion is Conclusion.CHANGED
    assert row.ratio == pytest.approx(34.8 / 13.8, rel=0.02)


def test_the_slower_table_lookup_is_found_by_its_interval(steps: Comparison) -> None:
    name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    row = next(r for r in steps.level("operator") if r.name == name)
    assert row.significant
    assert row.low is not None
    assert row.low > 1.6
    assert any(c.kind is ChangeKind.RENAMED and "split_embedding_codegen_forward" in c.before[0] for c in steps.changes)


def test_bert_s_layers_align_across_vendors_and_kernels_do_not(real_dir: Path) -> None:
    comparison = compare(*([StepView.of(_trace(real_dir, f"bert_small.{device}"))] for device in ("h100", "mi300x")))
    assert comparison.comparable
    assert comparison.layer_match == 1.0
    assert comparison.kernel_match == pytest.approx(1 / 60)
    assert [(d.what, d.before, d.after) for d in comparison.differences] == [
        ("device", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X VF")
    ]
    assert comparison.tested == 0  # a step each
    replaced = next(c for c in comparison.changes if c.after == ("attn_fwd",))
    assert (replaced.kind, replaced.count) == (ChangeKind.REPLACED, 4)
    assert "flash_fwd_kernel" in replaced.before[0]
    assert {row.layer_type for row in comparison.level("layer")[:4]} == {"BertSdpaSelfAttention"}
