"""Attention of a serving step is counted by the lengths of its requests, which the step's name says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.frames.operators.operator_calls import operator_calls
from xsp_analyze.trace.trace_view import TraceView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_NAME = "vllm::unified_attention_with_output"
_UPDATE = "_C_cache_ops::reshape_and_cache_flash"
_KERNEL_US = 10


def attended(made: KinetoTrace, at_us: int, rows: int) -> None:
    """A call of 8 heads of 16 that share 2 of keys, in fp32; its kernel starts a millisecond later."""
    query, key = [rows, 8, 16], [rows, 2, 16]
    types = ["float", "float", "float", "float", ""]
    made.operator(_NAME, at_us * 1_000, 20_000, shapes=[query, key, key, query, []], dtypes=types)
    made.launch("attention", at_us * 1_000 + 2_000, at_us * 1_000 + 1_000_000, _KERNEL_US * 1_000)


def calls_of(trace: Trace) -> pl.DataFrame:
    """The calls that work is counted by, with what is modelled of each."""
    counted = TraceView(trace).once(operator_calls)
    return counted.calls.hstack(counted.kinds[counted.calls["kind"].to_numpy()])


def pairs_of(made: KinetoTrace, folder: Path) -> list[int | None]:
    """Of each call in order, by its flop: four for each pair, head and element."""
    calls = calls_of(convert([made.write(folder / "t.json")], Options()))
    flop = calls.filter(pl.col("name") == _NAME)["flop"].to_list()
    return [None if each is None else int(each) // (4 * 8 * 16) for each in flop]


def test_the_name_of_the_innermost_step_around_a_call_tells_its_lengths(tmp_path: Path) -> None:
    # One prompt of 4 tokens and one of which 2 of 5 are new, beside a request at its 9th token: 10 + 4 + 5 + 9 pairs.
    # Then three requests decode with 20 keys; and a call runs in no step of an engine.
    made = KinetoTrace()
    made.step(1, 0, 900_000)
    made.annotation("execute_8_context_2(sq6sk9sqsq20sqsk26)_generation_1(sq1sk9sqsq1sqsk9)", 10_000, 300_000)
    attended(made, 20, 8)
    attended(made, 60, 8)
    made.annotation("execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk20sqsq3sqsk20)", 400_000, 100_000)
    attended(made, 420, 3)
    attended(made, 700, 3)
    assert pairs_of(made, tmp_path) == [28, 28, 20, None]


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("step[DECODE bs=3 g_sq=3 g_sk=20]", 20),  # one token each
        ("step[DECODE bs=3 g_sq=6 g_sk=20 g_sqsq=12 g_sqsk=40]", 40 - (12 - 6) // 2),
        ("step[DECODE bs=3]", None),
        ("execute_context_1(6)_generation_0(0)", None),
        ("prefill[bs=1 tok=6 ctx=[6] sqsq=36 sqsk=36 sk=6]", 21),
        ("capture_8_PIECEWISE", None),
        ("my own range", None),
    ],
)
def test_what_a_name_does_not_say_is_unknown(tmp_path: Path, name: str, pairs: int | None) -> None:
    made = KinetoTrace()
    made.step(1, 0, 900_000)
    made.annotation(name, 10_000, 300_000)
    attended(made, 20, 8)
    assert pairs_of(made, tmp_path) == [pairs]


def test_a_call_of_fewer_tokens_than_the_step_is_not_counted_by_it(tmp_path: Path) -> None:
    made = KinetoTrace()
    made.step(1, 0, 900_000)
    made.annotation("step[DECODE bs=3 g_sq=3 g_sk=20]", 10_000, 300_000)
    attended(made, 20, 2)
    assert pairs_of(made, tmp_path) == [None]


@pytest.mark.real
def test_a_mixed_step_of_vllm(real_dir: Path) -> None:
    # By a script that shares no code: the range is named execute_8192_context_9(sq8155 sk8430 sqsq7475785 sqsk7671310)
    # _generation_37(sq37 sk34489 sqsq37 sqsk34489). A request of q new tokens of k has q k - q (q - 1) / 2 pairs:
    # in sum 7671310 + 34489 - (7475785 + 37 - 8155 - 37) / 2 = 3971984. 64 heads of 64
    # share 8. Nothing is padded: 8155 + 37 tokens are the 8192 rows.
    calls = calls_of(convert([real_dir / "kineto/vllm_prefilldecode_piecewise_graph.mi300.json.gz"], Options()))
    attention = calls.filter(pl.col("name") == _NAME)
    assert attention.select("flop", "vector_flop", "read_bytes", "written_bytes").unique().rows() == [
        (65_076_985_856, 1_271_034_880, 2 * (8192 * 64 * 64 + 2 * 42_919 * 8 * 64), 2 * 8192 * 64 * 64)
    ]
    updates = calls.filter(pl.col("name") == _UPDATE)
    rows = 2 * 2 * 8192 * 8 * 64
    assert updates.select("flop", "read_bytes", "written_bytes").unique().rows() == [(0, rows + 8 * 8192, rows)]
    assert (len(attention), len(updates)) == (24, 24)


@pytest.mark.real
def test_the_capture_of_its_graphs_names_no_requests(real_dir: Path) -> None:
    # attention runs once by itself in the range capture_8192_PIECEWISE, over tokens of no request
    calls = calls_of(convert([real_dir / "kineto/graph_pairs/vllm_piecewise.mi300.capture.json.gz"], Options()))
    counts = calls.group_by("name").agg(
        pl.len(), pl.col("flop", "read_bytes").n_unique(), pl.col("flop").count().alias("n")
    )
    assert counts.filter(pl.col("name") == _NAME).select("len", "n").rows() == [(24, 0)]
    rotary = calls.filter(pl.col("name") == "_C::rotary_embedding")
    turned = 8192 * (4096 + 512)  # 64 of 64 elements a head, by a row of 64 for each token
    assert rotary.select("vector_flop", "read_bytes", "written_bytes").unique().rows() == [
        (3 * turned, 2 * turned + 2 * 8192 * 64 + 8 * 8192, 2 * turned)
    ]


@pytest.mark.real
def test_attention_of_a_diffusion_model(real_dir: Path) -> None:
    # 57 blocks with 24 heads of 128 over 768 tokens, and SDPA: 12 layers of 12 heads of 64 over 77, causal, and one
    # head of 512 over 1024 places
    calls = calls_of(convert([real_dir / "kineto/graph_pairs/xdit_flux.mi300.capture.json.gz"], Options()))
    sage = calls.filter(pl.col("name") == "sage_fwd_1")
    assert (len(sage), sage["flop"].unique().to_list()) == (57, [4 * 24 * 768 * 768 * 128])
    sdpa = calls.filter(pl.col("name") == "aten::scaled_dot_product_attention")
    assert sorted(sdpa["flop"].to_list()) == [4 * 12 * (77 * 78 // 2) * 64] * 12 + [4 * 1024 * 1024 * 512]
