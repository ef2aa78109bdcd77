"""Work of instructions by sizes: programs written byte by byte, each answer worked out on paper."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from tests.helpers.synth_hlo import (
    computation,
    dot_dimensions,
    instruction,
    length_delimited,
    number,
    packed,
    program,
    window,
)
from tests.helpers.synth_xplane import Profile
from xsp_ingest.convert import convert
from xsp_ingest.formats.xplane.instructions import program_instructions
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_DOT, _WINDOW, _CONVOLUTION, _TARGET, _SETTINGS = 30, 15, 16, 28, 43
_NUMBERS_2D = (  # bf01_oi01->bf01
    number(7, 0) + number(8, 1) + packed(11, [2, 3]) + number(4, 0) + number(3, 1) + packed(6, [2, 3])
    + number(9, 0) + number(10, 1) + packed(12, [2, 3])
)  # fmt: skip


def _parameters(*shapes: str) -> list[bytes]:
    return [
        instruction(key, f"p{key}", "parameter", made, (), number(9, at))
        for at, (key, made) in enumerate(enumerate(shapes, start=1))
    ]


def _row(raw: bytes, name: str = "it") -> dict[str, Any]:
    frame, programs, instructions = program_instructions({"jit_f(3)": raw}, [name])
    assert (programs, instructions) == (0, 0)
    (row,) = frame.to_dicts()
    return row


def _work(raw: bytes, name: str = "it") -> tuple[float | None, ...]:
    """Flop, vector flop, bytes read, bytes written."""
    row = _row(raw, name)
    return tuple(row[f"modelled_{what}"] for what in ("flop", "vector_flop", "read_bytes", "written_bytes"))


def _one(opcode: str, made: str, takes: list[str], *further: bytes, calls: bytes | None = None) -> bytes:
    """A program of one instruction, `it`, which may call computation 7."""
    keys = range(1, len(takes) + 1)
    called = [] if calls is None else [7]
    it = instruction(99, "it", opcode, made, keys, *further, calls=called)
    main = computation(1, *_parameters(*takes), it, root=99)
    return program(main) if calls is None else program(calls, main)


def _binary(opcode: str) -> bytes:
    """Computation 7, of two numbers."""
    return computation(7, *_parameters("f32[]", "f32[]"), instruction(3, "r", opcode, "f32[]", (1, 2)), root=3)


def test_a_dot_multiplies_and_adds_over_what_is_contracted() -> None:
    """2 x 4 x 8 x 16 x 32: batch 4, 8 by 32, over 16; f32 and bf16."""
    raw = _one(
        "dot",
        "f32[4,8,32]",
        ["bf16[4,8,16]", "bf16[4,16,32]"],
        length_delimited(_DOT, dot_dimensions([2], [1], [0])),
    )
    assert _work(raw) == (2 * 4 * 8 * 16 * 32, 0, 2 * (4 * 8 * 16 + 4 * 16 * 32), 4 * 4 * 8 * 32)


@pytest.mark.parametrize(
    ("data", "kernel", "output", "dimensions", "groups", "positions"),
    [
        ("f32[2,3,8,8]", "f32[5,3,3,3]", "f32[2,5,6,6]", ({"size": 3}, {"size": 3}), (1, 1), 18 * 18),
        (  # a border of one: of three rows of the window the first output meets two, the last two
            "f32[2,3,8,8]", "f32[5,3,3,3]", "f32[2,5,8,8]",
            ({"size": 3, "low": 1, "high": 1}, {"size": 3, "low": 1, "high": 1}), (1, 1), 22 * 22,
        ),
        (  # every other output of those: 2 + 3 + 3 + 3
            "f32[2,3,8,8]", "f32[5,3,3,3]", "f32[2,5,4,4]",
            ({"size": 3, "stride": 2, "low": 1}, {"size": 3, "stride": 2, "low": 1}), (1, 1), 11 * 11,
        ),
        (  # a window that skips: 4 outputs of 3 each
            "f32[2,3,8,8]", "f32[5,3,3,3]", "f32[2,5,4,4]", ({"size": 3, "dilation": 2},) * 2, (1, 1), 12 * 12,
        ),
        (  # an input with holes, 15 long: of 13 outputs every other one meets two, the others one
            "f32[2,3,8,8]", "f32[5,3,3,3]", "f32[2,5,13,13]", ({"size": 3, "base": 2},) * 2, (1, 1), (7 * 2 + 6) ** 2,
        ),
        ("f32[2,6,8,8]", "f32[9,2,3,3]", "f32[2,9,6,6]", ({"size": 3},) * 2, (3, 1), 18 * 18),
        ("f32[4,3,8,8]", "f32[6,3,3,3]", "f32[2,6,6,6]", ({"size": 3},) * 2, (1, 2), 18 * 18),
    ],
)  # fmt: skip
def test_a_convolution_multiplies_where_window_and_input_meet(
    data: str, kernel: str, output: str, dimensions: tuple[dict[str, int], ...], groups: tuple[int, int], positions: int
) -> None:
    batch, features = (int(size) for size in data[4:-1].split(",")[:2])
    features_out = int(kernel[4:-1].split(",", maxsplit=1)[0])
    further = (
        length_delimited(_WINDOW, window(*dimensions)),
        length_delimited(_CONVOLUTION, _NUMBERS_2D),
        number(50, groups[0]),
        number(58, groups[1]),
    )
    flop = 2 * positions * (batch // groups[1]) * (features // groups[0]) * features_out
    assert _work(_one("convolution", output, [data, kernel], *further))[:2] == (flop, 0)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"])
def test_a_call_of_cublas_is_a_product_and_its_scratch_is_not_counted(target: str) -> None:
    settings = {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["0"], "lhs_batch_dimensions": []}}
    raw = _one(
        "custom-call",
        "(bf16[8,32], s8[4096])",
        ["bf16[16,8]", "bf16[16,32]"],
        length_delimited(_TARGET, target),
        length_delimited(_SETTINGS, json.dumps({"gemm_backend_config": settings})),
    )
    assert _work(raw) == (2 * 8 * 16 * 32, 0, 2 * (16 * 8 + 16 * 32), 2 * 8 * 32)


def test_a_product_without_settings_is_contracted_over_what_its_sizes_leave() -> None:
    raw = _one("custom-call", "f32[8,32]", ["f32[8,16]", "f32[16,32]"], length_delimited(_TARGET, "__cublas$gemm"))
    assert _work(raw)[0] == 2 * 8 * 16 * 32


@pytest.mark.parametrize(
    ("target", "takes", "makes"),
    [
        ("__cudnn$convForward", ["f32[2,3,8,8]", "f32[5,3,3,3]"], "f32[2,5,6,6]"),
        ("__cudnn$convBackwardInput", ["f32[2,5,6,6]", "f32[5,3,3,3]"], "f32[2,3,8,8]"),
        ("__cudnn$convBackwardFilter", ["f32[2,3,8,8]", "f32[2,5,6,6]"], "f32[5,3,3,3]"),
    ],
)
def test_a_convolution_of_cudnn_and_its_gradients_do_the_same_work(target: str, takes: list[str], makes: str) -> None:
    raw = _one(
        "custom-call",
        f"({makes}, u8[100])",
        takes,
        length_delimited(_TARGET, target),
        length_delimited(_WINDOW, window({"size": 3}, {"size": 3})),
        length_delimited(_CONVOLUTION, _NUMBERS_2D),
        number(50, 1),
    )
    bytes_of = {"f32[2,3,8,8]": 1536, "f32[5,3,3,3]": 540, "f32[2,5,6,6]": 1440}
    assert _work(raw) == (2 * 2 * 36 * 9 * 3 * 5, 0, sum(bytes_of[each] for each in takes), bytes_of[makes])


@pytest.mark.parametrize(
    ("target", "settings", "pairs_times_products"),
    [
        ("__cudnn$fmhaSoftmax", {"mask_type": "NO_MASK"}, 2 * 8 * 8),
        ("__cudnn$fmhaSoftmax", {"mask_type": "CAUSAL"}, 2 * 36),
        ("__cudnn$fmhaSoftmax", {"mask_type": "CAUSAL", "sliding_window_length": 3}, 2 * (1 + 2 + 6 * 3)),
        ("__cudnn$fmhaSoftmaxBackward", {"mask_type": "CAUSAL"}, 5 * 36),
        ("__cudnn$fmhaSoftmax", {"mask_type": "PADDING_CAUSAL"}, None),
    ],
)
def test_attention_of_cudnn_multiplies_where_its_mask_lets_it(
    target: str, settings: dict[str, object], pairs_times_products: int | None
) -> None:
    """Batch 2, 3 heads, 8 tokens, heads 16 wide."""
    sizes = {"intermediate_tensor_shape": {"dimensions": ["2", "3", "8", "8"]}}
    raw = _one(
        "custom-call",
        "(bf16[2,8,3,16], u8[64])",
        ["bf16[2,8,3,16]"] * 3,
        length_delimited(_TARGET, target),
        length_delimited(_SETTINGS, json.dumps({"cudnn_fmha_backend_config": {**sizes, **settings}})),
    )
    expected = None if pairs_times_products is None else 2 * 2 * 3 * 16 * pairs_times_products
    assert _work(raw)[0] == expected


def test_of_a_call_of_an_unknown_library_nothing_is_known() -> None:
    raw = _one("custom-call", "f32[8]", ["f32[8]"], length_delimited(_TARGET, "my_kernel"))
    assert _work(raw) == (None, None, None, None)


def _fusion(inside: list[bytes], takes: list[str], made: str, root: int) -> bytes:
    return _one("fusion", made, takes, calls=computation(7, *inside, root=root))


def test_a_fusion_does_what_is_fused_and_moves_only_what_goes_in_and_out() -> None:
    """A product of 8x16 and 16x4, a bias added, a tanh: what is between stays inside."""
    inside = [
        *_parameters("bf16[8,16]", "bf16[16,4]", "f32[4]"),
        instruction(4, "d", "dot", "f32[8,4]", (1, 2), length_delimited(_DOT, dot_dimensions([1], [0]))),
        instruction(5, "b", "broadcast", "f32[8,4]", (3,)),
        instruction(6, "a", "add", "f32[8,4]", (4, 5)),
        instruction(7, "t", "tanh", "f32[8,4]", (6,)),
        instruction(8, "c", "convert", "bf16[8,4]", (7,)),
    ]
    raw = _fusion(inside, ["bf16[8,16]", "bf16[16,4]", "f32[4]"], "bf16[8,4]", 8)
    assert _work(raw) == (2 * 8 * 16 * 4, 2 * 8 * 4, 2 * (8 * 16 + 16 * 4) + 4 * 4, 2 * 8 * 4)


def test_a_fusion_in_a_fusion_is_counted_once() -> None:
    """As Triton's products are nested: the inner one only adds."""
    inner = computation(8, *_parameters("f32[8]"), instruction(2, "a", "add", "f32[8]", (1, 1)), root=2)
    outer = computation(
        7, *_parameters("f32[8]"), instruction(2, "f", "fusion", "f32[8]", (1,), calls=[8]),
        instruction(3, "n", "negate", "f32[8]", (2,)), root=3,
    )  # fmt: skip
    it = instruction(99, "it", "fusion", "f32[8]", [1], calls=[7])
    raw = program(inner, outer, computation(1, *_parameters("f32[8]"), it, root=99))
    assert _work(raw) == (0, 16, 32, 32)


