"""What is concluded does not hang on what a file is called, when it was recorded, or where the recording was cut."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_analyze.findings.advice import Advice

_FIXTURES = Path(__file__).parents[3] / "fixtures" / "torch_profiler"
_Event = dict[str, Any]
_FILES = ("transformer_train_a100_synthetic", "transformer_train_gpu_synthetic", "serving_synthetic")
_STEP = re.compile(r"^ProfilerStep#|^execute_")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _advice(content: dict[str, Any], path: Path) -> list[Advice]:
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    return list(advise(StepView.of(convert([path], Options()))))


def _content(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress((_FIXTURES / name / "trace.json.gz").read_bytes()))
    return loaded


def _sentences(advice: list[Advice]) -> list[str]:
    return [one.observation.sentence for one in advice]


def _shifted(event: _Event) -> _Event:
    return {**event, "ts": event["ts"] + 1_000_000} if "ts" in event else event


def _renamed(event: _Event) -> _Event:
    """Other numbers for the host's process and threads; devices and streams keep theirs."""
    if event.get("ph") == "M" or event.get("cat") in _DEVICE or not isinstance(event.get("pid"), int):
        return event
    return {
        **event,
        "pid": event["pid"] + 7,
        "tid": event["tid"] + 7 if isinstance(event.get("tid"), int) else event.get("tid"),
    }


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("change", [_shifted, _renamed])
def test_the_same_at_another_time_or_under_another_name_has_the_same_sentences(
    name: str, change: Callable[[_Event], _Event], tmp_path: Path
) -> None:
    content = _content(name)
    other = {**content, "traceEvents": [change(event) for event in content["traceEvents"]]}
    first, second = _advice(content, tmp_path / "a.json.gz"), _advice(other, tmp_path / "other name.json.gz")
    assert first
    assert _sentences(second) == _sentences(first)


def _without_step(events: list[_Event], number: int) -> Iterator[_Event]:
    """The events but for those of the step, by its host's range, and the device work launched in it."""
    steps = sorted((e for e in events if _STEP.match(str(e.get("name"))) and e.get("ph") == "X"), key=lambda e: e["ts"])
    step = [e for e in steps if e.get("cat") == "user_annotation"][number]
    first, last = step["ts"], step["ts"] + step["dur"]
    gone = {
        e["args"]["correlation"]
        for e in events
        if "correlation" in e.get("args", {}) and e.get("cat") not in _DEVICE and first <= e["ts"] <= last
    }
    for event in events:
        if event.get("cat") in _DEVICE:
            is_gone = event["args"].get("correlation") in gone
        else:
            is_gone = event.get("ph") == "X" and first <= event.get("ts", last + 1) <= last
        if not is_gone:
            yield event


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("number", [0, -1])
def test_without_its_first_or_last_step_a_trace_leads_to_the_same_conclusions(
    name: str, number: int, tmp_path: Path
) -> None:
    content = _content(name)
    cut = {**content, "traceEvents": list(_without_step(content["traceEvents"], number))}
    every, rest = _advice(content, tmp_path / "whole.json.gz"), _advice(cut, tmp_path / "cut.json.gz")
    assert len(cut["traceEvents"]) < len(content["traceEvents"])
    assert {one.rule.id for one in rest} == {one.rule.id for one in every}
