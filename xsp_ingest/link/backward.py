"""Rule 6: ties a backward operator to its forward twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.stated import placed
from xsp_ingest.link.words import matches
from xsp_model import Level

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["is_backward", "twins", "with_engine"]

_ENGINE = "^autograd::engine::evaluate_function"


def is_backward(spans: pl.DataFrame, operators: pl.DataFrame) -> Bools:
    """Which spans are operators that the autograd engine ran."""
    out: Bools = matches(spans["name"], _ENGINE) & (spans["level"] == str(Level.OPERATOR)).to_numpy()
    out[operators.filter(pl.col("forward_thread_id").is_not_null())["at"].to_numpy()] = True
    return out


def twins(spans: pl.DataFrame, operators: pl.DataFrame, flows: pl.DataFrame, backward: Bools) -> Ints:
    """For each span the position of its forward twin, or -1: as the file says, by flow, else by sequence number."""
    out = np.full(spans.height, -1, dtype=np.int64)
    stated = placed(spans, operators, "forward_row").select(backward_at="at", forward_at="place")
    for pairs in (_by_sequence(spans, operators, backward), _by_flow(spans, flows), stated):
        out[pairs["backward_at"].to_numpy()] = pairs["forward_at"].to_numpy()
    return out


def with_engine(spans: pl.DataFrame, parent: Ints, twin: Ints) -> Ints:
    """Twins in which the engine's own operator around a node has the node's: emit_nvtx writes no number on it."""
    engine = matches(spans["name"], _ENGINE) & (spans["level"] == str(Level.OPERATOR)).to_numpy() & (twin < 0)
    inside = np.flatnonzero((twin >= 0) & (parent >= 0))
    inside = inside[engine[parent[inside]]]
    out = twin.copy()
    out[parent[inside[::-1]]] = twin[inside[::-1]]  # the first of several
    return out


def _by_sequence(spans: pl.DataFrame, operators: pl.DataFrame, backward: Bools) -> pl.DataFrame:
    """The operator that made the autograd node is the last to start with the node's number.

    Operators that make no node carry the number that the next one will take, so earlier bearers are not it.
    """
    numbered = operators.filter(pl.col("sequence_number").is_not_null()).select("at", "sequence_number")
    places = numbered["at"].to_numpy()
    facts = spans.select("process_id", "start_ns")[places]
    numbered = pl.concat([numbered, facts, pl.DataFrame({"backward": backward[places]})], how="horizontal")
    forward = (
        numbered.filter(~pl.col("backward"))
        .sort("start_ns", "at")
        .unique(["process_id", "sequence_number"], keep="last", maintain_order=True)
        .rename({"at": "forward_at", "start_ns": "forward_ns"})
        .drop("backward")
    )
    return (
        numbered.filter(pl.col("backward"))
        .join(forward, on=["process_id", "sequence_number"], how="inner", maintain_order="left")
        .filter(pl.col("forward_ns") < pl.col("start_ns"))
        .select(pl.col("at").alias("backward_at"), "forward_at")
    )


def _by_flow(spans: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """A flow names both ends by thread and start; of operators that start together the innermost is meant."""
    starts = (
        spans.select("process_id", "thread_id", "start_ns", "duration_ns", "level")
        .with_row_index("at")
        .filter(pl.col("level") == Level.OPERATOR)
        .sort("duration_ns", "at")
        .unique(["process_id", "thread_id", "start_ns"], keep="first", maintain_order=True)
        .select("process_id", "thread_id", "start_ns", pl.col("at").cast(pl.Int64))
    )
    for side in ("forward", "backward"):
        names = {c: f"{side}_{c}" for c in ("process_id", "thread_id", "start_ns", "at")}
        flows = flows.join(starts.rename(names), on=list(names.values())[:3], how="inner", maintain_order="left")
    return flows.select("backward_at", "forward_at")