def test_of_an_operand_that_is_sliced_only_the_slice_is_read() -> None:
    """One layer of 12 stacked ones, converted before it is taken, as in a scan over layers."""
    inside = [
        *_parameters("bf16[12,8,4]", "s32[]"),
        instruction(3, "c", "convert", "f32[12,8,4]", (1,)),
        instruction(4, "s", "dynamic-slice", "f32[1,8,4]", (3, 2, 2, 2)),
        instruction(5, "n", "negate", "f32[1,8,4]", (4,)),
    ]
    assert _work(_fusion(inside, ["bf16[12,8,4]", "s32[]"], "f32[1,8,4]", 5))[2:] == (8 * 4 * 2 + 4, 8 * 4 * 4)


def test_an_operand_that_is_sliced_and_used_is_read_whole() -> None:
    inside = [
        *_parameters("f32[12,4]"),
        instruction(2, "s", "slice", "f32[1,4]", (1,)),
        instruction(3, "b", "broadcast", "f32[12,4]", (2,)),
        instruction(4, "a", "add", "f32[12,4]", (1, 3)),
    ]
    assert _work(_fusion(inside, ["f32[12,4]"], "f32[12,4]", 4))[2:] == (192, 192)


def test_what_is_written_into_an_operand_is_written_in_place() -> None:
    inside = [
        *_parameters("f32[12,4]", "f32[1,4]", "s32[]"),
        instruction(4, "e", "exponential", "f32[1,4]", (2,)),
        instruction(5, "u", "dynamic-update-slice", "f32[12,4]", (1, 4, 3, 3)),
        instruction(6, "v", "bitcast", "f32[48]", (5,)),
    ]
    assert _work(_fusion(inside, ["f32[12,4]", "f32[1,4]", "s32[]"], "f32[48]", 6)) == (0, 4, 16 + 4, 16)


