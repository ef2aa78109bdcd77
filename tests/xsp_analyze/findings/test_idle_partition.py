"""Findings on idle time divide it: each has its part of one device's causes in B03, together no more than all.

And no share of anything is above all of it: on fixtures, real files, users' cases and a laid-out corpus (XSP_CORPUS).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_analyze.findings.facts import Facts
from xsp_analyze.findings.registry import advise
from xsp_analyze.findings.verdict import verdict
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


_PERCENT = re.compile(r"([\d\u202f.]+)\u202f%")


def check_shares(trace: Trace) -> None:
    """No gain is above the step, no share of time above 100 %, and what a device did adds up to its window."""
    view = StepView.of(trace)
    advice = advise(view)
    one = verdict(view, advice)
    shares = [float(text.replace("\u202f", "")) for text in _PERCENT.findall(one.sentence if one else "")]
    assert all(share <= 100.05 for share in shares), one
    for each in advice:
        assert each.gain_share is None or 0 <= each.gain_share <= 1, each
        assert all(e.value is None or e.value <= 1 for e in each.observation.evidence if e.unit == "share"), each
    devices = Facts(view).devices
    if "start_up_ns" in devices.columns and not view.of_trace.is_leveled:
        parts = ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "waiting_ns", "start_up_ns")
        rows = devices.select(
            pl.sum_horizontal(parts).alias("sum_ns"), "window_ns", pl.min_horizontal(parts).alias("least")
        )
        assert (rows["least"] >= 0).all(), devices
        for sum_ns, window_ns, _ in rows.iter_rows():
            assert sum_ns == pytest.approx(window_ns, abs=_SLACK_NS), devices


@every(SOUND)
def test_no_share_is_above_all_of_it(case: FixtureCase) -> None:
    check_shares(trace_of(case))


def _files(real_dir: Path) -> Iterator[Path]:
    """Every file of the folders that there are."""
    corpus = os.environ.get("XSP_CORPUS")
    folders = [real_dir, real_dir.parent / "cases", *([Path(corpus)] if corpus else [])]
    for folder in folders:
        if folder.is_dir():
            yield from sorted(path for path in folder.rglob("*") if path.is_file() and "reference" not in path.parts)


@pytest.mark.slow
@pytest.mark.real
def test_of_real_files_no_share_is_above_all_of_it(real_dir: Path) -> None:
    checked = 0
    for path in _files(real_dir):
        try:
            trace = convert([path], Options())
        except XspError:
            continue
        check_shares(trace)
        check_idle_gains(trace)
        checked += 1
    assert checked
