"""Replayed graphs get the layers of the launches they were captured from, where it is certain which those are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.graph_pairs import (
    COPY,
    FILL,
    Piece,
    add_capture,
    add_eager,
    add_replay,
    captured,
    paired,
    replayed,
    replayed_layers,
)
from tests.helpers.linked import ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

GRAPH = (Piece("gemm", "Linear_0", "aten::mm"), Piece("relu", "ReLU_0", "aten::relu"))


def _kernels(pieces: Sequence[Piece]) -> list[str]:
    return [piece.kernel for piece in pieces]


def _layers(trace: Trace) -> list[str | None]:
    return [layer for _, layer in replayed_layers(trace)]


def _device_time(trace: Trace) -> dict[str, int]:
    work = trace.frame("spans").filter(pl.col("attribution").is_not_null())
    sums = work.group_by(pl.col("attribution").cast(pl.String)).agg(pl.col("duration_ns").sum())
    return dict(sums.rows())


def test_each_replay_of_a_graph_has_the_layers_of_its_capture(tmp_path: Path) -> None:
    trace = paired(replayed([["gemm", "relu"]] * 3), [captured([GRAPH])], tmp_path)
    assert replayed_layers(trace) == [("gemm", "Linear_0"), ("relu", "ReLU_0")] * 3
    assert ledger_counts(trace) == {}
    assert _device_time(trace) == {"layer": 9_000}


def test_a_capture_file_adds_no_step_and_no_device_work(tmp_path: Path) -> None:
    capture = captured([GRAPH])
    add_eager(capture, GRAPH, 80_000_000)
    capture.step(3, 0, 90_000_000)
    trace = paired(replayed([["gemm", "relu"]]), [capture], tmp_path)
    runs = trace.frame("runs").select("run_id", pl.col("role").cast(pl.String)).rows()
    assert runs == [(0, None), (1, "graph_capture")]
    of_capture = trace.frame("spans").filter(pl.col("run_id") == 1)
    assert of_capture.filter(pl.col("step").is_not_null() | (pl.col("level") == "kernel")).is_empty()
    assert of_capture["name"].cast(pl.String).to_list().count("aten::mm") == 1  # not that of the eager step


def test_the_operator_and_the_launch_of_a_replayed_kernel_are_known(tmp_path: Path) -> None:
    trace = paired(replayed([["gemm", "relu"]]), [captured([GRAPH])], tmp_path)
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    nodes = trace.frame("kernels").sort("span_id")["captured_in_id"]
    launches = spans.filter(pl.col("span_id").is_in(nodes.implode()))
    assert launches["name"].to_list() == ["hipModuleLaunchKernel"] * 2
    assert spans["name"].gather(launches["parent_id"]).to_list() == ["aten::mm", "aten::relu"]
    bases = trace.frame("attributions").select(pl.col("basis").cast(pl.String), "weight").rows()
    assert bases == [("graph_capture", 1.0)] * 2


def test_copies_and_memsets_pair_by_kind(tmp_path: Path) -> None:
    pieces = (Piece(COPY, "A_0"), Piece("k", "B_0"), Piece(FILL, "C_0"))
    trace = paired(replayed([_kernels(pieces)]), [captured([pieces])], tmp_path)
    assert _layers(trace) == ["A_0", "B_0", "C_0"]


def test_rocm_runs_copies_and_memsets_of_a_graph_as_kernels(tmp_path: Path) -> None:
    pieces = (Piece(COPY, "A_0"), Piece("k", "B_0"), Piece(FILL, "C_0"))
    kernels = ["__amd_rocclr_copyBuffer", "k", "__amd_rocclr_fillBufferAligned"]
    assert _layers(paired(replayed([kernels]), [captured([pieces])], tmp_path)) == ["A_0", "B_0", "C_0"]


def test_a_copy_where_a_memset_was_captured_is_another_graph(tmp_path: Path) -> None:
    trace = paired(replayed([[COPY, "k"]]), [captured([(Piece(FILL, "A_0"), Piece("k", "B_0"))])], tmp_path)
    assert _layers(trace) == [None, None]
    assert ledger_counts(trace) == {"graph_not_captured": 1}


WRONG = {
    "another model": [Piece("conv"), Piece("pool")],
    "one launch missing in the middle": [Piece("a", "A_0"), Piece("c", "C_0")],
    "one launch more": [Piece("a", "A_0"), Piece("b", "B_0"), Piece("b", "B_0"), Piece("c", "C_0")],
    "two launches swapped": [Piece("b", "B_0"), Piece("a", "A_0"), Piece("c", "C_0")],
    "the first missing": [Piece("b", "B_0"), Piece("c", "C_0")],
    "the last missing, of few": [Piece("a", "A_0"), Piece("b", "B_0")],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_exactly_the_replays_of_a_wrong_capture_are_left_open(wrong: str, tmp_path: Path) -> None:
    replays = replayed([["a", "b", "c"], ["gemm", "relu"], ["a", "b", "c"]])
    trace = paired(replays, [captured([WRONG[wrong], GRAPH])], tmp_path)
    assert _layers(trace) == [None] * 3 + ["Linear_0", "ReLU_0"] + [None] * 3
    assert _device_time(trace) == {"graph_replay": 12_000, "layer": 3_000}
    row = trace.frame("ledger").filter(pl.col("kind") == "graph_not_captured").row(0, named=True)
    assert (row["count"], row["duration_ns"]) == (2, 12_000)
    assert "of 3 replays, against 2 captured graphs" in row["detail"]


@pytest.mark.parametrize(("count", "accepted"), [(8, False), (9, True), (20, True)])
def test_a_lost_last_kernel_is_accepted_of_graphs_of_nine_launches_and_more(
    count: int,
    accepted: bool,  # noqa: FBT001 (a parameter of the test)
    tmp_path: Path,
) -> None:
    pieces = [Piece(f"k{n}", f"Layer_{n}") for n in range(count)]
    trace = paired(replayed([_kernels(pieces)[:-1]]), [captured([pieces])], tmp_path)
    assert _layers(trace) == ([f"Layer_{n}" for n in range(count - 1)] if accepted else [None] * (count - 1))
    assert ledger_counts(trace) == {"graph_nodes_not_recorded" if accepted else "graph_not_captured": 1}


def test_a_graph_that_a_replay_equals_goes_before_one_whose_last_kernel_was_lost(tmp_path: Path) -> None:
    longer = [Piece(f"k{n}", f"Longer_{n}") for n in range(10)]
    equal = [Piece(f"k{n}", f"Equal_{n}") for n in range(9)]
    trace = paired(replayed([_kernels(equal)]), [captured([longer, equal])], tmp_path)
    assert _layers(trace) == [f"Equal_{n}" for n in range(9)]


def test_a_lost_first_or_middle_kernel_is_never_accepted(tmp_path: Path) -> None:
    pieces = [Piece(f"k{n}", f"Layer_{n}") for n in range(20)]
    names = _kernels(pieces)
    trace = paired(replayed([names[1:], names[:10] + names[11:], names[:-2]]), [captured([pieces])], tmp_path)
    assert set(_layers(trace)) == {None}
    assert ledger_counts(trace) == {"graph_not_captured": 3}


def test_equal_pieces_are_told_apart_by_the_order_of_a_model(tmp_path: Path) -> None:
    graphs = [[Piece("head", "Embed_0")], *([Piece("k", f"Block_{n}")] for n in range(3)), [Piece("tail", "Norm_0")]]
    replays = [["head"], ["k"], ["k"], ["k"], ["tail"]] * 2
    trace = paired(replayed(replays), [captured(graphs)], tmp_path)
    assert _layers(trace) == ["Embed_0", "Block_0", "Block_1", "Block_2", "Norm_0"] * 2


def test_a_window_may_begin_in_the_middle_of_a_round(tmp_path: Path) -> None:
    graphs = [[Piece("head", "Embed_0")], *([Piece("k", f"Block_{n}")] for n in range(3))]
    trace = paired(replayed([["k"], ["k"], ["head"], ["k"]]), [captured(graphs)], tmp_path)
    assert _layers(trace) == ["Block_1", "Block_2", "Embed_0", "Block_0"]


def test_pieces_that_order_leaves_open_are_refused(tmp_path: Path) -> None:
    graphs = [[Piece("k", f"Block_{n}")] for n in range(3)]
    trace = paired(replayed([["k"]] * 3), [captured(graphs)], tmp_path)
    assert _layers(trace) == [None] * 3
    assert ledger_counts(trace) == {"graph_captures_alike": 3}
    assert _device_time(trace) == {"graph_replay": 3_000}


def test_a_round_with_a_piece_left_out_is_refused(tmp_path: Path) -> None:
    graphs = [[Piece("head", "Embed_0")], *([Piece("k", f"Block_{n}")] for n in range(3))]
    replays = [["head"], ["k"], ["k"], ["k"], ["head"], ["k"], ["k"]]
    complete = paired(replayed(replays), [captured(graphs)], tmp_path)
    assert _layers(complete) == ["Embed_0", "Block_0", "Block_1", "Block_2", "Embed_0", "Block_0", "Block_1"]
    del replays[2]
    short = paired(replayed(replays), [captured(graphs)], tmp_path)
    assert _layers(short) == ["Embed_0", None, None, "Embed_0", None, None]


def test_graphs_that_say_the_same_of_their_work_are_as_good_as_one(tmp_path: Path) -> None:
    trace = paired(replayed([["gemm", "relu"]] * 2), [captured([GRAPH, GRAPH])], tmp_path)
    assert _layers(trace) == ["Linear_0", "ReLU_0"] * 2
    assert ledger_counts(trace) == {}


BATCHES = [[Piece("k", f"Net_{size}", shapes=((size, 4),))] for size in (8, 16, 32)]
VLLM = ("capture_8_FULL", "capture_16_FULL", "capture_32_FULL")


def _step(tokens: int, padded: int | None = None) -> str:
    if padded is None:
        return f"execute_context_0(0)_generation_{tokens}({tokens})"
    return f"execute_{padded}_context_0(sq0sk0sqsq0sqsk0)_generation_{tokens}(sq{tokens}sk9sqsq9sqsk9)"


@pytest.mark.parametrize(
    ("step", "layer"),
    [
        (_step(8), "Net_8"),
        (_step(9), "Net_16"),
        (_step(1), "Net_8"),
        (_step(32), "Net_32"),
        (_step(33), None),
        (_step(3, padded=16), "Net_16"),
        (_step(3, padded=24), None),
    ],
)
def test_the_batch_of_the_step_says_which_graph(step: str, layer: str | None, tmp_path: Path) -> None:
    replays = replayed([["k"]], annotations=[step])
    trace = paired(replays, [captured(BATCHES, annotations=VLLM)], tmp_path)
    assert _layers(trace) == [layer]


def test_a_file_or_folder_named_after_a_batch_says_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for pieces, size in zip(BATCHES, (8, 16, 32), strict=True):
        captured([pieces]).write(folder / f"bs_{size}_rank0.json")
    replay = replayed([["k"], ["k"]], annotations=["step[DECODE bs=32]", "step[DECODE bs=12]"])
    files = [replay.write(tmp_path / "replay.json")]
    assert _layers(convert(files, Options(graph_captures=[folder]))) == ["Net_32", "Net_16"]
    each = [folder / f"bs_{size}_rank0.json" for size in (8, 16, 32)]
    assert _layers(convert(files, Options(graph_captures=each))) == ["Net_32", "Net_16"]


def test_without_batches_captures_of_several_are_refused(tmp_path: Path) -> None:
    trace = paired(replayed([["k"]]), [captured(BATCHES)], tmp_path)
    assert _layers(trace) == [None]
    assert ledger_counts(trace) == {"graph_captures_alike": 1}


def test_the_capture_of_another_batch_is_refused(tmp_path: Path) -> None:
    capture = captured([BATCHES[0]], annotations=VLLM[:1])
    trace = paired(replayed([["k"]], annotations=[_step(9)]), [capture], tmp_path)
    assert _layers(trace) == [None]
    assert ledger_counts(trace) == {"graph_not_captured": 1}


def test_a_capture_inside_the_same_trace_is_used(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    end = add_capture(kineto, GRAPH, 1_000_000)
    add_replay(kineto, ["gemm", "relu"], end + 1_000_000)
    trace = convert([kineto.write(tmp_path / "trace.json")], Options())
    assert _layers(trace) == ["Linear_0", "ReLU_0"]
    assert trace.frame("runs").height == 1


def test_a_replay_in_a_call_of_the_captured_layer_belongs_to_that_call(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    add_replay(kineto, ["gemm"], 9_000_000, launched_in="Linear_0")
    trace = paired(kineto, [captured([GRAPH[:1]])], tmp_path)
    assert replayed_layers(trace) == [("gemm", "Linear_0")]
    work = trace.frame("spans").filter(pl.col("attribution") == "layer").row(0, named=True)
    assert trace.frame("spans")["run_id"][work["layer_id"]] == 0


def test_captures_of_the_own_rank_go_first(tmp_path: Path) -> None:
    def of_rank(kineto: KinetoTrace, rank: int) -> KinetoTrace:
        kineto.head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
        return kineto

    captures = [of_rank(captured([[Piece("k", f"Rank_{rank}")]]), rank) for rank in (0, 1)]
    assert _layers(paired(of_rank(replayed([["k"]]), 1), captures, tmp_path)) == ["Rank_1"]
    assert _layers(paired(of_rank(replayed([["k"]]), 0), captures, tmp_path)) == ["Rank_0"]
    assert _layers(paired(of_rank(replayed([["k"]]), 1), captures[:1], tmp_path)) == ["Rank_0"]


def test_launches_pair_by_order_within_each_stream(tmp_path: Path) -> None:
    pieces = [Piece("a", "A_0"), Piece("b", "B_0"), Piece("c", "C_0"), Piece("b", "D_0")]
    trace = paired(replayed([["b", "a", "b", "c"]], streams=[8, 7, 8, 7]), [captured([pieces])], tmp_path)
    assert replayed_layers(trace) == [("b", "B_0"), ("a", "A_0"), ("b", "D_0"), ("c", "C_0")]


def test_equal_kernels_on_two_streams_are_not_told_apart_by_when_they_started(tmp_path: Path) -> None:
    pieces = [Piece("k", "Left_0"), Piece("k", "Right_0")]
    trace = paired(replayed([["k", "k"]], streams=[7, 8]), [captured([pieces])], tmp_path)
    assert _layers(trace) == [None, None]
    assert ledger_counts(trace) == {"graph_captures_alike": 1}


CUDA = (Piece("gemm", "Linear_0", "aten::mm", ((8, 8),)), Piece("relu", "ReLU_0", "aten::relu", ((8, 8),)))


def test_cuda_launches_are_known_by_what_their_operators_ran_without_a_graph(tmp_path: Path) -> None:
    capture = captured([CUDA], form="cuda")
    add_eager(capture, CUDA, 80_000_000, form="cuda")
    trace = paired(replayed([["gemm", "relu"]], form="cuda"), [capture], tmp_path)
    assert _layers(trace) == ["Linear_0", "ReLU_0"]


def test_cuda_launches_of_generated_kernels_are_known_by_their_operators(tmp_path: Path) -> None:
    pieces = [Piece("triton_a", "A_0", "triton_a"), Piece("triton_b", "B_0", "triton_b")]
    trace = paired(replayed([["triton_a", "triton_b"]], form="cuda"), [captured([pieces], form="cuda")], tmp_path)
    assert _layers(trace) == ["A_0", "B_0"]
    other = paired(replayed([["triton_b", "triton_a"]], form="cuda"), [captured([pieces], form="cuda")], tmp_path)
    assert _layers(other) == [None, None]


def test_cuda_launches_that_nothing_is_known_of_are_refused(tmp_path: Path) -> None:
    pieces = [*CUDA, Piece(COPY, "C_0"), Piece(FILL, "D_0")]  # kinds alone are no evidence
    trace = paired(replayed([_kernels(pieces)], form="cuda"), [captured([pieces], form="cuda")], tmp_path)
    assert _layers(trace) == [None] * 4
    assert ledger_counts(trace) == {"graph_capture_unnamed": 1}


def test_what_an_operator_ran_with_other_shapes_is_no_evidence(tmp_path: Path) -> None:
    capture = captured([CUDA], form="cuda")
    other = [Piece(p.kernel, p.layer, p.operator, ((16, 16),)) for p in CUDA]
    add_eager(capture, other, 80_000_000, form="cuda")
    trace = paired(replayed([["gemm", "relu"]], form="cuda"), [capture], tmp_path)
    assert ledger_counts(trace) == {"graph_capture_unnamed": 1}


def test_what_contradicts_a_cuda_capture_refuses_it(tmp_path: Path) -> None:
    capture = captured([CUDA], form="cuda")
    add_eager(capture, CUDA, 80_000_000, form="cuda")
    trace = paired(replayed([["gemm", "gelu"]], form="cuda"), [capture], tmp_path)
    assert ledger_counts(trace) == {"graph_not_captured": 1}


def test_cuda_work_on_several_streams_needs_every_launch_known(tmp_path: Path) -> None:
    pieces = [*CUDA, Piece("own", "Own_0", "my::op")]
    capture = captured([pieces], form="cuda")
    add_eager(capture, CUDA, 80_000_000, form="cuda")
    one = paired(replayed([_kernels(pieces)], form="cuda"), [capture], tmp_path)
    assert _layers(one) == ["Linear_0", "ReLU_0", "Own_0"]
    two = paired(replayed([_kernels(pieces)], form="cuda", streams=[7, 8, 7]), [capture], tmp_path)
    assert ledger_counts(two) == {"graph_capture_unnamed": 1}


def test_work_that_ran_at_once_is_of_no_graph_though_it_lies_in_a_capture(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    add_capture(kineto, [GRAPH[0], Piece("probe", "Probe_0"), GRAPH[1]], 5_000_000)
    probe = next(e for e in kineto.events if "probe" in str(e.get("args")))
    args = probe["args"]
    assert isinstance(args, dict)
    kineto.kernel("probe", 6_000_000, 1_000, correlation=args["correlation"])
    trace = paired(replayed([["gemm", "relu"]]), [kineto], tmp_path)
    assert _layers(trace) == ["Linear_0", "ReLU_0"]


@pytest.mark.parametrize("seed", range(8))
def test_no_replay_gets_a_layer_that_is_not_its_own(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)  # noqa: S311 (of a test)
    sizes = [dice.randint(1, 3) for _ in range(dice.randint(1, 6))]
    graphs = [[Piece(dice.choice("ab"), f"G{g}_{n}") for n in range(size)] for g, size in enumerate(sizes)]
    first, count = dice.randrange(len(graphs)), dice.randint(1, 14)
    order = [(first + n) % len(graphs) for n in range(count)]
    capture, replays = captured(graphs), replayed([_kernels(graphs[g]) for g in order])
    trace = paired(replays, [capture], tmp_path)
    truth = [piece.layer for g in order for piece in graphs[g]]
    layers = _layers(trace)
    assert all(layer in (None, own) for layer, own in zip(layers, truth, strict=True))
    times = _device_time(trace)
    assert sum(times.values()) == sum(n * (n + 1) // 2 * 1_000 for n in (sizes[g] for g in order))

    dice.shuffle(replays.events)
    dice.shuffle(capture.events)
    for event in capture.events:
        assert isinstance(event["ts"], int)
        event["ts"] += 77_000_000_000
    assert replayed_layers(paired(replays, [capture], tmp_path / "again")) == replayed_layers(trace)


def _one_step(replays: list[list[str]], launched_in: list[str] | None = None) -> KinetoTrace:
    """These replays, all in one step, each in a call of a layer where these are given."""
    kineto = KinetoTrace()
    now = 900_000_000
    for number, kernels in enumerate(replays):
        now = add_replay(kineto, kernels, now, launched_in=launched_in[number] if launched_in else "")
    kineto.step(0, 899_000_000, now - 899_000_000 + 1_000_000)
    return kineto


def test_one_capture_of_many_pieces_is_no_proof_where_others_are_missing(tmp_path: Path) -> None:
    # A round of first, three alike, last; only the capture of the third of them was given.
    replay = _one_step([["first"], ["a", "b"], ["a", "b"], ["a", "b"], ["last"]])
    trace = paired(replay, [captured([[Piece("a", "Piece_3"), Piece("b", "Piece_3")]])], tmp_path)
    assert {layer for _, layer in replayed_layers(trace)} == {None}
    ledger = trace.frame("ledger")
    row = ledger.filter(pl.col("kind") == "graph_captures_incomplete").row(0, named=True)
    assert (row["count"], row["duration_ns"]) == (3, 3 * (1_000 + 2_000))


def test_one_graph_replayed_several_times_in_a_step_is_certain_where_nothing_is_missing(tmp_path: Path) -> None:
    trace = paired(_one_step([["a", "b"]] * 4), [captured([[Piece("a", "Net_0"), Piece("b", "Net_0")]])], tmp_path)
    assert {layer for _, layer in replayed_layers(trace)} == {"Net_0"}


def test_a_graph_of_one_layer_is_not_replayed_in_a_sibling_of_it(tmp_path: Path) -> None:
    capture = KinetoTrace()
    capture.module("Block_3", 4_999_000, 200_000)
    add_capture(capture, [Piece("a", "Linear_3"), Piece("b", "Linear_3")], 5_000_000)
    replay = _one_step([["a", "b"], ["a", "b"]], ["Block_3", "Block_4"])
    layers = replayed_layers(paired(replay, [capture], tmp_path))
    assert [layer for _, layer in layers] == ["Linear_3", "Linear_3", None, None]


def test_the_same_capture_again_changes_nothing(tmp_path: Path) -> None:
    capture = captured([[Piece("a", "Net_0"), Piece("b", "Net_1")]])
    trace = paired(replayed([["a", "b"]]), [capture, capture], tmp_path)
    assert [layer for _, layer in replayed_layers(trace)] == ["Net_0", "Net_1"]
    assert trace.frame("runs").height == 2


def _training(*, elsewhere: str = "captured") -> KinetoTrace:
    """A capture with a forward launch, and a backward one from autograd's thread; and both once without a graph."""
    kineto = KinetoTrace()
    add_eager(kineto, GRAPH, 1_000_000)
    kineto.runtime("hipStreamBeginCapture", 5_000_000, 2_000)
    kineto.module("Linear_0", 5_010_000, 50_000)
    kineto.operator("aten::mm", 5_020_000, 30_000, sequence_number=7)
    forward = kineto.runtime("hipModuleLaunchKernel", 5_025_000, 5_000)
    node = "autograd::engine::evaluate_function: MmBackward0"
    kineto.operator(node, 5_100_000, 50_000, sequence_number=7, forward_thread_id=1, thread_id=101)
    backward = kineto.runtime("hipModuleLaunchKernel", 5_110_000, 5_000, thread_id=101)
    for event in kineto.events:
        args = event.get("args")
        if isinstance(args, dict) and args.get("correlation") in (forward, backward):
            args["kernel"] = "gemm" if args["correlation"] == forward else "gemm_backward"
    if elsewhere == "at once":
        kineto.kernel("gemm_backward", 5_120_000, 1_000, correlation=backward)
    elif elsewhere == "captured by itself":
        kineto.runtime("hipStreamBeginCapture", 5_050_000, 2_000, thread_id=101)
        kineto.runtime("hipStreamEndCapture", 5_190_000, 2_000, thread_id=101)
    kineto.runtime("hipStreamEndCapture", 5_200_000, 2_000)
    return kineto


def test_what_autograd_launches_from_its_own_thread_is_captured_too(tmp_path: Path) -> None:
    trace = paired(replayed([["gemm", "gemm_backward"]] * 2), [_training()], tmp_path)
    assert replayed_layers(trace) == [("gemm", "Linear_0"), ("gemm_backward", "Linear_0")] * 2
    assert ledger_counts(trace) == {}


@pytest.mark.parametrize("elsewhere", ["at once", "captured by itself"])
def test_what_another_thread_runs_or_captures_is_none_of_the_graph(tmp_path: Path, elsewhere: str) -> None:
    trace = paired(replayed([["gemm"]]), [_training(elsewhere=elsewhere)], tmp_path)
    assert replayed_layers(trace) == [("gemm", "Linear_0")]
