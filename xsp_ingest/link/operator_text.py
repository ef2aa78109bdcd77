"""What PyTorch writes into the text of an operator's range: its name, and numbers and shapes that differ by call."""

from __future__ import annotations

import polars as pl

__all__ = ["is_backward", "operator_details", "plain_name"]

_NUMBERS = r"(?:, (?:stashed )?seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = \[.*\])?(?:, input_op_ids = \[.*\])?$"
_SEQUENCE = r", (?:stashed )?seq = (\d+)"
_SHAPES = r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$"
_BACKWARD = r"Backward\d*$|^autograd::engine::evaluate_function: |AccumulateGrad$"


def plain_name(text: pl.Expr) -> pl.Expr:
    """The text without what differs from call to call: operator and sequence numbers, sizes, input ids."""
    return text.str.replace(_NUMBERS, "")


def operator_details(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Sequence number and, as JSON, input shapes that torch wrote into the range's text; null where it did not."""
    sequence = text.str.extract(_SEQUENCE).cast(pl.Int64, strict=False).alias("sequence_number")
    return sequence, text.str.extract(_SHAPES).alias("input_shapes")


def is_backward(name: pl.Expr) -> pl.Expr:
    """Whether an operator's name is that of a node of the backward pass."""
    return name.str.contains(_BACKWARD)
