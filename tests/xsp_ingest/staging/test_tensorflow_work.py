"""The work of TensorFlow's operators by type and tensors, each answer worked out on paper."""

from __future__ import annotations

import json

import polars as pl
import pytest

from xsp_ingest.staging.tensorflow_work import TensorflowWork, tensorflow_metrics, tensorflow_work


def _work(
    kind: str, takes: list[list[int]], makes: list[int] | None = None, dtype: str = "float", made: str = "float"
) -> TensorflowWork:
    shape = None if makes is None else json.dumps(makes)
    return tensorflow_work(kind, json.dumps(takes), json.dumps([dtype] * len(takes)), shape, made if shape else None)


@pytest.mark.parametrize(
    ("takes", "makes"),
    [
        ([[8, 16], [16, 32]], [8, 32]),
        ([[16, 8], [16, 32]], [8, 32]),
        ([[8, 16], [32, 16]], [8, 32]),
        ([[8, 16], [16, 32]], None),
        ([[16, 8], [32, 16]], None),
    ],
)
def test_a_product_is_contracted_over_what_both_have(takes: list[list[int]], makes: list[int] | None) -> None:
    expected = TensorflowWork(2 * 8 * 16 * 32, None, 4 * (8 * 16 + 16 * 32), 4 * 8 * 32)
    assert _work("MatMul", takes, makes) == expected


def test_of_sizes_that_fit_in_two_ways_the_result_decides() -> None:
    """16 x 8 by 8 x 16: 16 x 16 over 8, or both transposed 8 x 8 over 16."""
    assert _work("MatMul", [[16, 8], [8, 16]]) == TensorflowWork()
    assert _work("MatMul", [[16, 8], [8, 16]], [16, 16]).flop == 2 * 16 * 16 * 8
    assert _work("MatMul", [[16, 8], [8, 16]], [8, 8]).flop == 2 * 8 * 8 * 16


def test_batches_of_products_may_be_broadcast() -> None:
    work = _work("BatchMatMulV2", [[3, 1, 8, 16], [4, 16, 32]], dtype="half")
    assert (work.flop, work.precision) == (2 * 12 * 8 * 16 * 32, "fp16")
    assert (work.read_bytes, work.written_bytes) == (2 * (3 * 8 * 16 + 4 * 16 * 32), 2 * 12 * 8 * 32)


@pytest.mark.parametrize(
    ("kind", "takes", "makes"),
    [
        ("Conv2D", [[2, 8, 8, 3], [3, 3, 3, 5]], [2, 6, 6, 5]),
        ("Conv2DBackpropInput", [[4], [3, 3, 3, 5], [2, 6, 6, 5]], [2, 8, 8, 3]),
        ("Conv2DBackpropFilter", [[2, 8, 8, 3], [4], [2, 6, 6, 5]], [3, 3, 3, 5]),
    ],
)
def test_a_convolution_and_its_gradients_multiply_as_much(kind: str, takes: list[list[int]], makes: list[int]) -> None:
    assert _work(kind, takes, makes).flop == 2 * (2 * 6 * 6 * 5) * (3 * 3 * 3)


def test_each_channel_of_a_depthwise_convolution_is_by_itself() -> None:
    work = _work("DepthwiseConv2dNative", [[2, 8, 8, 6], [3, 3, 6, 1]], [2, 6, 6, 6])
    assert work.flop == 2 * (2 * 6 * 6 * 6) * 9


@pytest.mark.parametrize(
    ("kind", "takes", "makes", "expected"),
    [
        ("Mul", [[8, 4], []], None, TensorflowWork(0, 32, 33 * 4, 32 * 4)),
        ("AddV2", [[8, 1], [1, 4]], None, TensorflowWork(0, 32, 12 * 4, 32 * 4)),
        ("GreaterEqual", [[8, 4], []], None, TensorflowWork(0, 32, 33 * 4, 32)),
        ("Sum", [[8, 4], [1]], [8], TensorflowWork(0, 24, 33 * 4, 8 * 4)),
        ("GatherV2", [[1000, 4], [7], []], [7, 4], TensorflowWork(0, None, (28 + 7 + 1) * 4, 28 * 4)),
        ("Cast", [[8, 4]], None, TensorflowWork(0, None, 128, None)),
        ("Conv2D", [[2, 8, 8, 3], [3, 3, 3, 5]], None, TensorflowWork()),
        ("MyOwn", [[8]], [8], TensorflowWork()),
        ("Mul", [[-1, 4], []], None, TensorflowWork()),
        ("Mul", [[1 << 40, 1 << 40], []], None, TensorflowWork()),
        ("Mul", [], None, TensorflowWork()),
    ],
)
def test_other_operators(kind: str, takes: list[list[int]], makes: list[int] | None, expected: TensorflowWork) -> None:
    assert _work(kind, takes, makes) == expected


def test_a_conversion_reads_one_type_and_writes_another() -> None:
    work = _work("Cast", [[8, 4]], [8, 4], dtype="bool", made="half")
    assert (work.flop, work.read_bytes, work.written_bytes) == (0, 32, 64)


def test_metrics_are_of_each_operator_and_zero_only_where_it_is_known() -> None:
    operators = pl.DataFrame(
        {
            "row": [3, 4, 5],
            "layer_type": ["MatMul", "Tanh", "NoOp"],
            "input_shapes": ["[[2, 3], [3, 4]]", "[[5]]", "[[5]]"],
            "input_dtypes": ['["bfloat16", "bfloat16"]', '["float"]', '["float"]'],
            "output_shape": [None, None, None],
            "output_dtype": [None, None, None],
        },
        schema_overrides={"output_shape": pl.String, "output_dtype": pl.String},
    )
    source = "modelled by TensorFlow's shapes"
    assert tensorflow_metrics(operators).rows() == [
        (3, "modelled_flop_bf16", 48.0, "flop", source),
        (3, "modelled_read_bytes", 36.0, "byte", source),
        (3, "modelled_written_bytes", 16.0, "byte", source),
        (4, "modelled_flop", 0.0, "flop", source),
        (4, "modelled_vector_flop", 5.0, "flop", source),
        (4, "modelled_read_bytes", 20.0, "byte", source),
        (4, "modelled_written_bytes", 20.0, "byte", source),
    ]
