"""Serving steps of real traces: what is expected was taken from the files by hand, by a script that shares no code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model.step_annotations import parse_step_annotation

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real

_VLLM = "kineto/vllm_prefilldecode_piecewise_graph.mi300.json.gz"
_CAPTURE = "kineto/graph_pairs/vllm_piecewise.mi300.capture.json.gz"
_XDIT = "kineto/graph_pairs/xdit_flux.mi300.replay.json.gz"


def _trace(real_dir: Path, name: str) -> Trace:
    return convert([real_dir / name], Options())


def _step(trace: Trace) -> dict[str, object]:
    return run(find("B20"), StepView.of(trace)).table.row(0, named=True)


def test_a_mixed_step_of_vllm(real_dir: Path) -> None:
    # execute_8192_context_9(sq8155sk8430...)_generation_37(sq37sk34489...), its range 26.353 ms on the host. Its first
    # kernel starts 148.999 ms after the launch, behind steps that the file does not hold; the last ends 156.466 later.
    step = _step(_trace(real_dir, _VLLM))
    assert (step["serving_phase"], step["tool"], step["step"]) == ("mixed", "vLLM", 0)
    assert (step["requests"], step["prefill_requests"], step["decode_requests"]) == (46, 9, 37)
    assert (step["tokens"], step["prefill_tokens"], step["decode_tokens"]) == (8_192, 8_155, 37)
    assert step["kv_tokens"] == 8_430 + 34_489
    assert (step["duration_ns"], step["output_token_ns"]) == (156_466_417, 156_466_417)
    assert step["token_per_s"] == pytest.approx(8_192 / 0.156466417)
    assert step["device_busy_share"] == pytest.approx(156_085_793 / 156_466_417)
    assert step["state"] is None  # of one step no steady state can be told


def test_an_image_of_xdit_stays_within_the_profilers_step(real_dir: Path) -> None:
    trace = _trace(real_dir, _XDIT)
    step = _step(trace)
    assert (step["serving_phase"], step["step"], step["annotation"]) == ("diffusion", 3, "execute_diffusion_1_256x256")
    assert (step["duration_ns"], step["requests"], step["tokens"]) == (249_608_734, 1, None)
    assert step["device_busy_share"] == pytest.approx(201_351_762 / 249_608_734)
    diffusion = StepView.of(trace, serving_phase="diffusion")
    assert diffusion.of_chosen_steps(StepView.of(trace).of_trace.device_work).height == 7_866


def test_a_capture_is_no_step_and_its_key_is_that_of_the_step_that_replays_it(real_dir: Path) -> None:
    capture = _trace(real_dir, _CAPTURE)
    assert not capture.has_level("model")
    texts = capture.frame("ranges").filter(pl.col("text").str.starts_with("capture_"))["text"].to_list()
    replay = _trace(real_dir, _VLLM).frame("ranges").filter(pl.col("text").str.starts_with("execute_"))["text"]
    keys = {one and (one.is_capture, one.batch_key) for one in map(parse_step_annotation, [*texts, *replay])}
    assert keys == {(True, 8_192), (False, 8_192)}
