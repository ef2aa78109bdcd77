"""B28 on models worked out on paper, and what holds for every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.decoder_trace import decoder
from tests.helpers.examples import examples
from tests.helpers.hand import Hand, total
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.layers.repeated_blocks import block_name, pattern, repeated_blocks
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace


def rows_of(trace: Trace) -> list[dict[str, object]]:
    return run(find("B28"), StepView.of(trace)).table.rows(named=True)


def test_each_position_of_a_block_is_a_row() -> None:
    attention, first, second = rows_of(decoder())
    assert [row["block"] for row in (attention, first, second)] == ["Decoder_{0..3}"] * 3
    assert [row["position_name"] for row in (attention, first, second)] == ["Attention", "Linear#1", "Linear#2"]
    assert attention["repetition_count"] == attention["call_count"] == 4
    # 70, 75, 80, 200: median 77.5, distances to it 7.5, 2.5, 2.5, 122.5, of which the median is 5.
    assert (attention["latency_ns"], attention["kernel_duration_ns"]) == (425, 425)
    assert (attention["median_ns"], attention["min_ns"], attention["max_ns"]) == (77.5, 70.0, 200.0)
    assert (attention["outlier"], attention["outlier_excess"]) == ("Attention_3", pytest.approx(122.5 / 77.5))
    assert (first["latency_ns"], first["median_ns"], first["outlier"]) == (40, 10.0, None)
    # 20, 21, 22, 23: the last is 1.5 above the median, which the median distance of 1 does not make an outlier.
    assert (second["latency_ns"], second["max_ns"], second["outlier"]) == (86, 23.0, None)


def test_other_names_and_other_siblings_change_nothing() -> None:
    names = {"block", "outlier"}

    def numbers(trace: Trace) -> list[dict[str, object]]:
        return [{key: value for key, value in row.items() if key not in names} for row in rows_of(trace)]

    plain = numbers(decoder())
    assert numbers(decoder(names="renamed {}")) == plain
    assert numbers(decoder(head_first=True)) == plain
    assert rows_of(decoder(shift=10**9)) == rows_of(decoder())


def of_names(names: Sequence[str], shapes: Sequence[str] = ()) -> pl.DataFrame:
    """The blocks of layers side by side, with types from their names and these shapes."""
    hand = Hand()
    hand.run(0)
    for at, name in enumerate(names):
        hand.module(name, at * 100, 50, at)
        kind, shape = name.split("#")[0], shapes[at] if shapes else None
        hand.rows["layers"][-1] |= {"layer_name": name, "path": name, "layer_type": kind, "shapes": shape}
    return repeated_blocks(StepView.of(hand.build()).of_trace)


def test_flat_layers_repeat_by_type_and_shape() -> None:
    names = ["stem", *(f"{kind}#{i}" for i in range(3) for kind in ("conv", "norm", "relu")), "fc"]
    members = of_names(names)
    assert members["layer_name"].to_list() == names[1:-1]
    assert members["repetition"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert members["block"].unique().to_list() == ["conv#{0..2} to relu#{0..2}"]
    other = ["null", *["[[8]]"] * 6, *["[[4]]"] * 3, "null"]  # the third is of another shape: two of three are none
    assert of_names(names, shapes=other).is_empty()


def test_a_first_block_that_differs_is_left_out() -> None:
    # A residual stage: the first block has a convolution more, and two of four layers are equal.
    names = ["a#0", "b#0", "down", "c#0", "d#0", *(f"{k}#{i}" for i in (1, 2) for k in "abcd")]
    members = of_names(names)
    assert members["layer_name"].to_list() == names[5:]
    assert members["repetition"].n_unique() == 2


def test_types_that_are_numbered_names_are_equal() -> None:
    """Ranges have no type but their name: `block.3.attn` is what `block.4.attn` is, `conv1x1` is not `conv3x3`."""
    ranges = [f"block.{i}.{part}" for i in range(3) for part in ("attn", "mlp")]
    members = of_names(ranges)
    assert members["layer_name"].to_list() == ranges
    assert members["block"].unique().to_list() == ["block.{0..2}"]
    assert members["position_name"].to_list() == ["attn", "mlp"] * 3
    assert members["position_type"].unique(maintain_order=True).to_list() == ["block.{0..2}.attn", "block.{0..2}.mlp"]
    assert of_names([f"{name}#{i}" for i in range(4) for name in (f"conv{i}x{i}", "norm")]).is_empty()


def test_modules_by_their_path_as_serving_engines_name_them() -> None:
    """`model.layers.3.self_attn.qkv_proj` in `model.layers.3`, as vLLM's ranges are."""
    hand = Hand()
    hand.run(0)
    model = hand.module("model", 0, 10_000, self_host=0)
    for number in range(3):
        name, start = f"model.layers.{number}", number * 1000
        layer = hand.module(f"model>{name}", start, 900, self_host=0, parent_id=model)
        hand.rows["layers"][-1] |= {"layer_name": name, "path": f"model>{name}", "layer_type": "LlamaDecoderLayer"}
        for at, (part, kind) in enumerate((("self_attn.qkv_proj", "QKVParallelLinear"), ("mlp", "LlamaMLP"))):
            hand.module(f"{name}>{part}", start + at * 100, 90, number * 2 + at, parent_id=layer)
            path = f"model>{name}>{name}.{part}"
            hand.rows["layers"][-1] |= {"layer_name": f"{name}.{part}", "path": path, "layer_type": kind}
    members = repeated_blocks(StepView.of(hand.build()).of_trace)
    assert members["block"].unique().to_list() == ["model.layers.{0..2}"]
    assert members["position_name"].to_list() == ["self_attn.qkv_proj", "mlp"] * 3


