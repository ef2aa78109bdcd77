"""Scripts that run one recorded operator: what goes in, what is refused, and that no text of a trace becomes code."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.export import benchmark_of, export
from xsp_analyze.export.benchmark import inputs_of
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MM = {"Input type": ["float", "float"], "Input Strides": [[4, 1], [1, 3]], "Concrete Inputs": ["", ""]}
_TWO = {"Input Dims": [[2, 2]], "Input type": ["float"]}
_HOSTILE = "\"\"\"\n''' + __import__('os').system('touch hacked') #\\\n\u2028\x1b[2J"


def _add(kineto: KinetoTrace, arguments: dict[str, Any]) -> None:
    args: Any = kineto.events[-1]["args"]
    args.update(arguments)


def _trace(folder: Path, *calls: dict[str, Any], name: str = "aten::mm") -> Trace:
    """Calls of the operator one after the other, each 10 us of host and 20 us of device time a call so far."""
    kineto = KinetoTrace()
    for number, arguments in enumerate(calls):
        kineto.operator(name, number * 100_000, 10_000)
        _add(kineto, arguments)
        kineto.launch("gemm", number * 100_000 + 1_000, number * 100_000 + 20_000, 20_000 * (number + 1))
    return convert([kineto.write(folder / "trace.json")], Options())


def _recorded(path: Path) -> dict[str, Any]:
    """The values in the script, which have to be literals alone."""
    for node in ast.parse(path.read_text(encoding="ascii")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RECORDED":
            assert node.value is not None
            recorded: dict[str, Any] = ast.literal_eval(node.value)
            return recorded
    raise AssertionError


def _written(trace: Trace, folder: Path, operator: str = "aten::mm", shape: str | None = None) -> dict[str, Any]:
    export(trace, benchmark_of(operator, shape), folder / "bench.py")
    return _recorded(folder / "bench.py")


def test_the_inputs_that_took_most_time_are_chosen_and_their_median_is_said(tmp_path: Path) -> None:
    small, large = ({"Input Dims": [[size, 4], [4, 3]], **_MM} for size in (2, 8))
    recorded = _written(_trace(tmp_path, small, large, large, large), tmp_path)
    assert recorded["inputs"] == [("tensor", "float32", [8, 4], [4, 1]), ("tensor", "float32", [4, 3], [1, 3])]
    assert (recorded["microseconds"], recorded["calls"]) == (60.0, 3)  # of 40, 60 and 80
    assert recorded["what"].startswith("device time in sum")


def test_a_shape_can_be_chosen_however_its_json_is_spaced(tmp_path: Path) -> None:
    small, large = ({"Input Dims": [[size, 4], [4, 3]], **_MM} for size in (2, 8))
    recorded = _written(_trace(tmp_path, small, large), tmp_path, shape="[ [2,4],[4,3] ]")
    assert (recorded["shapes"], recorded["microseconds"]) == ("[[2, 4], [4, 3]]", 20.0)


@pytest.mark.parametrize(
    ("arguments", "operator", "shape", "says"),
    [
        ({}, "aten::mm", None, "the shapes of 'aten::mm' were not recorded, so it cannot be run alone"),
        ({"Input Dims": [[2, 2]]}, "aten::mm", None, "the types of its inputs were not recorded with their shapes"),
        (_TWO, "aten::mn", None, "no operator 'aten::mn'. Did you mean aten::mm"),
        (_TWO, "aten::mm", "[[3]]", r"'aten::mm' was not called on '\[\[3\]\]'"),
        (_TWO | {"Input type": ["Thing"]}, "aten::mm", None, r"value of input 1 \(\"Thing\"\) was not recorded"),
        (_TWO | {"Input Dims": [[-2, 2]]}, "aten::mm", None, "the shape of input 1 cannot be read"),
        (_TWO, "mm", None, "'mm' is no name of an operator of torch"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: dict[str, Any], operator: str, shape: str | None, says: str, tmp_path: Path
) -> None:
    trace = _trace(tmp_path, arguments)
    with pytest.raises(XspError, match=says):
        export(trace, benchmark_of(operator, shape), tmp_path / "bench.py")
    assert not (tmp_path / "bench.py").exists()


@pytest.mark.parametrize(
    "operator",
    [
        _HOSTILE,
        "aten::mm\n",
        "aten::mm'",
        "aten::mm.x('",
        "aten::m\N{FULLWIDTH LATIN SMALL LETTER M}",
        "__import__('os')",
    ],
)
def test_a_name_that_is_no_operators_never_gets_into_a_script(operator: str, tmp_path: Path) -> None:
    trace = _trace(tmp_path, {"Input Dims": [[2, 4], [4, 3]], **_MM}, name=operator)
    with pytest.raises(XspError, match="is no name of an operator"):
        export(trace, benchmark_of(operator, None), tmp_path / "bench.py")


@pytest.mark.parametrize("key", ["input_shapes", "input_dtypes", "input_strides", "concrete_inputs"])
@pytest.mark.parametrize("text", [_HOSTILE, json.dumps([_HOSTILE]), json.dumps([[_HOSTILE]]), "[" * 50_000, "[1e999]"])
def test_no_text_of_a_trace_becomes_an_input(key: str, text: str) -> None:
    sound = {"input_shapes": "[[2]]", "input_dtypes": '["float"]', "input_strides": "[[1]]", "concrete_inputs": '[""]'}
    try:
        made, _ = inputs_of({**sound, key: text})
    except XspError:
        return
    assert made == [("tensor", "float32", [2], [1])]


def test_a_hostile_name_of_a_device_is_text(tmp_path: Path) -> None:
    kineto = KinetoTrace(deviceProperties=[{"id": 0, "name": _HOSTILE}])
    kineto.operator("aten::mm", 0, 10_000)
    _add(kineto, {"Input Dims": [[2, 4], [4, 3]], **_MM})
    kineto.launch("gemm", 1_000, 20_000, 20_000)
    trace = convert([kineto.write(tmp_path / "trace.json")], Options())
    recorded = _written(trace, tmp_path)
    assert "touch hacked" in recorded["what"]
    assert "\x1b" not in recorded["what"]


def test_values_and_what_was_left_out() -> None:
    call = {
        "input_shapes": "[[2, 3], [], [], [], []]",
        "input_dtypes": '["c10::BFloat16", "Scalar", "Scalar", "ScalarList", ""]',
        "input_strides": None,
        "concrete_inputs": '["", "True", "-inf", "[1, 2]", ""]',
    }
    made, has_strides = inputs_of(call)
    assert made == [("tensor", "bfloat16", [2, 3], [3, 1]), ("value", True), ("float", "-inf"), ("value", [1, 2])]
    assert not has_strides


@pytest.mark.slow
def test_the_script_runs_with_torch_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    call = {
        "Input Dims": [[3], [2, 4], [4, 3], [], []],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[0], [4, 1], [1, 4], [], []],
        "Concrete Inputs": ["", "", "", "1", "1"],
    }
    _written(_trace(tmp_path, call, name="aten::addmm"), tmp_path, "aten::addmm")
    command = [sys.executable, "-I", "bench.py", "--device", "cpu", "--calls", "2", "--repeats", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, recorded, measured = done.stdout.splitlines()
    assert first == "aten::addmm on [[3], [2, 4], [4, 3], [], []]"
    assert recorded.split()[:3] == ["recorded", "20.000", "us"]
    assert measured.split()[0] == "measured"
    assert float(measured.split()[1]) > 0
