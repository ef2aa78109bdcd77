"""What the host's time is made of where no device worked: layers with their backward pass, optimizers, input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.pages.report.step_bar import step_bar
from xsp_analyze.pages.report.summary import summary_sentences
from xsp_analyze.service import Answers
from xsp_analyze.text.units import duration
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_US = 1_000
_ENGINE = "autograd::engine::evaluate_function: "


def _training_step(kineto: KinetoTrace, start: int, *, modules: bool = True) -> None:
    """1,000 us: input 100; Linear 90, 60 of it in an operator; loss 50; backward 200; optimizer 80; nothing 480.

    The backward pass: of the linear 120, 30 of which nobody numbers; of the loss 50; gradients accumulated 30.
    """

    def at(us: int) -> int:
        return start + us * _US

    step = start // (1000 * _US)
    linear, loss = 10 * step, 10 * step + 1
    kineto.step(step, start, 1000 * _US)
    kineto.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at(0), 100 * _US)
    kineto.operator("aten::stack", at(10), 40 * _US)
    if modules:
        kineto.module("Linear_0", at(200), 90 * _US)
    kineto.operator("aten::linear", at(210), 60 * _US)
    kineto.operator("aten::addmm", at(215), 50 * _US, sequence_number=linear)
    kineto.operator("aten::mse_loss", at(300), 50 * _US, sequence_number=loss)
    nodes = [("MseLossBackward0", 400, 50, loss), ("AddmmBackward0", 450, 120, linear)]
    for name, begin, us, number in nodes:
        kineto.operator(_ENGINE + name, at(begin), us * _US, sequence_number=number, forward_thread_id=1)
        kineto.operator(name, at(begin + 5), (us - 10) * _US, sequence_number=number, forward_thread_id=1)
    kineto.operator("aten::mm", at(480), 30 * _US)
    kineto.operator(_ENGINE + "torch::autograd::AccumulateGrad", at(570), 30 * _US)
    kineto.annotation("Optimizer.step#SGD.step", at(700), 80 * _US)
    kineto.operator("aten::_foreach_add_", at(710), 20 * _US)


@pytest.fixture(name="training")
def fixture_training(tmp_path: Path) -> Trace:
    kineto = KinetoTrace()
    for step in (1, 2):
        _training_step(kineto, step * 1000 * _US)
    return convert([kineto.write(tmp_path / "training.json")], Options())


def _parts(trace: Trace, steps: str | None = None) -> list[tuple[object, ...]]:
    table = run(find("B43"), StepView.of(trace, steps)).table
    return table.select("phase", "layer_type", pl.col("duration_ns") / _US).rows()


def test_each_moment_of_a_step_is_of_one_phase(training: Trace) -> None:
    # The loss is of no layer: its forward operator is left for other, its backward pass and gradients are of none.
    expected = [
        ("forward", "Linear", 90.0),
        ("backward", "Linear", 120.0),
        ("backward", "backward", 80.0),
        ("optimizer", "optimizer", 80.0),
        ("input", "input", 100.0),
        ("other", None, 530.0),
    ]
    assert _parts(training) == expected
    assert _parts(training, "1") == expected
    assert _parts(training, "all") == [(phase, kind, 2 * us) for phase, kind, us in expected]


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_calls_of_process_groups_are_communication_and_no_layers(tmp_path: Path, category: str) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::add", 0, 100 * _US)
    kineto.span(category, "gloo:all_reduce", 200 * _US, 300 * _US)
    assert _parts(convert([kineto.write(tmp_path / "gloo.json")], Options())) == [
        ("forward", "aten::add", 100.0), ("communication", "communication", 300.0), ("other", None, 100.0),
    ]  # fmt: skip


def test_layers_have_their_backward_pass_and_optimizers_are_rows(training: Trace) -> None:
    view = StepView.of(training)
    types = run(find("A06"), view).table.select("layer_type", pl.col("latency_ns") / _US).rows()
    assert types == [("Linear", 210.0), ("input", 100.0), ("backward", 80.0), ("optimizer", 80.0)]
    layers = run(find("A02"), view).table.select("layer_index", "layer_name", pl.col("latency_ns") / _US, "call_count")
    assert layers.rows() == [
        (0, "Linear_0", 210.0, 1.0),
        (None, "Optimizer.step#SGD.step", 80.0, 1.0),
        (None, "backward outside of layers", 80.0, 2.0),
        (None, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100.0, 1.0),
    ]
    assert run(find("A05"), view).table.rows() == [("Linear", 1, 1.0)]


def test_without_modules_operators_are_of_the_phase_they_run_in(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    _training_step(kineto, 1000 * _US, modules=False)
    table = pl.DataFrame(
        _parts(convert([kineto.write(tmp_path / "flat.json")], Options())), ["phase", "type", "us"], orient="row"
    )
    by_phase = table.group_by("phase", maintain_order=True).agg(pl.col("us").sum()).rows()
    # Forward: the linear and the loss, 60 and 50; all of the backward pass has a layer but the gradients' own.
    assert by_phase == [
        ("forward", 110.0), ("backward", 200.0), ("optimizer", 80.0), ("input", 100.0), ("other", 510.0),
    ]  # fmt: skip
    assert table.filter(pl.col("phase") == "input").select("type", "us").rows() == [
        ("input", 60.0), ("aten::stack", 40.0),
    ]  # fmt: skip


def test_what_is_recomputed_in_the_backward_pass_is_no_part_of_it(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("Linear_0", 0, 50 * _US)
    kineto.operator("aten::linear", 10 * _US, 20 * _US, sequence_number=3)
    kineto.operator("CheckpointFunctionBackward", 100 * _US, 200 * _US, sequence_number=3, forward_thread_id=1)
    kineto.module("Linear_0", 110 * _US, 60 * _US)
    kineto.operator("aten::linear", 120 * _US, 20 * _US, sequence_number=4)
    kineto.operator("LinearBackward0", 200 * _US, 70 * _US, sequence_number=4, forward_thread_id=1)
    trace = convert([kineto.write(tmp_path / "checkpoint.json")], Options())
    assert [row for row in _parts(trace) if row[0] != "other"] == [
        ("forward", "Linear", 50.0), ("recompute", "Linear", 60.0), ("backward", "Linear", 140.0),
    ]  # fmt: skip


def test_where_a_device_worked_there_is_no_such_account(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    _training_step(kineto, 1000 * _US)
    kineto.launch("gemm", 1220 * _US, 1230 * _US, 10 * _US)
    view = StepView.of(convert([kineto.write(tmp_path / "device.json")], Options()))
    with pytest.raises(XspError, match="a run on the host alone"):
        run(find("B43"), view)
    names = run(find("A02"), view).table["layer_name"].to_list()
    assert "Optimizer.step#SGD.step" not in names


def test_the_bar_of_training_on_the_host_is_of_phases(training: Trace) -> None:
    bar = step_bar(Answers(training))
    assert bar is not None
    assert bar["title"] == f"A step on the host, {duration(1000 * _US)}"
    assert [(part["label"], part["share"]) for part in bar["parts"]] == [
        ("forward", 0.09), ("backward", 0.2), ("optimizer", 0.08), ("input", 0.1), ("other", 0.53),
    ]  # fmt: skip
    assert not any(part["tone"].startswith("c-idle") for part in bar["parts"])
    sentences = " ".join(summary_sentences(Answers(training)))
    assert (
        "Of that time on the host, forward 9.00\u202f%, backward 20.0\u202f%, optimizer 8.00\u202f%, input" in sentences
    )