def test_processes_side_by_side_are_no_sequence() -> None:
    """Two ranks in one file whose layers take turns: each has its own block."""
    hand = Hand()
    hand.run(0)
    for at in range(12):
        rank, number = at % 2, at // 2
        name = f"{'ab'[number % 2]}#{at}"
        hand.module(name, at * 100, 50, at, process_id=rank)
        hand.rows["layers"][-1]["layer_type"] = name[0]
    members = repeated_blocks(StepView.of(hand.build()).of_trace)
    assert members.filter(pl.col("block_index") == 0)["layer_index"].to_list() == [0, 2, 4, 6, 8, 10]
    assert members["block_index"].n_unique() == 2


def test_two_of_what_holds_blocks_are_these_blocks() -> None:
    """Encoder and decoder alike, each of three equal layers: two blocks of three, not one of two."""
    hand = Hand()
    hand.run(0)
    index = 0
    for stack in range(2):
        outer = hand.module(f"Stack_{stack}", stack * 1000, 900, self_host=0)
        for number in range(3):
            at = stack * 1000 + number * 200
            block = hand.module(f"Stack_{stack}.Block_{stack * 3 + number}", at, 150, self_host=0, parent_id=outer)
            for kind in ("Linear", "Norm"):
                hand.module(f"Stack_{stack}.Block_{stack * 3 + number}.{kind}_{index}", at, 50, index, parent_id=block)
                at, index = at + 60, index + 1
    members = repeated_blocks(StepView.of(hand.build()).of_trace)
    assert members.group_by("block", maintain_order=True).agg(pl.col("repetition").n_unique()).rows() == [
        ("Block_{0..2}", 3),
        ("Block_{3..5}", 3),
    ]


def test_a_layer_called_in_every_repetition_stands_outside() -> None:
    hand = Hand()
    hand.run(0)
    for number in range(3):
        block = hand.module(f"Block_{number}", number * 1000, 900, self_host=0)
        for at, (name, index) in enumerate((("Linear", 2 * number), ("Norm", 2 * number + 1))):
            path = f"Block_{number}.{name}_{number}"
            hand.module(path, number * 1000 + at * 200, 100, index + 10, parent_id=block)
        hand.module(f"Block_{number}.GELU_0", number * 1000 + 500, 100, 0, parent_id=block)
    members = repeated_blocks(StepView.of(hand.build()).of_trace)
    assert members["position_name"].unique(maintain_order=True).to_list() == ["Linear", "Norm"]
    assert members.height == 6


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.layers.0", "model.layers.1", "model.layers.10"], "model.layers.{0..10}"),
        (["h.3.mlp", "h.3.mlp"], "h.3.mlp"),
        (["attention", "mlp"], "*"),
        (["encoder/a", "encoder/b"], "encoder/*"),
        (["x1", "x" + "9" * 30], "x*"),
    ],
)
def test_pattern_of_names(names: list[str], expected: str) -> None:
    assert pattern(names) == expected


def test_block_of_several_layers_is_called_by_their_scope() -> None:
    assert block_name([["net/layer_0/a", "net/layer_0/b"], ["net/layer_1/a", "net/layer_1/b"]]) == "net/layer_{0..1}"
    assert block_name([["a#1", "b#1"], ["a#2", "b#2"]]) == "a#{1..2} to b#{1..2}"


