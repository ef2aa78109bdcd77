"""What trtexec exports: layers of a mean inference, and the times of each inference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path


def _read(folder: Path, text: str) -> Trace:
    path = folder / "export.json"
    path.write_text(text, encoding="utf-8")
    return convert([path], Options())


def test_layers_are_as_long_as_their_average_and_stand_end_to_end(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        """[
  { "count" : 641 }
, { "name" : "conv1 + relu1", "timeMs" : 28.9723, "averageMs" : 0.0451986, "medianMs" : 0.044224, "percentage" : 60 }
, { "name" : "fc", "timeMs" : 12.8778, "averageMs" : 0.0200902, "percentage" : 40 }
]
""",
    )
    spans = named(trace)
    assert [spans[n]["duration_ns"] for n in ("mean inference", "conv1 + relu1", "fc")] == [65_289, 45_199, 20_090]
    assert [spans[n]["start_ns"] for n in ("mean inference", "conv1 + relu1", "fc")] == [0, 0, 45_199]
    assert spans["fc"]["parent"] == "mean inference"
    assert trace.frame("runs").select("level_captured", "framework").row(0) == ("ML", "tensorrt")
    metrics = trace.frame("metrics").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert metrics.select("metric", "value", "unit").rows() == [
        ("invocations", 641.0, "1"),
        ("median_duration_ns", 44_224.0, "ns"),
    ]
    assert ledger_counts(trace) == {"averaged_times": 2}


def test_a_layer_of_no_time_is_a_layer_of_its_own_wherever_it_stands(tmp_path: Path) -> None:
    layers = [
        {"count": 2},
        *({"name": n, "averageMs": ms} for n, ms in (("z1", 0), ("a", 1), ("z2", 0), ("b", 2), ("z3", 0))),
    ]
    trace = _read(tmp_path, json.dumps(layers))
    rows = trace.frame("layers").with_columns(pl.col(pl.Categorical).cast(pl.String)).sort("layer_index")
    assert rows["layer_name"].to_list() == ["z1", "a", "z2", "b", "z3"]
    assert not rows["is_container"].any()
    assert {span["parent"] for span in named(trace).values()} == {None, "mean inference"}


def test_what_tensorrt_inserted_itself_has_a_type(tmp_path: Path) -> None:
    names = (
        "Reformatting CopyNode for Input Tensor 0 to fc",
        "conv1 input reformatter 0",
        "PWN(PWN(/Sub), /Div)",
        "001_convolutional + 001_activation",
        "layers.3.matmul",
        "model.pool/MaxPool",
        "fc",
    )
    trace = _read(tmp_path, json.dumps([{"count": 1}, *({"name": name, "averageMs": 1} for name in names)]))
    layers = trace.frame("layers").sort("layer_index")
    assert layers["layer_type"].cast(pl.String).to_list() == [
        *("Reformat", "Reformat", "PointWise", "Convolution", "MatrixMultiply", "Pooling", "FullyConnected"),
    ]


def test_a_total_without_an_average_is_divided_by_the_count(tmp_path: Path) -> None:
    trace = _read(tmp_path, '[{"count": 3}, {"name": "a", "timeMs": 0.3}]')
    assert named(trace)["a"]["duration_ns"] == 100_000


def test_names_with_foreign_bytes_have_them_replaced(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(b'[{"count": 1}, {"name": "a\xe1", "averageMs": 1}]')
    assert "a\ufffd" in named(convert([path], Options()))


def test_each_inference_is_a_step_with_exact_times(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        '[ {"startEnqMs" : 0.95, "endEnqMs" : 1.15, "startH2dMs" : 0.91, "endH2dMs" : 0.94, "startComputeMs" : 1.06123,'
        ' "endComputeMs" : 2.06, "startD2hMs" : 2.07, "endD2hMs" : 2.100001, "latencyMs" : 1.06 } ]',
    )
    spans = named(trace)
    assert {name: (s["start_ns"], s["duration_ns"], s["parent"]) for name, s in spans.items()} == {
        "inference": (0, 1_190_001, None),
        "host-to-device copy": (0, 30_000, "inference"),
        "enqueue": (40_000, 200_000, "inference"),
        "compute": (151_230, 998_770, "inference"),
        "device-to-host copy": (1_160_000, 30_001, "inference"),
    }
    assert trace.frame("runs")["level_captured"].to_list() == ["MLG"]
    work = {name: (span["level"], span["kind"], span["step"]) for name, span in spans.items() if span["device_id"] == 0}
    assert work == {
        "host-to-device copy": ("kernel", "memcpy", 0),
        "compute": ("kernel", "kernel", 0),
        "device-to-host copy": ("kernel", "memcpy", 0),
    }


def test_inferences_that_overlap_are_steps_of_their_own(tmp_path: Path) -> None:
    times = [{"startComputeMs": n, "endComputeMs": n + 2.5} for n in range(4)]
    trace = _read(tmp_path, json.dumps(times))
    steps = trace.frame("spans").filter(pl.col("level") == "model")
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert steps["parent_id"].null_count() == 4
    assert steps["thread_id"].to_list() == [0, 2, 4, 0]


def test_tensorrt_7_calls_the_copies_in_and_out(fixtures_dir: Path) -> None:
    old = convert([fixtures_dir / "tensorrt" / "times_trt7_synthetic"], Options()).frame("spans")
    new = convert([fixtures_dir / "tensorrt" / "times_synthetic"], Options()).frame("spans")
    columns = [pl.col("name").cast(pl.String), "start_ns", "duration_ns"]
    assert old.select(columns).rows() == new.filter(pl.col("name") != "enqueue").select(columns).rows()


@pytest.mark.parametrize(
    "text", ['[{"count": 1}]', '[{"count": 1}, {"name": "a", "averageMs": null}]', '[{"latencyMs": 4}]']
)
def test_files_without_a_time_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(XspError, match=r"^[^\n]*(?:average time|has times)"):
        _read(tmp_path, text)


_NUMBER = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.text(max_size=4) | st.booleans()
)
_KEYS = ("startH2dMs", "endH2dMs", "startEnqMs", "endEnqMs", "startComputeMs", "endComputeMs", "startD2hMs", "endD2hMs")


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.dictionaries(st.sampled_from(_KEYS), _NUMBER), max_size=4))
def test_times_of_any_value_are_counted_or_refused(tmp_path: Path, entries: list[dict[str, object]]) -> None:
    try:
        trace = _read(tmp_path, json.dumps([{"startComputeMs": 1, "endComputeMs": 2}, *entries]))
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(st.sampled_from(("name", "timeMs", "averageMs", "medianMs", "count")), _NUMBER), max_size=4
    )
)
def test_layers_of_any_value_are_counted_or_refused(tmp_path: Path, entries: list[dict[str, object]]) -> None:
    try:
        trace = _read(tmp_path, json.dumps([{"count": 3}, {"name": "a", "averageMs": 1}, *entries]))
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []
