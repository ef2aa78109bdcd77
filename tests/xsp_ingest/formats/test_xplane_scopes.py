"""Layers of a profile by the scopes of its operators: which calls there are, and what belongs to them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.linked import ledger_counts
from tests.helpers.synth_xplane import Profile
from xsp_ingest.convert import convert
from xsp_ingest.formats.xplane.operators import chain_of
from xsp_ingest.ingester import LayerScope, Options
from xsp_ingest.run_set import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

_NET = {
    "net_1": LayerScope("net", "Functional", 0),
    "net_1/conv": LayerScope("conv", "Conv2D", 1),
    "net_1/norm_1": LayerScope("norm", "BatchNormalization", 2),
}


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("net_1/conv/Conv2D", ("net_1", "net_1/conv")),
        ("net_1/conv/Cast/ReadVariableOp", ("net_1", "net_1/conv")),
        ("StatefulPartitionedCall/net_1/norm_1/mul", ("net_1", "net_1/norm_1")),
        ("gradient_tape/net_1/conv/Conv2DBackpropFilter", ("net_1", "net_1/conv")),
        ("net_1/convolution/Conv2D", ("net_1",)),
        ("net_1/mul", ("net_1",)),
        ("jit(step)/jvp(net_1)/conv/dot_general", ("net_1", "net_1/conv")),
        ("jit(step)/transpose(jvp(net_1))/conv/dot_general", ("net_1", "net_1/conv")),
        ("jit(step)/vmap(transpose(jvp(net_1/norm_1)))/jit(relu)/max", ("net_1", "net_1/norm_1")),
        ("jit(net_1)/sub", ()),
        ("sgd/mul", ()),
        ("", ()),
        ("///", ()),
        ("jit(", ()),
    ],
)
def test_a_name_tells_the_layers_around_an_operator(name: str, chain: Sequence[str]) -> None:
    assert chain_of(name, _NET) == tuple(chain)


@given(st.text(alphabet="net_1/conv()jvp", max_size=40))
def test_any_name_has_layers_that_are_known_each_inside_the_one_before(name: str) -> None:
    chain = chain_of(name, _NET)
    assert set(chain) <= set(_NET)
    assert all(inner.startswith(outer + "/") for outer, inner in itertools.pairwise(chain))


def _interleaved() -> Profile:
    """Two steps on one thread; in each `norm` runs in two stretches, before and after `conv`."""
    profile = Profile()
    host = profile.plane("/host:CPU")
    main, executor = host.line(1, "python"), host.line(7, "tf_Compute/7")
    for step, begin in enumerate((1_000, 2_000)):
        host.event(main, "step", begin, 900, step_num=step)
        for name, start, length in (
            ("net_1/norm_1/Cast/ReadVariableOp:ReadVariableOp", 10, 5),
            ("net_1/conv/Conv2D:Conv2D", 20, 100),
            ("net_1/norm_1/mul:Mul", 130, 20),
            ("net_1/norm_1/add:AddV2", 160, 30),
            ("sgd/mul:Mul", 200, 7),
        ):
            host.event(executor, name, begin + start, length)
    return profile


def _converted(profile: Profile, folder: Path) -> Trace:
    return convert([profile.write(folder / "host.xplane.pb")], Options(layer_scopes=_NET))


def _calls(trace: Trace) -> list[tuple[object, ...]]:
    spans = trace.frame("spans").select("span_id", "step", "start_ns", "duration_ns")
    layers = trace.frame("layers").join(spans, on="span_id").sort("start_ns", "layer_name")
    columns = ["step", "layer_name", "start_ns", "duration_ns"]
    return layers.filter(~pl.col("is_container")).with_columns(pl.col("layer_name").cast(str)).select(columns).rows()


def test_operators_that_follow_each_other_in_a_layer_are_one_call_of_it(tmp_path: Path) -> None:
    calls = _calls(_converted(_interleaved(), tmp_path))
    assert calls == [
        (0, "norm", 10, 5),
        (0, "conv", 20, 100),
        (0, "norm", 130, 60),
        (1, "norm", 1_010, 5),
        (1, "conv", 1_020, 100),
        (1, "norm", 1_130, 60),
    ]


def test_layers_have_the_type_and_the_order_that_were_given(tmp_path: Path) -> None:
    trace = _converted(_interleaved(), tmp_path)
    layers = trace.frame("layers").filter(pl.col("layer_index").is_not_null()).unique("layer_name").sort("layer_index")
    assert layers.select(pl.col("layer_name", "layer_type", "path").cast(str)).rows() == [
        ("conv", "Conv2D", "net.conv"),
        ("norm", "BatchNormalization", "net.norm"),
    ]
    assert trace.frame("runs")["layer_source"].to_list() == ["module"]


def test_a_path_does_not_say_again_what_a_name_begins_with(tmp_path: Path) -> None:
    scopes = {name: LayerScope(name) for name in ("block", "block/attention", "block/attention/query", "jvp")}
    profile = Profile()
    host = profile.plane("/host:CPU")
    host.event(host.line(7, "tf_Compute/7"), "block/attention/query/MatMul:MatMul", 10, 5)
    trace = convert([profile.write(tmp_path / "host.xplane.pb")], Options(layer_scopes=scopes))
    layers = trace.frame("layers").filter(pl.col("layer_index").is_not_null())
    assert layers.select(pl.col("layer_name", "layer_type", "path").cast(str)).rows() == [
        ("block/attention/query", "block/attention/query", "block.attention.query")
    ]


def test_what_no_layer_holds_is_counted(tmp_path: Path) -> None:
    trace = _converted(_interleaved(), tmp_path)
    assert ledger_counts(trace)["operators_outside_layers"] == 2
    assert trace.frame("ledger").filter(kind="operators_outside_layers")["duration_ns"].to_list() == [14]


def test_time_of_operators_is_conserved(tmp_path: Path) -> None:
    trace = _converted(_interleaved(), tmp_path)
    spans = trace.frame("spans")
    layer = spans.join(trace.frame("layers").select("span_id", pl.col("layer_name")), on="span_id")
    held = spans.filter(level="operator").join(
        layer.select(pl.col("span_id").alias("parent_id"), "layer_name"), on="parent_id", how="left"
    )
    by_layer = held.group_by(pl.col("layer_name").cast(str)).agg(pl.col("duration_ns").sum())
    assert dict(by_layer.iter_rows()) == {"norm": 110, "conv": 200, None: 14}


def test_without_scopes_operators_are_layers_as_ever(tmp_path: Path) -> None:
    trace = convert([_interleaved().write(tmp_path / "host.xplane.pb")], Options())
    assert trace.frame("runs")["layer_source"].to_list() == ["operator"]
    assert "operators_outside_layers" not in ledger_counts(trace)


def test_a_backward_kernel_belongs_to_the_layer_in_the_backward_phase(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    executor = host.line(7, "tf_Compute/7", 1_000)
    host.event(executor, "net_1/conv/Conv2D:Conv2D", 50, 20)
    host.event(executor, "gradient_tape/net_1/conv/Conv2DBackpropFilter:Conv2DBackpropFilter", 100, 50)
    host.event(executor, "cuLaunchKernel", 110, 5, correlation_id=3)
    gpu = profile.plane("/device:GPU:0")
    stream = gpu.line(14, "Stream #14(Compute)", 2_000)
    gpu.event(stream, "wgrad", 10, 40, correlation_id=3, kernel_details="regs:38 grid:1,1,1 block:32,1,1")
    trace = _converted(profile, tmp_path)
    layers = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(str))
    kernel = trace.frame("spans").filter(level="kernel").join(layers, on="layer_id").row(0, named=True)
    assert (kernel["layer_name"], kernel["phase"], kernel["attribution"]) == ("conv", "backward", "layer")
    assert [call[1] for call in _calls(trace)] == ["conv", "conv"]


def test_a_call_ends_with_the_range_around_it(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    executor = host.line(7, "tf_Compute/7")
    for begin in (0, 100):
        host.event(executor, "ExecutorState::Process", begin, 50)
        host.event(executor, "net_1/conv/Conv2D:Conv2D", begin + 10, 20)
    trace = _converted(profile, tmp_path)
    assert [call[2:] for call in _calls(trace)] == [(10, 20), (110, 20)]
    assert not trace.frame("spans")["ambiguous"].any()


def test_a_run_json_names_the_scopes(tmp_path: Path) -> None:
    _interleaved().write(tmp_path / "trace.xplane.pb")
    layers = [{"scope": "net_1/norm_1"}, {"scope": "net_1/conv", "name": "conv", "type": "Conv2D", "place": 3}]
    described = {
        "schema_version": 1,
        "level": "ML",
        "model": {"name": "net"},
        "framework": {"name": "tensorflow"},
        "batch_size": 2,
        "device": {"name": "cpu"},
        "steps": 2,
        "step_durations_ns": [900, 900],
        "files": [{"path": "trace.xplane.pb", "format": "xplane"}],
        "layers": layers,
    }
    (tmp_path / "run.json").write_text(json.dumps(described))
    trace = read_run(tmp_path / "run.json", Options())
    assert {call[1] for call in _calls(trace)} == {"net_1/norm_1", "conv"}
