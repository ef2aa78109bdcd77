"""Findings on idle time divide it: each has its part of one device's causes in B03, together no more than all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_analyze.findings.facts import Facts
from xsp_analyze.findings.registry import advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_COLUMNS = {
    "data-wait": ("idle_input_ns",),
    "host-sync": ("idle_sync_ns",),
    "launch-bound": ("idle_host_ns", "idle_launch_ns"),
    "gpu-idle": ("idle_ns",),
}
"""By rule the columns of B03 that its gain is part of."""
_SLACK_NS = 1.0
_FILES = (
    "alexnet_cuda_sync", "bert_small.h100", "bert_small.mi300x", "cuda_graphs", "diff_control", "diff_test",
    "minitoy_train.mi250", "mtia_inference", "nccl_training", "normalization_layers_train.mi300x",
    "resnet18_train_ddp.mi300x", "resnet50_train_torch18_oldcats", "resnet50_train_torch19.v100",
    "resnet_train.rtx2080ti", "sam_eager.a100", "switch_moe_cold.a100",
)  # fmt: skip


def check_idle_gains(trace: Trace) -> None:
    view = StepView.of(trace)
    gains = {one.rule.id: one.gain_ns for one in advise(view) if one.rule.id in _COLUMNS}
    facts = Facts(view)
    for rule, gain in gains.items():
        assert gain is not None
        assert gain <= facts.idle_of(*_COLUMNS[rule]) + _SLACK_NS, rule
    assert sum(gain or 0.0 for gain in gains.values()) <= facts.idle_ns + _SLACK_NS, gains
    if not view.of_trace.is_leveled:  # else gains are of a step without the profiler of kernels
        assert gains.get("data-wait") in (None, pytest.approx(facts.idle_of("idle_input_ns")))
        assert gains.get("host-sync") in (None, pytest.approx(facts.idle_of("idle_sync_ns")))


@every(SOUND)
def test_gains_of_idle_time_add_up_to_no_more_than_it(case: FixtureCase) -> None:
    check_idle_gains(trace_of(case))


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", _FILES)
def test_gains_of_idle_time_add_up_to_no_more_than_it_in_real_traces(real_dir: Path, name: str) -> None:
    check_idle_gains(convert([real_dir / "kineto" / f"{name}.json.gz"], Options()))
