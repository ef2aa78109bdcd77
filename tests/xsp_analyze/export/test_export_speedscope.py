"""speedscope export against the documented file format, and its sums against the trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import polars as pl
import pytest

from tests.helpers.exported import small, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_analyze.export.speedscope import device_stacks
from xsp_model import Trace, TraceBuilder, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNITS = ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
_COMMON = {
    "name": {"type": "string"},
    "unit": {"enum": _UNITS},
    "startValue": {"type": "number"},
    "endValue": {"type": "number"},
}
_EVENT = {
    "type": "object",
    "required": ["type", "frame", "at"],
    "properties": {"type": {"enum": ["O", "C"]}, "frame": {"type": "integer"}, "at": {"type": "number"}},
}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_EVENTED = {
    "required": ["type", "name", "unit", "startValue", "endValue", "events"],
    "properties": {**_COMMON, "type": {"const": "evented"}, "events": {"type": "array", "items": _EVENT}},
}
_SAMPLED = {
    "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
    "properties": {
        **_COMMON,
        "type": {"const": "sampled"},
        "samples": {"type": "array", "items": _NUMBERS},
        "weights": _NUMBERS,
    },
}
_FRAME = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_FILE = {  # what the format's documentation says of a file
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": _FRAME}},
        },
        "profiles": {"type": "array", "items": {"anyOf": [_EVENTED, _SAMPLED]}},
        "activeProfileIndex": {"type": "number"},
        "exporter": {"type": "string"},
        "name": {"type": "string"},
    },
}


def _document(trace: Trace, folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(written(trace, "speedscope", folder).read_bytes())
    return document


def _check_evented(profile: Mapping[str, Any], frames: int) -> None:
    """Opens and closes pair like brackets, in order of time, within the profile's bounds."""
    open_frames: list[int] = []
    last = profile["startValue"]
    for event in profile["events"]:
        assert last <= event["at"] <= profile["endValue"]
        assert 0 <= event["frame"] < frames
        last = event["at"]
        if event["type"] == "O":
            open_frames.append(event["frame"])
        else:
            assert open_frames.pop() == event["frame"]
    assert not open_frames


def _check_sampled(profile: Mapping[str, Any], frames: int) -> None:
    assert len(profile["samples"]) == len(profile["weights"])
    assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
    assert all(0 <= frame < frames for stack in profile["samples"] for frame in stack)


def _shows(case: FixtureCase) -> bool:
    """Whether it has host spans or device work whose time is known."""
    spans = trace_of(case).frame("spans")
    return bool(((spans["level"] != "kernel") | (spans["duration_ns"] > 0)).any())


@every(SOUND)
def test_every_fixture_keeps_the_format_or_has_nothing_to_show(case: FixtureCase, tmp_path: Path) -> None:
    if not _shows(case):
        with pytest.raises(XspError):
            _document(trace_of(case), tmp_path)
        return
    document = _document(trace_of(case), tmp_path)
    jsonschema.validate(document, _FILE)
    frames = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        (_check_evented if profile["type"] == "evented" else _check_sampled)(profile, frames)


@every(SOUND)
def test_stacks_add_up_to_the_device_time(case: FixtureCase) -> None:
    _, weights = device_stacks(trace_of(case))
    device = trace_of(case).frame("spans").filter(pl.col("level") == "kernel")
    assert sum(weights) == device["duration_ns"].sum()


def test_device_time_stands_under_layers_operators_and_kernels(tmp_path: Path) -> None:
    stacks, weights = device_stacks(small(tmp_path))
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    assert dict(zip(map(tuple, stacks), weights, strict=True)) == {
        ("Net_0", "Linear_0", "aten::linear", "gemm<float>"): 70_007,
        ("Net_0", "Linear_0", backward, "gemm_backward"): 50_000,
        ("[model only]", "Memcpy HtoD (Pinned -> Device)"): 9_001,
        ("[orphan no launch]", "from nowhere"): 11,
    }
    assert stacks == sorted(stacks)


def test_a_profile_for_each_thread(tmp_path: Path) -> None:
    document = _document(small(tmp_path), tmp_path)
    assert [p["name"] for p in document["profiles"]] == [
        "device time by layer, operator and kernel",
        "process 100, thread 100",
        "process 100, thread 200",
    ]
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    engine = [(e["type"], frames[e["frame"]], e["at"]) for e in document["profiles"][2]["events"]]
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    assert engine == [
        ("O", backward, 300_000),
        ("O", "cudaLaunchKernel", 310_000),
        ("C", "cudaLaunchKernel", 315_000),
        ("C", backward, 390_000),
    ]


def test_a_trace_without_spans_is_refused(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    with pytest.raises(XspError, match="neither host spans nor device work"):
        written(builder.build(), "speedscope", tmp_path)
    assert list(tmp_path.iterdir()) == []
