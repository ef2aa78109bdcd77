"""B35 on timelines worked out on paper, in microseconds.

    main thread     preprocess 0-100, inference 100-300, postprocess 300-350,
                    predict 400-600 around preprocess 410-450 and postprocess 550-590
    loader thread   preprocess 200-320

So pre-process was open for 260 (0-100, 200-320, 410-450), inference for 320 (100-300, 400-410, 450-550, 590-600)
and post-process for 90; two of them at once for 120 (200-300 with inference, 300-320 with post-process). A kernel
launched in the last post-process ends at 640, which is the end of the window; 350-400 and 600-640 are in no stage.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fixtures.make.jaeger import MlModelScope
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.classification.experts import Stage, stage_entries, stage_of
from xsp_analyze.core import run
from xsp_analyze.pages.report.serving import stages as section_of
from xsp_analyze.service import Answers
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_US = 1_000
_LOADER = 2


def _annotations(trace: KinetoTrace) -> None:
    for name, begin, end in (
        ("preprocess", 0, 100),
        ("inference", 100, 300),
        ("postprocess", 300, 350),
        ("predict", 400, 600),
        ("Preprocess_Data", 410, 450),
        ("postprocess", 550, 590),
    ):
        trace.annotation(name, begin * _US, (end - begin) * _US)
    trace.annotation("preprocess", 200 * _US, 120 * _US, thread_id=_LOADER)


def _pipeline() -> KinetoTrace:
    trace = KinetoTrace()
    _annotations(trace)
    for name, launch, begin, end in (
        ("gemm", 120, 250, 330),
        ("resize", 420, 425, 445),
        ("fill", 370, 375, 395),
        ("argmax", 560, 580, 640),
    ):
        trace.launch(name, launch * _US, begin * _US, (end - begin) * _US)
    return trace


def _converted(tmp_path: Path, trace: KinetoTrace) -> Trace:
    path = tmp_path / "trace.json.gz"
    trace.write(path)
    return convert([path], Options())


def _rows(trace: Trace, *columns: str) -> list[tuple[object, ...]]:
    return run(find("B35"), StepView.of(trace)).table.select(columns).rows()


def test_wall_clock_time_divides_without_a_remainder(tmp_path: Path) -> None:
    trace = _converted(tmp_path, _pipeline())
    assert _rows(trace, "stage", "wall_ns", "exclusive_ns") == [
        ("pre-process", 260 * _US, 140 * _US),
        ("inference", 320 * _US, 220 * _US),
        ("post-process", 90 * _US, 70 * _US),
        ("several at once", 120 * _US, 120 * _US),
        ("outside of stages", 90 * _US, 90 * _US),
    ]
    shares = [share for (share,) in _rows(trace, "share")]
    assert shares == [pytest.approx(part / 640) for part in (140, 220, 70, 120, 90)]


def test_ranges_are_counted_as_they_are(tmp_path: Path) -> None:
    rows = _rows(_converted(tmp_path, _pipeline()), "range_names", "range_count", "host_sum_ns", "mean_ns", "max_ns")
    assert rows == [
        ("preprocess, Preprocess_Data", 3, 260 * _US, pytest.approx(260 * _US / 3), 120 * _US),
        ("inference, predict", 2, 400 * _US, 200 * _US, 200 * _US),
        ("postprocess", 2, 90 * _US, 45 * _US, 50 * _US),
        (None, None, None, None, None),
        (None, None, None, None, None),
    ]


def test_device_work_is_of_the_innermost_stage_that_launched_it(tmp_path: Path) -> None:
    rows = _rows(_converted(tmp_path, _pipeline()), "stage", "device_count", "device_sum_ns", "device_share")
    assert rows == [
        ("pre-process", 1, 20 * _US, pytest.approx(20 / 180)),
        ("inference", 1, 80 * _US, pytest.approx(80 / 180)),
        ("post-process", 1, 60 * _US, pytest.approx(60 / 180)),
        ("several at once", None, None, None),
        ("outside of stages", 1, 20 * _US, pytest.approx(20 / 180)),
    ]


def test_work_whose_launch_is_not_in_the_trace_is_of_no_stage_and_said_so(tmp_path: Path) -> None:
    trace = _pipeline()
    trace.kernel("orphan", 340 * _US, 10 * _US, correlation=77_777)
    rows = _rows(_converted(tmp_path, trace), "stage", "device_sum_ns", "exclusive_ns")
    assert rows[-2:] == [("outside of stages", 20 * _US, 90 * _US), ("launch not recorded", 10 * _US, None)]


def test_without_device_work_its_columns_are_unknown(tmp_path: Path) -> None:
    trace = KinetoTrace()
    _annotations(trace)
    rows = _rows(_converted(tmp_path, trace), "stage", "exclusive_ns", "device_sum_ns", "device_share")
    assert rows[-1] == ("outside of stages", 50 * _US, None, None)
    assert {row[2:] for row in rows} == {(None, None)}


def test_steps_are_the_inference_where_no_range_is(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.annotation("preprocess", 0, 100 * _US)
    trace.step(1, 100 * _US, 200 * _US)
    trace.annotation("postprocess", 310 * _US, 40 * _US)
    rows = _rows(_converted(tmp_path, trace), "stage", "range_names", "exclusive_ns")
    assert rows == [
        ("pre-process", "preprocess", 100 * _US),
        ("inference", "ProfilerStep", 200 * _US),
        ("post-process", "postprocess", 40 * _US),
        ("outside of stages", None, 10 * _US),
    ]


def test_stages_of_mlmodelscope_stand_around_its_call_of_the_model(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    trace.span("preprocess", 0, 300, level="APPLICATION_TRACE")
    trace.predict(300, 1_000, "FRAMEWORK_TRACE", "")
    trace.span("postprocess", 1_350, 100, level="APPLICATION_TRACE")
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"data": [trace.document()]}))
    rows = _rows(convert([path], Options()), "stage", "range_names", "exclusive_ns")
    assert rows == [
        ("pre-process", "preprocess", 300 * _US),
        ("inference", "c_predict", 1_000 * _US),
        ("post-process", "postprocess", 100 * _US),
        ("outside of stages", None, 50 * _US),
    ]


def test_a_trace_that_names_nothing_around_the_call_says_how_to_mark_it(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.step(1, 0, 100 * _US)
    trace.annotation("predict", 0, 100 * _US)
    with pytest.raises(XspError, match=r"B35 .* needs ranges named as pre-processing or post-processing") as refusal:
        run(find("B35"), StepView.of(_converted(tmp_path, trace)))
    assert "record_function" in refusal.value.advice


@pytest.mark.parametrize(
    ("name", "stage"), [(name, entry.stage) for entry in stage_entries() for name in entry.examples]
)
def test_every_name_of_the_data_is_of_its_stage(name: str, stage: Stage) -> None:
    assert stage_of(name) is stage


@pytest.mark.parametrize(
    "name",
    ["prediction_head", "nn.Module: Preprocessor_0", "process", "postmortem", "forward", "gpu_model_runner: draft", ""],
)
def test_other_names_are_of_none(name: str) -> None:
    assert stage_of(name) is None


def test_the_page_says_what_the_model_is_of_the_time(tmp_path: Path) -> None:
    section = section_of(Answers(_converted(tmp_path, _pipeline())))
    assert section is not None
    (sentence,) = [block["text"].replace("\u202f", " ") for block in section["blocks"] if block["type"] == "text"]
    assert sentence == (
        "Of 640 µs from the first stage to the end of the last one's work, inference alone takes 34.4 %, pre-process"
        " alone 21.9 %, post-process alone 10.9 %; 18.8 % has several stages open at once, as batches overlap, and"
        " 14.1 % none."
    )


def test_a_page_without_stages_has_no_such_section(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.step(1, 0, 100 * _US)
    assert section_of(Answers(_converted(tmp_path, trace))) is None