_STEPS = st.lists(st.lists(st.integers(1, 500), min_size=9, max_size=9), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(steps=_STEPS, choice=st.sampled_from(["all", "each", "mean", "0"]))
def test_blocks_and_what_is_outside_are_all_layers(steps: list[list[int]], choice: str) -> None:
    """To the nanosecond, whatever the steps: sums over B28 and layers in no block are the totals of A02 and A11."""
    hand = Hand()
    hand.run(0, serialised=False)
    for number, durations in enumerate(steps):
        start = number * 20_000
        step = hand.step(number, start, 19_000)
        for at, duration in enumerate(durations):
            name = "Stem_0" if not at else f"{'AB'[at % 2]}_{at}"
            call = hand.module(name, start + at * 1000, 100, at, parent_id=step, step=number)
            begin = start + at * 1000
            hand.work(
                "k", begin + 50, duration, launch=begin + 1, parent=call, layer=call, phase="forward", step=number
            )
    frames = StepView.of(hand.build(), choice)
    folded, layers, device = (run(find(identity), frames).table for identity in ("B28", "A02", "A11"))
    members = frames.of_trace.once(repeated_blocks)
    assert members.height == 8
    outside = pl.col("layer_name").is_in(members["layer_name"].cast(pl.String).implode()).not_()
    for table, column in ((layers, "latency_ns"), (device, "kernel_duration_ns"), (layers, "call_count")):
        parts = total(folded[column]) + total(table.filter(outside)[column])
        assert parts == (total(table[column]) if choice != "mean" else pytest.approx(total(table[column])))


@pytest.mark.real
def test_bert_as_worked_out_from_the_file(real_dir: Path) -> None:
    """Medians and largest, by a script of its own over the file: launches within each module, their kernels."""
    rows = rows_of(convert([real_dir / "kineto" / "bert_small.h100.json.gz"], Options()))
    assert {(row["block"], row["repetition_count"]) for row in rows} == {("BertLayer_{0..3}", 4)}
    assert len(rows) == 14
    linear = [(row["latency_ns"], row["median_ns"], row["max_ns"]) for row in rows if row["layer_type"] == "Linear"]
    assert linear == [
        (23360, 5824.0, 5920.0),
        (23007, 5744.0, 5792.0),
        (23135, 5775.0, 5952.0),
        (23136, 5792.0, 5888.0),
        (24511, 6095.5, 6336.0),
        (33089, 8224.5, 8480.0),
    ]
    assert [row["outlier"] for row in rows if row["outlier"]] == ["BertSdpaSelfAttention_0"]


@pytest.mark.real
def test_t5_as_worked_out_from_the_file(real_dir: Path) -> None:
    """The first of 24 blocks has a bias for positions of its own. Of the others by a script, as for BERT."""
    rows = rows_of(convert([real_dir / "kineto" / "graph_pairs" / "xdit_flux.mi300.replay.json.gz"], Options()))
    norms = [row for row in rows if row["block"] == "T5Block_{1..23}" and row["layer_type"] == "T5LayerNorm"]
    described = ("repetition_count", "latency_ns", "kernel_duration_ns", "median_ns", "max_ns", "outlier")
    assert [tuple(row[key] for key in described) for row in norms] == [
        (23, 1179288, 1165267, 50755.0, 55922.0, "T5LayerNorm_8"),
        (23, 2160990, 1161711, 94420.0, 106838.0, "T5LayerNorm_33"),
    ]


@pytest.mark.real
def test_stages_of_resnet50_are_folded_but_for_their_first_block(real_dir: Path) -> None:
    """3, 4, 6 and 3 bottlenecks, the first of each with a convolution for the shortcut (He et al. 2015, table 1)."""
    trace = convert([real_dir / "kineto" / "resnet50_train_torch19.v100.json.gz"], Options())
    blocks = pl.DataFrame(rows_of(trace), infer_schema_length=None).filter(
        pl.col("block").str.starts_with("aten::conv2d")
    )
    counts = blocks.group_by("block_index", maintain_order=True).agg(pl.col("repetition_count").first(), pl.len())
    assert counts["repetition_count"].to_list() == [2, 3, 5, 2]
    assert counts["len"].unique().to_list() == [13]  # three convolutions, counters and norms, four activations and sums
