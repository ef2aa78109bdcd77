"""The same events in another order give the same bundle, byte by byte, but for the digest of the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.shuffled import shuffled
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIXTURES = Path("fixtures")
_OF_THE_SOURCE = ("source_sha256", "source_bytes")
# Not ONNX Runtime's with CUDA, whose kernels stand behind their node.
_SMALL = (
    "torch_profiler/serving_synthetic/trace.json.gz",
    "torch_profiler/old_categories/trace.json",
    "nsys_sqlite/inference_2gpu_synthetic/trace.sqlite",
    "nsys_sqlite/messages_synthetic/trace.sqlite",
    "nsys_sqlite/graphs_synthetic/trace.sqlite",
    "onnxruntime/loop_cpu/profile.json.gz",
    "tf_timeline/gpu_synthetic/timeline.json",
    "chrome_trace/loader_synthetic/trace.json",
    "mxnet/old_synthetic/profile.json",
)
_LARGE = (
    "torch_profiler/transformer_train_gpu_synthetic/trace.json.gz",
    "torch_profiler/graph_replay_synthetic/trace.json.gz",
    "torch_profiler/training_memory_cpu/trace.json.gz",
    "nsys_sqlite/layerwise_cpu/nvtx.sqlite",
    "nsys_sqlite/twin_step_cpu/nvtx.sqlite",
    "onnxruntime/convnet_cpu/profile.json.gz",
    "tf_timeline/tensorflow_train_cpu/timeline.json",
    "rocprofv3/json_synthetic/7_results.json.gz",
    "xplane/jax_gpu_synthetic/trace.xplane.pb",
    "xplane/jax_train_cpu/steps.xplane.pb",
    "xplane/tensorflow_gpu_synthetic/trace.xplane.pb",
)


def _content(source: Path, folder: Path) -> Mapping[str, object]:
    """What each file of the bundle holds; of `runs`, all that is not the source's own."""
    bundle.write(convert([source], Options()), folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    runs = pl.read_parquet(folder / "runs.parquet").drop(_OF_THE_SOURCE)
    return {**files, "runs.parquet": runs.rows()}


def _check(source: Path, seed: int, tmp_path: Path) -> None:
    plain = _content(source, tmp_path / "plain.xsp")
    other = _content(shuffled(source, tmp_path / "shuffled", seed), tmp_path / "shuffled.xsp")
    assert [name for name in plain if plain[name] != other[name]] == []


@pytest.mark.parametrize("name", _SMALL)
def test_events_turned_around_give_the_same_bundle(name: str, tmp_path: Path) -> None:
    _check(_FIXTURES / name, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [*_SMALL, *_LARGE])
def test_shuffled_events_give_the_same_bundle(name: str, seed: int, tmp_path: Path) -> None:
    _check(_FIXTURES / name, seed, tmp_path)
