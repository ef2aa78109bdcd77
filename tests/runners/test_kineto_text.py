"""What is taken out of a trace before it is kept, and what must not change."""

from __future__ import annotations

import json

from xsp_runners.torch_profiler import without_private_data

_TRACE = """{
  "schemaVersion": 1, "host_name": "lab-07", "traceName": "/home/ada/out/trace.json",
  "traceEvents": [
  { "ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 4316800288667.819, "dur": 0.120,
    "args": {"NaN": NaN} },
  { "ph": "X", "cat": "python_function", "name": "/home/ada/train.py(3): main", "ts": 1.001, "dur": 2 },
  { "ph": "X", "cat": "python_function", "name": "nn.Module: Linear_0", "ts": 2.002, "dur": 1 }
  ], "baseTimeNanoseconds": 1790857026000000000 }"""


def test_host_and_folders_go() -> None:
    cleaned = without_private_data(_TRACE)
    assert "ada" not in cleaned
    assert "lab-07" not in cleaned
    assert json.loads(cleaned)["traceName"] == "trace.json"


def test_times_stay_character_by_character() -> None:
    cleaned = without_private_data(_TRACE)
    assert '"ts": 4316800288667.819, "dur": 0.120' in cleaned
    assert json.loads(cleaned)["baseTimeNanoseconds"] == 1790857026000000000


def test_modules_stay_and_other_python_functions_go() -> None:
    names = [event["name"] for event in json.loads(without_private_data(_TRACE))["traceEvents"]]
    assert names == ["aten::mm", "nn.Module: Linear_0"]


def test_python_functions_can_be_kept_without_their_folders() -> None:
    names = [e["name"] for e in json.loads(without_private_data(_TRACE, python_calls=True))["traceEvents"]]
    assert names == ["aten::mm", "train.py(3): main", "nn.Module: Linear_0"]


def test_no_events_stay_no_events() -> None:
    assert json.loads(without_private_data('{"traceEvents": []}')) == {"traceEvents": []}