def test_what_is_written_into_something_new_is_written_whole() -> None:
    inside = [
        *_parameters("f32[12,4]", "f32[1,4]", "s32[]"),
        instruction(4, "e", "exponential", "f32[12,4]", (1,)),
        instruction(5, "u", "dynamic-update-slice", "f32[12,4]", (4, 2, 3, 3)),
    ]
    assert _work(_fusion(inside, ["f32[12,4]", "f32[1,4]", "s32[]"], "f32[12,4]", 5)) == (0, 48, 192 + 16 + 4, 192)


def test_a_fusion_of_several_results_writes_each() -> None:
    inside = [
        *_parameters("f32[8]"),
        instruction(2, "a", "abs", "f32[8]", (1,)),
        instruction(3, "c", "convert", "bf16[8]", (1,)),
        instruction(4, "t", "tuple", "(f32[8], bf16[8])", (2, 3)),
    ]
    assert _work(_fusion(inside, ["f32[8]"], "(f32[8], bf16[8])", 4)) == (0, 8, 32, 48)


@pytest.mark.parametrize(
    ("opcode", "made", "takes", "calls", "expected"),
    [
        ("reduce", "f32[8]", ["f32[8,16]", "f32[]"], "add", (0, 8 * 15, 8 * 16 * 4 + 4, 32)),
        ("map", "f32[8]", ["f32[8]", "f32[8]"], "multiply", (0, 8, 64, 32)),
        ("scatter", "f32[100,4]", ["f32[100,4]", "s32[3]", "f32[3,4]"], "add", (0, 12, 12 + 48 + 48, 48)),
        ("add", "f32[8]", ["f32[8]", "f32[8]"], None, (0, 8, 64, 32)),
        ("copy", "f32[8]", ["f32[8]"], None, (0, 0, 32, 32)),
        ("transpose", "s4[3,3]", ["s4[3,3]"], None, (0, 0, 5, 5)),
        ("gather", "bf16[5,64]", ["bf16[1000,64]", "s32[5]"], None, (0, 0, 5 * 64 * 2 + 20, 5 * 64 * 2)),
        ("dynamic-slice", "f32[1,8]", ["f32[9,8]", "s32[]", "s32[]"], None, (0, 0, 32 + 8, 32)),
        ("dynamic-update-slice", "f32[9,8]", ["f32[9,8]", "f32[1,8]", "s32[]", "s32[]"], None, (0, 0, 32, 32)),
        ("copy-start", "(f32[8], f32[8], s32[])", ["f32[8]"], None, (0, 0, 32, 32)),
        ("copy-done", "f32[8]", ["f32[8]"], None, (0, 0, 0, 0)),
        ("bitcast", "f32[8]", ["f32[8]"], None, (0, 0, 0, 0)),
        ("while", "f32[8]", ["f32[8]"], "add", (None, None, None, None)),
        ("fft", "f32[8]", ["f32[8]"], None, (None, None, 32, 32)),
    ],
)
def test_other_instructions(
    opcode: str, made: str, takes: list[str], calls: str | None, expected: tuple[float | None, ...]
) -> None:
    assert _work(_one(opcode, made, takes, calls=None if calls is None else _binary(calls))) == expected


