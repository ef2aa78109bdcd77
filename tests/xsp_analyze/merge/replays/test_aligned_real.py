"""Real runs rewritten as replays: each kernel's layer is that of the eager kernel that it was written from.

The rewritten file has a graph launch and the device activities alone, each as long after the first as in the real run,
so that its time tells which one it was. Nothing of the host's is left that could say so.
"""

from __future__ import annotations

import gzip
import json
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_analyze.merge.merge import merge
from xsp_ingest.convert import convert_run
from xsp_ingest.ingester import Options
from xsp_ingest.staging.raw import RunOverrides

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_KERNELS = RunOverrides(role="kernels", model="the same")


def _activities(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    return sorted((event for event in events if event.get("cat") in _DEVICE), key=lambda event: Decimal(event["ts"]))


def _as_replay(activities: Sequence[dict[str, Any]], path: Path, *, grids: bool = True) -> Path:
    """One graph launch with all activities, in any order; ROCm records no grids of such."""
    first = Decimal(activities[0]["ts"])
    kept = {"device", "stream", *(("grid", "block") if grids else ())}
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1, "ts": "0", "dur": 5,
         "args": {"correlation": 1}}
    ]  # fmt: skip
    for event in activities:
        arguments = {key: value for key, value in event["args"].items() if key in kept}
        time = {"ts": Decimal(event["ts"]) - first + 100, "dur": event["dur"]}
        events.append({**event, **time, "args": {**arguments, "correlation": 1}})
    random.Random(1).shuffle(events)  # noqa: S311 (a test's dice)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}, default=float))
    return path


def _read(path: Path) -> Trace:
    return convert_run([(path, None)], Options(), _KERNELS)


def _layers(profile: Trace, run: int) -> pl.DataFrame:
    """Of each activity of the run, by its time after the first: attribution, path of its layer, phase."""
    paths = profile.frame("layers").select(pl.col("span_id").alias("layer_id"), "path")
    return (
        profile.frame("spans")
        .filter(pl.col("run_id") == run, pl.col("attribution").is_not_null())
        .with_columns(pl.col("attribution").cast(pl.String), offset_ns=pl.col("start_ns") - pl.col("start_ns").min())
        .join(paths, on="layer_id", how="left", maintain_order="left")
        .select("offset_ns", "device_id", "stream_id", "name", "attribution", "path", "phase", "duration_ns")
        .sort("offset_ns", "stream_id")
    )


@pytest.mark.parametrize(
    ("name", "in_layers"),
    [("bert_small.h100", 61), ("resnet18_train_ddp.mi300x", 2_335), ("resnet_train.rtx2080ti", 10_113)],
)
def test_every_replayed_kernel_has_the_layer_it_was_written_from(
    name: str, in_layers: int, real_dir: Path, tmp_path: Path
) -> None:
    eager = real_dir / f"kineto/{name}.json.gz"
    profile = merge(
        [_read(_as_replay(_activities(eager), tmp_path / "replay.json", grids="mi300x" not in name)), _read(eager)]
    )
    replayed, real = _layers(profile, 0), _layers(profile, 1)
    in_layer = replayed.filter(pl.col("attribution") == "layer")
    assert in_layer.height == in_layers
    assert in_layer.equals(real.filter(pl.col("attribution") == "layer"))


@pytest.mark.parametrize("seed", range(3))
def test_what_lacks_kernels_gets_no_wrong_layer(seed: int, real_dir: Path, tmp_path: Path) -> None:
    """Two of 61 kernels left out: nothing of the rest is of another layer, and most is of its own."""
    eager = real_dir / "kineto/bert_small.h100.json.gz"
    activities = _activities(eager)
    for _ in range(2):
        activities.pop(random.Random(seed).randrange(1, len(activities)))  # noqa: S311 (a test's dice)
    steps = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 10**6}
    replay = _as_replay(activities, tmp_path / "replay.json")
    content = json.loads(replay.read_text())
    content["traceEvents"].append({**steps, "args": {}})
    replay.write_text(json.dumps(content))
    profile = merge([_read(replay), _read(eager)])
    real = _layers(profile, 1).select("offset_ns", "path", "phase")
    layered = _layers(profile, 0).filter(pl.col("attribution") == "layer")
    assert layered.height >= 50
    assert layered.join(real, on=["offset_ns", "path", "phase"], how="semi").height == layered.height
