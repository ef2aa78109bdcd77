"""Memory-bound work models on real traces of GPUs: against the launches in the files, and the bandwidths of devices."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_analyze.frames.operators.modelled_calls import is_modelled, is_view
from xsp_analyze.frames.operators.operator_calls import call_of_work, operator_calls
from xsp_analyze.trace.trace_view import TraceView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.real

_FILES = (
    "bert_small.h100.json.gz", "bert_small.mi300x.json.gz", "diff_control.json.gz", "minitoy_train.mi250.json.gz",
    "nccl_training.json.gz", "normalization_layers_train.mi300x.json.gz", "resnet18_train_ddp.mi300x.json.gz",
    "resnet50_train_torch19.v100.json.gz", "vllm_prefilldecode_piecewise_graph.mi300.json.gz",
)  # fmt: skip
_OPERATORS, _CALLS = {"cpu_op", "operator"}, {"cuda_runtime", "cuda_driver", "runtime"}
_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_UNMODELLED = {"aten::index"}
"""Launch work in these files, are of our families, and have no model: what they do follows from no recorded input."""


@pytest.mark.parametrize("name", _FILES)
def test_what_launches_work_is_no_view_and_has_a_model(name: str, real_dir: Path) -> None:
    launching = set(_launching(json.loads(gzip.decompress((real_dir / "kineto" / name).read_bytes()))["traceEvents"]))
    assert launching
    assert {each for each in launching if is_view(each)} == set()
    products = ("conv", "mm", "attention")
    others = {each for each in launching if each.startswith("aten::") and not any(p in each for p in products)}
    assert {each for each in others if not is_modelled(each)} <= _UNMODELLED


@pytest.mark.parametrize(
    ("name", "bytes_per_ns"),
    [
        ("resnet18_train_ddp.mi300x.json.gz", 5300),
        ("resnet50_train_torch19.v100.json.gz", 900),
        ("graph_pairs/xdit_flux.mi300.capture.json.gz", 5300),
    ],
)
def test_no_large_call_moves_more_than_memory_can(name: str, bytes_per_ns: float, real_dir: Path) -> None:
    """Of operands that no cache holds (over 60 MB); the peaks are AMD's and NVIDIA's data sheets'."""
    frames = TraceView(convert([real_dir / "kineto" / name], Options()))
    work, counted = frames.all_activities, frames.once(operator_calls)
    units = pl.DataFrame({"row": frames.once(call_of_work), "duration_ns": work["duration_ns"]})
    moved = pl.col("read_bytes") + pl.col("written_bytes")
    modelled = counted.kinds[counted.calls["kind"].to_numpy()].with_columns(pl.int_range(pl.len()).alias("row"))
    calls = modelled.join(units.group_by("row").agg(pl.col("duration_ns").sum()), on="row")
    rates = calls.filter(moved > 60e6, pl.col("flop") == 0).select("name", rate=moved / pl.col("duration_ns"))
    assert len(rates) > 1
    assert rates.filter(pl.col("rate") > bytes_per_ns).rows() == []
    assert rates["rate"].max() > 0.8 * bytes_per_ns  # type: ignore[operator]


def _launching(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The innermost operator around each call that started device work, by time and thread in the file alone."""
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    started = {e["args"].get("correlation") for e in timed if e["cat"].lower() in _WORK}
    threads = defaultdict(list)
    for event in timed:
        if event["cat"].lower() in _OPERATORS | _CALLS:
            threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        stack: list[dict[str, Any]] = []
        for event in sorted(thread, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
            while stack and float(stack[-1]["ts"]) + float(stack[-1]["dur"]) < float(event["ts"]):
                stack.pop()
            if event["cat"].lower() in _OPERATORS:
                stack.append(event)
            elif stack and event["args"].get("correlation") in started:
                yield stack[-1]["name"]