def test_windows_are_reduced_and_spread() -> None:
    """Each of 6 outputs is of 3 numbers: two additions; and the way back, a comparison of each."""
    further = length_delimited(_WINDOW, window({"size": 3}))
    pooled = _one("reduce-window", "f32[6]", ["f32[8]", "f32[]"], further, calls=_binary("add"))
    spread = _one("select-and-scatter", "f32[8]", ["f32[8]", "f32[6]", "f32[]"], further, calls=_binary("compare"))
    assert _work(pooled) == (0, 12, 36, 24)
    assert _work(spread) == (0, 18, 32 + 24 + 4, 32)


def test_the_same_operand_twice_is_read_once() -> None:
    it = instruction(99, "it", "multiply", "f32[8]", (1, 1))
    assert _work(program(computation(1, *_parameters("f32[8]"), it, root=99))) == (0, 8, 32, 32)


@pytest.mark.parametrize(
    ("opcode", "made", "written", "bus"),
    [
        ("all-reduce", "f32[8]", 32, 2 * 32 * 3 // 4),
        ("all-reduce-start", "f32[8]", 32, 2 * 32 * 3 // 4),
        ("all-gather", "f32[32]", 128, 32 * 3),
        ("reduce-scatter", "f32[2]", 8, 32 * 3 // 4),
        ("all-to-all", "f32[8]", 32, 32 * 3 // 4),
        ("collective-permute", "f32[8]", 32, 32),
    ],
)
def test_what_collectives_send(opcode: str, made: str, written: int, bus: int) -> None:
    """Groups of 4 of 8 devices; as lists, as older versions write them, and as a rule."""
    group = [length_delimited(1, packed(1, range(first, first + 4))) for first in (0, 4)]
    old = b"".join(length_delimited(49, each[2:]) for each in group)
    for further in (
        length_delimited(87, b"".join(group)),
        old,
        length_delimited(87, length_delimited(2, number(1, 2) + number(2, 4))),
    ):
        row = _row(_one(opcode, made, ["f32[8]"], further))
        assert (row["modelled_read_bytes"], row["modelled_written_bytes"], row["modelled_bus_bytes"]) == (
            32,
            written,
            bus,
        )


def test_without_groups_all_devices_work_together() -> None:
    it = instruction(99, "it", "all-reduce", "f32[8]", [1])
    main = computation(1, *_parameters("f32[8]"), it, root=99)
    assert _row(program(main))["modelled_bus_bytes"] is None
    devices = length_delimited(15, number(1, 2) + number(2, 1))
    assert _row(program(main, further=devices))["modelled_bus_bytes"] == 32


def test_what_runs_beside_is_the_work_of_what_it_calls() -> None:
    inside = computation(7, *_parameters("f32[8]"), instruction(2, "n", "negate", "f32[8]", (1,)), root=2)
    assert _work(_one("async-start", "((f32[8]), f32[8], s32[])", ["f32[8]"], calls=inside)) == (0, 8, 32, 32)


def test_operands_and_source_lines_are_told() -> None:
    """The innermost lines outside libraries, without the home directory."""
    home = "/home/someone/model/train.py"
    library = "/opt/env/lib/python3.11/site-packages/flax/linen/dense.py"
    frames = (
        length_delimited(1, home) + length_delimited(1, library)
        + length_delimited(2, "step") + length_delimited(2, "__call__") + length_delimited(2, "<module>")
        + length_delimited(3, number(1, 1) + number(2, 3) + number(3, 90))
        + length_delimited(3, number(1, 1) + number(2, 1) + number(3, 12))
        + length_delimited(3, number(1, 2) + number(2, 2) + number(3, 7))
        + length_delimited(4, number(1, 1))
        + length_delimited(4, number(1, 2) + number(2, 1))
        + length_delimited(4, number(1, 3) + number(2, 2))
    )  # fmt: skip
    it = instruction(99, "it", "add", "f32[8]", (1, 2)) + length_delimited(7, number(15, 3))
    main = computation(1, *_parameters("f32[8]", "s32[]"), it, root=99)
    row = _row(program(main, further=length_delimited(17, frames)))
    assert (row["input_shapes"], row["input_dtypes"]) == ("[[8], []]", '["f32", "s32"]')
    assert row["source_lines"] == "model/train.py:12 step; model/train.py:90 <module>"


def test_without_frames_the_line_of_the_instruction_is_told() -> None:
    it = instruction(99, "it", "add", "f32[8]", (1, 1)) + length_delimited(
        7, length_delimited(3, "/root/a.py") + number(4, 5)
    )
    assert _row(program(computation(1, *_parameters("f32[8]"), it, root=99)))["source_lines"] == "a.py:5"


def _cublas(settings: str) -> bytes:
    further = length_delimited(_TARGET, "__cublas$gemm"), length_delimited(_SETTINGS, settings)
    return _one("custom-call", "f32[8]", ["f32[8]"] * 2, *further)


_CIRCLE = computation(7, instruction(1, "f", "fusion", "f32[8]", (), calls=[7]), root=1)
_DAMAGED = {
    "a dimension that is not there": _one("dot", "f32[8]", ["f32[8]"], length_delimited(_DOT, packed(1, [5]))),
    "no dimensions": _one("dot", "f32[8]", ["f32[8]"], length_delimited(_DOT, b"\x0a\xff")),
    "no operand": _one("dot", "f32[8]", [], length_delimited(_DOT, packed(1, [0]))),
    "too large": _one("add", "f32[4611686018427387904,8]", ["f32[8]"]),
    "calls nothing": _one("fusion", "f32[8]", ["f32[8]"]),
    "calls itself": _one("fusion", "f32[8]", ["f32[8]"], calls=_CIRCLE),
    "operands elsewhere": program(computation(1, instruction(99, "it", "add", "f32[8]", (1, 2)), root=99)),
    "a window larger than any": _one(
        "convolution", "f32[1]", ["f32[1,1,1,1]"] * 2, length_delimited(_WINDOW, window({"size": 1 << 40}))
    ),
    "settings below zero": _cublas('{"dot_dimension_numbers": {"lhs_contracting_dimensions": ["-1"]}}'),
    "settings that are none": _cublas("{no json"),
}


@pytest.mark.parametrize("damaged", _DAMAGED.values(), ids=_DAMAGED)
def test_an_instruction_that_cannot_be_is_counted_and_has_no_work(damaged: bytes) -> None:
    frame, programs, instructions = program_instructions({"jit_f(3)": damaged}, ["it"])
    assert (programs, instructions) == (0, 1)
    assert frame.select("hlo_op", "modelled_flop", "modelled_read_bytes").rows() == [("it", None, None)]


@pytest.mark.slow
def test_bytes_at_random_are_damage_and_no_crash() -> None:
    dot = instruction(2, "d", "dot", "f32[8,8]", (1, 1), length_delimited(_DOT, dot_dimensions([1], [0])))
    undamaged = _fusion([*_parameters("f32[8,8]"), dot], ["f32[8,8]"], "f32[8,8]", 2)
    random = Random(15)  # noqa: S311 (nothing secret)
    for _ in range(3000):
        cut = bytearray(undamaged)
        for _ in range(random.randint(1, 4)):
            cut[random.randrange(len(cut))] = random.randrange(256)
        program_instructions(
            {"jit_f(3)": bytes(cut[: random.randint(0, len(cut))]), "jit_f(4)": bytes(cut)}, ["it", "d"]
        )


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("bf16", "bf16"), ("f16", "fp16"), ("f8e4m3fn", "fp8"), ("s8", "int8"), ("f32", None)],
)
def test_products_run_in_the_precision_of_their_operands(kind: str, precision: str | None) -> None:
    """Though what comes first into the fusion is a bias in FP32."""
    inside = [
        *_parameters("f32[8]", f"{kind}[8,8]"),
        instruction(3, "d", "dot", "f32[8,8]", (2, 2), length_delimited(_DOT, dot_dimensions([1], [0]))),
        instruction(4, "b", "broadcast", "f32[8,8]", (1,)),
        instruction(5, "a", "add", "f32[8,8]", (3, 4)),
    ]
    assert _row(_fusion(inside, ["f32[8]", f"{kind}[8,8]"], "f32[8,8]", 5))["precision"] == precision


def _product(size: int) -> bytes:
    """A program of one product of size x size."""
    made = f"bf16[{size},{size}]"
    return _one("dot", made, [made, made], length_delimited(_DOT, dot_dimensions([1], [0])))


def _profile(protos: dict[str, bytes], **statistics: object) -> Profile:
    """Each program once: its run on the host holds the thunk `it`, which launches one kernel."""
    profile = Profile()
    programs, host, gpu = (profile.plane(name) for name in ("/host:metadata", "/host:CPU", "/device:GPU:0"))
    thread, stream = host.line(9, "py_xla_execute/9"), gpu.line(7, "Stream #7(Kernel)")
    for at, (name, proto) in enumerate(protos.items()):
        entry = programs.plane.event_metadata.add(key=programs.name_id(name))
        entry.value.id, entry.value.name = entry.key, name
        programs.stat(entry.value.stats, "hlo_proto", proto)
        stats = {"hlo_op": "&it", "hlo_module": "&jit_f", "program_id": int(name[6:-1])}
        host.event(thread, "jit_f:XLA GPU module", 1000 * at, 400)
        host.event(thread, "it", 1000 * at + 10, 200, **statistics)
        host.event(thread, "cudaLaunchKernel", 1000 * at + 20, 10, correlation_id=at + 1, **stats)
        gpu.event(stream, "gemm", 1000 * at + 300, 60, correlation_id=at + 1,
                  kernel_details="&grid:1,1,1 block:32,1,1", **stats)  # fmt: skip
    return profile


def _converted(profile: Profile, folder: Path) -> Trace:
    return convert([profile.write(folder / "host.xplane.pb")], Options())


def _metrics(trace: Trace) -> list[tuple[object, ...]]:
    names = trace.frame("spans").select("span_id", "name", "level")
    rows = trace.frame("metrics").join(names, on="span_id").filter(pl.col("level") == "operator")
    texts = pl.col("metric", "unit", "source").cast(pl.String)
    return (
        rows.with_columns(texts).select("span_id", "metric", "value", "unit", "source").sort("span_id", "metric").rows()
    )


def test_operators_have_the_work_of_their_own_program(tmp_path: Path) -> None:
    """Two of one name: the number is in the call that the thunk made."""
    trace = _converted(_profile({"jit_f(3)": _product(8), "jit_f(4)": _product(16)}), tmp_path)
    rows = [row[1:] for row in _metrics(trace)]
    source = "modelled by HLO shapes"
    assert rows == [
        ("modelled_flop_bf16", 1024.0, "flop", source),
        ("modelled_read_bytes", 256.0, "byte", source),
        ("modelled_written_bytes", 128.0, "byte", source),
        ("modelled_flop_bf16", 8192.0, "flop", source),
        ("modelled_read_bytes", 1024.0, "byte", source),
        ("modelled_written_bytes", 512.0, "byte", source),
    ]
    operators = trace.frame("operators").drop_nulls("input_shapes")
    assert operators["input_shapes"].cast(pl.String).to_list() == ["[[8, 8], [8, 8]]", "[[16, 16], [16, 16]]"]
    assert operators["input_dtypes"].cast(pl.String).to_list() == ['["bf16", "bf16"]'] * 2


def test_of_a_program_of_another_number_nothing_is_taken(tmp_path: Path) -> None:
    profile = _profile({"jit_f(3)": _product(8)}, program_id=5)
    assert _metrics(_converted(profile, tmp_path)) == []


def test_where_the_file_holds_xlas_own_numbers_they_count(tmp_path: Path) -> None:
    """The program tells that they are of a product, and what is written."""
    profile = _profile({"jit_f(3)": _product(8)}, flops=1100, bytes_accessed=400)
    source = "modelled by XLA"
    assert [row[1:] for row in _metrics(_converted(profile, tmp_path))] == [
        ("modelled_flop_bf16", 1100.0, "flop", source),
        ("modelled_read_bytes", 400.0 - 128, "byte", source),
        ("modelled_written_bytes", 128.0, "byte", source),
    ]


def test_what_xla_counts_of_an_instruction_without_products_is_other_arithmetic(tmp_path: Path) -> None:
    profile = _profile({"jit_f(3)": _one("tanh", "f32[8]", ["f32[8]"])}, flops=80)
    flop = [row[1:3] for row in _metrics(_converted(profile, tmp_path)) if row[3] == "flop"]
    assert flop == [("modelled_flop", 0.0), ("modelled_vector_flop", 80.0)]


def test_a_damaged_instruction_is_in_the_ledger(tmp_path: Path) -> None:
    trace = _converted(_profile({"jit_f(3)": _DAMAGED["no operand"]}), tmp_path)
    assert ledger_counts(trace)["damaged_program"] == 1
    assert _metrics(trace) == []
