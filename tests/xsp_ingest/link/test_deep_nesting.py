"""Nesting without end: what is above a span is limited, and what is known of it stays true near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.link.nesting import with_limited_depth
from xsp_model.columns.tree import MAX_DEPTH, depths

if TYPE_CHECKING:
    from pathlib import Path

_DEPTH = 3_000


def _chain(length: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(-1, length - 1, dtype=np.int32)


def test_what_is_no_deeper_than_the_limit_keeps_its_parents() -> None:
    parent = _chain(MAX_DEPTH)
    assert with_limited_depth(parent) == (parent, 0)


def test_of_a_deeper_chain_one_parent_in_256_is_another() -> None:
    parent = _chain(1_030)
    limited, deeper = with_limited_depth(parent)
    assert (int(depths(limited).max()), deeper) == (MAX_DEPTH - 1, 1_030 - MAX_DEPTH)
    moved = np.flatnonzero(limited != parent)
    assert (moved.tolist(), limited[moved].tolist()) == ([512, 768, 1024], [255, 255, 255])


def test_another_tree_beside_a_deep_one_is_left_alone() -> None:
    beside = np.array([-1, 0, 1, 0], dtype=np.int32)
    parent = np.concatenate([_chain(600), np.where(beside >= 0, beside + 600, -1)])
    limited, deeper = with_limited_depth(parent)
    assert (limited[600:].tolist(), deeper) == ([-1, 600, 601, 600], 88)


def _event(category: str, name: str, at: int, until: int, **arguments: int) -> dict[str, object]:
    times = {"ts": at, "dur": until - at}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, **times, "args": arguments}


def _written(path: Path, category: str, name: str) -> Path:
    last = 10 * _DEPTH
    events = [_event(category, f"{name}_{n}", n, last - n, **{"External id": n}) for n in range(_DEPTH)]
    events.append(_event("cpu_op", "aten::mm", 4 * _DEPTH, 4 * _DEPTH + 9, **{"External id": _DEPTH}))
    events.append(_event("cuda_runtime", "cudaLaunchKernel", 4 * _DEPTH + 2, 4 * _DEPTH + 4, correlation=7))
    kernel = _event("kernel", "gemm", 4 * _DEPTH + 5, 4 * _DEPTH + 8, correlation=7, device=0, stream=7)
    path.write_bytes(msgspec.json.encode({"schemaVersion": 1, "traceEvents": [*events, {**kernel, "tid": 7}]}))
    return path


@pytest.mark.parametrize(
    ("category", "name", "source", "innermost"),
    [
        ("python_function", "nn.Module: Block", "module", "Block_2999"),
        ("user_annotation", "part", "range", "part_2999"),
    ],
)
def test_paths_do_not_grow_with_the_depth_and_the_ledger_says_so(
    tmp_path: Path, category: str, name: str, source: str, innermost: str
) -> None:
    trace = convert([_written(tmp_path / "trace.json", category, name)], Options(layer_source=source))
    paths = trace.frame("layers").select("path").to_series().cast(pl.String).to_list()
    assert len(paths) == _DEPTH
    assert max(path.count(".") for path in paths) < MAX_DEPTH
    spans = trace.frame("spans")
    kernel = spans.filter(spans["kind"].cast(str) == "kernel").row(0, named=True)
    layers = trace.frame("layers")
    assert layers.filter(layers["span_id"] == kernel["layer_id"])["layer_name"].cast(str).to_list() == [innermost]
    assert ledger_counts(trace)["nested_too_deep"] == _DEPTH + 3 - MAX_DEPTH
