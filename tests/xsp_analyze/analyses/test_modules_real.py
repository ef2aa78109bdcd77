"""Modules of real traces: A11, B06 and coverage tell the same, and named ranges change nothing."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real

_NAMES = ("DistributedDataParallel.forward", "Optimizer.step#SGD.step", "[pl]step", "ProfilerStep#1", "## part ##")


@pytest.mark.parametrize(
    "name",
    [
        "bert_small.h100",
        "normalization_layers_train.mi300x",
        "resnet18_train_ddp.mi300x",
        "vllm_prefilldecode_piecewise_graph.mi300",  # 149,919,755 ns of graph replays in GraphModule_0
        "graph_pairs/xdit_flux.mi300.replay",
    ],
)
def test_layers_the_module_tree_and_coverage_tell_the_same(name: str, real_dir: Path) -> None:
    trace = convert([real_dir / f"kineto/{name}.json.gz"], Options())
    frames = StepView.of(trace, steps="all")
    layers, modules = run(find("A11"), frames).table, run(find("B06"), frames).table
    of_layers = layers.filter(pl.col("layer_index").is_not_null(), pl.col("kernel_duration_ns") > 0)
    own = (
        modules.group_by("module_instance")
        .agg(pl.col("self_device_sum_ns").sum())
        .filter(pl.col("self_device_sum_ns") > 0)
    )
    assert dict(own.rows()) == dict(of_layers.select("layer_name", "kernel_duration_ns").rows())
    spent = trace.frame("spans").drop_nulls("attribution").group_by("attribution").agg(pl.col("duration_ns").sum())
    coverage = {str(kind): duration for kind, duration in spent.rows()}
    assert coverage["layer"] == of_layers["kernel_duration_ns"].sum()
    replays = layers.filter(pl.col("layer_index").is_null())
    assert coverage.get("graph_replay", 0) == replays["kernel_duration_ns"].sum()


@pytest.mark.parametrize("name", ["bert_small.h100", "normalization_layers_train.mi300x"])
def test_ranges_around_anything_change_nothing_of_modules(name: str, real_dir: Path, tmp_path: Path) -> None:
    path = real_dir / f"kineto/{name}.json.gz"
    with gzip.open(path) as file:
        document = json.load(file)
    choose = random.Random(5)  # noqa: S311
    calls = [e for e in document["traceEvents"] if e.get("cat") in {"cpu_op", "python_function"} and e["ph"] == "X"]
    for _ in range(60):  # as long as calls of the program, and from the start of one to the end of another
        first, last = choose.choice(calls), choose.choice(calls)
        last = choose.choice((first, last if last["ts"] > first["ts"] else first))
        bounds = {
            "pid": first["pid"],
            "tid": first["tid"],
            "ts": first["ts"],
            "dur": last["ts"] + last["dur"] - first["ts"],
        }
        document["traceEvents"].append({"ph": "X", "cat": "user_annotation", "name": choose.choice(_NAMES), **bounds})
    marked = tmp_path / "marked.json"
    marked.write_text(json.dumps(document))
    assert _device_time(convert([marked], Options())) == _device_time(convert([path], Options()))


def _device_time(trace: Trace) -> list[tuple[object, ...]]:
    frames = StepView.of(trace, steps="all")
    layers, modules = run(find("A11"), frames).table, run(find("B06"), frames).table
    return [
        *layers.select("layer_index", "layer_name", "kernel_count", "kernel_duration_ns").rows(),
        *modules.drop("host_ns", "self_host_ns").rows(),
    ]
