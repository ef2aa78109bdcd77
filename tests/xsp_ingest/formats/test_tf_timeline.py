"""TensorFlow timelines: lanes, what repeats itself, tensors and memory, and what is broken in them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_EPOCH_US = 1_700_000_000_000_000
_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_GPU = "/device:GPU:1"


class _Timeline:
    """Events of a timeline; times in microseconds after a fixed moment."""

    def __init__(self, *devices: str) -> None:
        labels = ["Allocators", *(f"{device} {what}" for device in devices for what in ("Compute", "Tensors"))]
        self.pid = {label: pid for pid, label in enumerate(labels)}
        self.events: list[object] = [
            {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": label}} for label, pid in self.pid.items()
        ]

    def op(
        self, device: str, node: str, op: str, start: float, duration: object, *, tid: int = 0, **args: object
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": "Op",
                "name": op,
                "pid": self.pid[f"{device} Compute"],
                "tid": tid,
                "ts": _EPOCH_US + start,
                "dur": duration,
                "args": {"name": node, "op": op, **args},
            }
        )

    def tensor(self, device: str, name: str, number: int, start: int, *, shape: tuple[int, ...], size: int) -> None:
        dims = "".join(f"  dim {{\n    size: {n}\n  }}\n" for n in shape)
        text = f"dtype: DT_FLOAT\nshape {{\n{dims}}}\nallocation_description {{\n  requested_bytes: {size}\n}}\n"
        common = {"cat": "Tensor", "name": name, "pid": self.pid[f"{device} Tensors"], "tid": 0, "id": number}
        self.events.append({"ph": "N", "ts": _EPOCH_US + start, **common})
        self.events.append(
            {"ph": "O", "ts": _EPOCH_US + start, "args": {"snapshot": {"tensor_description": text}}, **common}
        )

    def to_bytes(self) -> bytes:
        return json.dumps({"traceEvents": self.events}).encode()

    def read(self, folder: Path) -> Trace:
        path = folder / "timeline.json"
        path.write_bytes(self.to_bytes())
        return convert([path], Options())


def _gpu() -> _Timeline:
    """An operator on a GPU with its kernel, in all the lanes that show it."""
    timeline = _Timeline(_GPU, f"{_GPU}/stream:all", f"{_GPU}/stream:13", f"{_GPU}/memcpy")
    timeline.op(_GPU, "conv1/Conv2D", "Conv2D", 0, 30)
    for lane in ("stream:all", "stream:13"):
        timeline.op(f"{_GPU}/{lane}", "conv1/Conv2D", "Conv2D", 50, 40)
    timeline.op(f"{_GPU}/memcpy", "edge_1_x", "MEMCPYHtoD", 5, 10)
    return timeline


def test_stream_all_is_not_counted_twice(tmp_path: Path) -> None:
    trace = _gpu().read(tmp_path)
    device = trace.frame("spans").filter(level="kernel").select("kind", "stream_id", "duration_ns").rows()
    assert device == [("memcpy", None, 10_000), ("kernel", 13, 40_000)]
    assert ledger_counts(trace)["events_left_out"] == 1


def test_without_numbered_streams_stream_all_is_read(tmp_path: Path) -> None:
    timeline = _Timeline(_GPU, f"{_GPU}/stream:all")
    timeline.op(f"{_GPU}/stream:all", "conv1/Conv2D", "Conv2D", 50, 40)
    spans = timeline.read(tmp_path).frame("spans").filter(level="kernel")
    assert spans["duration_ns"].to_list() == [40_000]


def test_a_copy_that_a_stream_shows_too_is_one_copy(tmp_path: Path) -> None:
    timeline = _gpu()
    timeline.op(f"{_GPU}/stream:13", "edge_1_x", "MEMCPYHtoD", 5, 10)
    trace = timeline.read(tmp_path)
    copies = trace.frame("spans").filter(kind="memcpy").select("stream_id", "device_id").rows()
    assert copies == [(13, 1)]
    assert trace.frame("copies")["copy_kind"].to_list() == ["Host-to-Device"]


def test_a_kernel_belongs_to_the_operator_of_its_node(tmp_path: Path) -> None:
    timeline = _gpu()
    timeline.op(_GPU, "conv1/Conv2D", "Conv2D", 200, 30)  # the node once more, in a loop
    for lane in ("stream:all", "stream:13"):
        timeline.op(f"{_GPU}/{lane}", "conv1/Conv2D", "Conv2D", 260, 41)
    spans = timeline.read(tmp_path).frame("spans")
    starts = dict(zip(spans["span_id"], spans["start_ns"], strict=True))
    kernels = spans.filter(kind="kernel")
    assert [starts[parent] for parent in kernels["parent_id"]] == [0, 200_000]
    assert kernels["attribution"].to_list() == ["layer", "layer"]
    assert kernels["device_id"].to_list() == [1, 1]


def test_a_kernels_name_is_taken_where_there_is_one(tmp_path: Path) -> None:
    timeline = _Timeline(_GPU, f"{_GPU}/stream:2")
    timeline.op(_GPU, "a", "MatMul", 0, 5)
    timeline.op(f"{_GPU}/stream:2", "a", "MatMul", 10, 5, kernel="Cijk_Ailk")
    trace = timeline.read(tmp_path)
    assert named(trace)["Cijk_Ailk"]["parent"] == "a"
    assert "kernel_without_name" not in ledger_counts(trace)


def test_operators_keep_node_type_and_lane(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    timeline.op(_CPU, "dense/MatMul", "MatMul", 0, 7)
    timeline.op(_CPU, "gradients/dense/MatMul_grad/MatMul", "MatMul", 3, 9, tid=1)
    trace = timeline.read(tmp_path)
    spans = named(trace)
    assert (spans["dense/MatMul"]["duration_ns"], spans["dense/MatMul"]["phase"]) == (7_000, "other")
    assert spans["gradients/dense/MatMul_grad/MatMul"]["phase"] == "backward"
    assert spans["dense/MatMul"]["thread_id"] != spans["gradients/dense/MatMul_grad/MatMul"]["thread_id"]
    assert (spans["RunMetadata"]["kind"], spans["RunMetadata"]["duration_ns"]) == ("step", 12_000)
    assert trace.frame("layers")["layer_type"].to_list() == ["MatMul", "MatMul"]
    assert trace.frame("runs")["epoch_ns"].to_list() == [_EPOCH_US * 1000]


def test_the_scope_of_an_optimizer_is_its_phase(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    nodes = ("dense/MatMul", "gradients/dense/MatMul_grad/MatMul", "Adam/update_dense/kernel/ApplyAdam", "Adam/mul",
             "train/update_dense/bias/ApplyGradientDescent", "train/learning_rate", "update_rule/Mul")  # fmt: skip
    for n, node in enumerate(nodes):
        timeline.op(_CPU, node, node.rsplit("/", maxsplit=1)[-1], 10 * n, 9, tid=0)
    spans = named(timeline.read(tmp_path))
    phases = [spans[node]["phase"] for node in nodes]
    assert phases == ["other", "backward", "optimizer", "optimizer", "optimizer", "other", "other"]


def test_microseconds_with_decimals_are_exact(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    timeline.op(_CPU, "a", "A", 0, 1.001)
    assert named(timeline.read(tmp_path))["a"]["duration_ns"] == 1_001


def test_tensors_give_shapes_and_allocations(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    timeline.op(_CPU, "x", "Const", 0, 5)
    timeline.op(_CPU, "y", "Relu", 10, 5, input0="x")
    timeline.tensor(_CPU, "x", 0, 0, shape=(8, 3), size=96)
    timeline.tensor(_CPU, "y", 1, 10, shape=(), size=4)
    layers = timeline.read(tmp_path).frame("layers")
    assert layers.select("layer_name", "shapes", "dtypes", "allocated_bytes").rows() == [
        ("x", None, None, 96),
        ("y", "[[8, 3]]", '["float"]', 4),
    ]


def test_memory_in_use_is_a_counter_of_its_device(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    timeline.op(_CPU, "x", "Const", 0, 5)
    for allocator, value in (("cpu", 8), ("GPU_2_bfc", 64)):
        timeline.events.append(
            {
                "ph": "C",
                "cat": "Memory",
                "name": allocator,
                "pid": 0,
                "tid": 0,
                "ts": _EPOCH_US,
                "args": {allocator: value},
            }
        )
    counters = timeline.read(tmp_path).frame("counters").select("device_id", "value").rows()
    assert sorted(counters, key=str) == [(2, 64.0), (None, 8.0)]


def test_gzip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json.gz"
    path.write_bytes(gzip.compress(_gpu().to_bytes()))
    assert convert([path], Options()).frame("runs")["format"].to_list() == ["tf_timeline"]


def test_odd_events_are_counted(tmp_path: Path) -> None:
    timeline = _Timeline(_CPU)
    timeline.op(_CPU, "a", "A", 0, 5)
    timeline.op(_CPU, "b", "B", 0, -5)
    timeline.op(_CPU, "c", "C", 0, "long")
    timeline.op(_CPU, "d", "D", float("nan"), 1)
    timeline.op(_CPU, "e", "E", 1e300, 1)
    timeline.events += [7, None, {"ph": "X", "pid": 99, "ts": _EPOCH_US, "dur": 1, "name": "nowhere"}]
    path = tmp_path / "timeline.json"
    path.write_bytes(timeline.to_bytes().replace(b"NaN", b'"NaN"'))
    counts = ledger_counts(convert([path], Options()))
    assert (counts["absurd_duration"], counts["missing_start"]) == (1, 3)
    assert (counts["not_an_event"], counts["unknown_lane"]) == (2, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"traceEvents": [{"name": "Allocators"}', "cut off"),
        (b'{"traceEvents": [{"name": "Allocators",}]}', "not valid JSON"),
        (b'{"traceEvents": {"name": "Allocators"}}', "no list"),
        (b'{"traceEvents": [{"name": "Allocators", "args": ' + b"[" * 100_000, "nested more than 64 deep"),
        (b'{"traceEvents": [{"name": "Allocators"}]}', "holds no operators"),
    ],
)
def test_what_is_broken_is_refused_in_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(XspError) as refused:
        convert([tmp_path / "f"], Options(), format_name="tf_timeline")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(max_examples=examples(150))
@given(offset=st.integers(0, 100_000), value=st.binary(min_size=1, max_size=4), cut=st.integers(0, 40))
def test_a_changed_timeline_is_refused_in_one_sentence_or_read(
    offset: int, value: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path
) -> None:
    content = (fixtures_dir / "tf_timeline" / "gpu_synthetic" / "timeline.json").read_bytes()
    at = offset % len(content)
    path = tmp_path_factory.mktemp("mutated") / "f.json"
    path.write_bytes((content[:at] + value + content[at + len(value) :])[: len(content) - cut])
    assert "\n" not in _complaint(path)


def _complaint(path: Path) -> str:
    """What is said of the file; empty where it can be read. Anything but an XspError fails the test."""
    try:
        convert([path], Options(), format_name="tf_timeline")
    except XspError as error:
        return str(error)
    return ""


@pytest.mark.real
def test_a_real_timeline_of_tensorflow_1(real_dir: Path) -> None:
    trace = convert([real_dir / "tf_timeline" / "anna_cpu.tf1.json"], Options())
    operators = trace.frame("spans").filter(level="operator")
    assert (operators.height, operators["duration_ns"].sum()) == (201, 44_563_000)
    assert trace.frame("runs")["epoch_ns"].to_list() == [1_496_956_793_224_680_000]


def test_products_of_a_recorded_step_have_the_work_on_paper(fixtures_dir: Path) -> None:
    """64 images of 128 numbers, layers of 512 and 10: each forward, and for weights, and the second for its input."""
    trace = convert([fixtures_dir / "tf_timeline" / "tensorflow_train_cpu" / "timeline.json"], Options())
    names = trace.frame("spans").select("span_id", pl.col("name").cast(pl.String))
    metrics = trace.frame("metrics").with_columns(pl.col("metric").cast(pl.String)).join(names, on="span_id")
    flop = metrics.filter(pl.col("metric") == "modelled_flop", pl.col("value") > 0).sort("name")
    first, second = 2.0 * 64 * 128 * 512, 2.0 * 64 * 512 * 10
    assert flop.select("name", "value").rows() == [
        ("dense1/MatMul", first),
        ("dense2/MatMul", second),
        ("gradients/dense1/MatMul_grad/MatMul_1", first),
        ("gradients/dense2/MatMul_grad/MatMul", second),
        ("gradients/dense2/MatMul_grad/MatMul_1", second),
    ]
    written = metrics.filter(pl.col("metric") == "modelled_written_bytes", pl.col("name") == "dense1/MatMul")
    assert written["value"].to_list() == [64 * 512 * 4.0]
