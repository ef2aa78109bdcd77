"""The user's lines of Python that called each operator, by the frames of its thread."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.exported import written
from tests.helpers.kineto_documents import SETTINGS
from xsp_ingest.convert import convert
from xsp_ingest.formats.torch_profiler import TORCH_PROFILER, scan_plain
from xsp_ingest.formats.torch_profiler.annotations import lines_of_stack, user_line
from xsp_ingest.formats.torch_profiler.compiled import scanner as compiled
from xsp_ingest.formats.torch_profiler.shape import shape
from xsp_ingest.formats.torch_profiler.sound import IdsAreTexts
from xsp_ingest.formats.torch_profiler.streamed import documents
from xsp_ingest.ingester import Options
from xsp_model import LedgerKind
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document

_Event = dict[str, Any]
_SCANNERS: dict[str, Callable[[Path], Iterable[Document]]] = {
    "plain": lambda path: [scan_plain.scan(path)],
    "streamed": lambda path: documents(path, 8),
    "compiled": lambda path: compiled.documents(path, 8),
}


def _event(category: str, name: str, start: float, end: float, tid: object = 1, **args: object) -> _Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": end - start,
        "pid": 1,
        "tid": tid,
        "args": args,
    }


def _frame(name: str, start: float, end: float, tid: int = 1) -> _Event:
    return _event("python_function", name, start, end, tid)


def _operator(name: str, start: float, end: float, tid: int = 1, **args: Any) -> _Event:  # noqa: ANN401
    return _event("cpu_op", name, start, end, tid, **args)


def _file(folder: Path, events: Sequence[_Event]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}), encoding="utf-8")
    return path


def _lines(path: Path, options: Options | None = None) -> dict[str, str | None]:
    """Of each operator, by name, the lines of the converted trace."""
    trace = convert([path], options or Options())
    names = trace.frame("spans").select("span_id", pl.col("name").cast(pl.String))
    joined = trace.frame("operators").join(names, on="span_id")
    return dict(joined.select("name", pl.col("source_lines").cast(pl.String)).iter_rows())


@pytest.fixture(autouse=True)
def _compiled_whatever_the_size() -> Iterator[None]:
    with override_limits(compiled_compile_min_bytes=0, compiled_finish_min_bytes=0):
        yield


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py(12): step", "train.py:12 step"),
        ("vllm/model_executor/layers/utils.py(122): gemm", "vllm/model_executor/layers/utils.py:122 gemm"),
        ("/opt/venv/lib/python3.11/site-packages/diffusers/a.py(3): f", "diffusers/a.py:3 f"),
        ("/usr/lib/python3/dist-packages/torchvision/a.py(3): f", "torchvision/a.py:3 f"),
        ("/home/ada/secret/train.py(3): <module>", "train.py:3 <module>"),
        ("../ada/train.py(3): f", "train.py:3 f"),
        ("C:\\Users\\ada\\train.py(3): f", "train.py:3 f"),
        ("C:\\py\\Lib\\site-packages\\diffusers\\a.py(3): f", "diffusers/a.py:3 f"),
        ("<ipython-input-3-0ab>(2): f", "<ipython-input-3-0ab>:2 f"),
        ("/var/ipykernel_7/31.py(2): <module>", "31.py:2 <module>"),
        ("a(1): b(2): c", "a(1): b:2 c"),
        ("torch/nn/functional.py(3): linear", None),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py(3): linear", None),
        ("triton/runtime/jit.py(3): run", None),
        ("functorch/a.py(3): f", None),
        ("contextlib.py(78): inner", None),
        ("/usr/lib/python3.11/contextlib.py(78): inner", None),
        ("/usr/lib/python3.11/random.py(78): inner", None),
        ("<frozen os>(8): fspath", None),
        ("<eval_with_key>.50(8): forward", None),
        ("<string>(1): <module>", None),
        ("/var/torchinductor_root/ab/cab.py(8): call", None),
        ("/home/ada/.triton/cache/x/launcher.py(8): call", None),
        ("<built-in method mm of type object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
        ("", None),
        ("(3): ", None),
        ("a.py(x): f", None),
    ],
)
def test_whose_a_frame_is(name: str, line: str | None) -> None:
    assert user_line(name, keep_private=False) == line


def test_private_folders_stay_where_they_are_asked_for() -> None:
    assert user_line("/home/ada/train.py(3): f", keep_private=True) == "/home/ada/train.py:3 f"


def test_a_stack_is_told_from_the_innermost_line_on() -> None:
    stack = "/x/site-packages/torch/a.py(1): f;b.py(2): g;nn.Module: M_0;c.py(3): h\nd.py(4): i;e.py(5): j;"
    assert lines_of_stack(stack, keep_private=False) == "b.py:2 g; c.py:3 h; d.py:4 i"
    assert lines_of_stack("torch/a.py(1): f", keep_private=False) is None


_NESTED = [
    _frame("train.py(9): <module>", 0, 100),
    _frame("model.py(20): forward", 10, 50),
    _frame("torch/nn/modules/module.py(1): _call_impl", 12, 48),
    _frame("nn.Module: Block_0", 13, 47),
    _frame("block.py(30): forward", 14, 40),
    _frame("contextlib.py(78): inner", 15, 38),
    _frame("layer.py(40): helper", 16, 20),
    _frame("torch/functional.py(5): norm", 30, 36),
    _frame("<built-in method mm of type object at 0x7>", 31, 34),
    _frame("loader.py(7): fetch", 0, 100, tid=2),
    _operator("in the helper", 17, 18),
    _operator("behind the helper", 20, 22),  # intervals are half open: it starts where that ends
    _operator("through torch", 32, 33),
    _operator("in the module alone", 45, 46),
    _operator("between calls", 60, 61),
    _operator("overhanging", 49, 51),  # it began in `forward`
    _operator("on another thread", 32, 33, tid=2),
    _operator("on a thread without Python", 32, 33, tid=3),
    _operator("after all", 200, 201),
]
_EXPECTED = {
    "in the helper": "layer.py:40 helper; block.py:30 forward; model.py:20 forward",
    "behind the helper": "block.py:30 forward; model.py:20 forward; train.py:9 <module>",
    "through torch": "block.py:30 forward; model.py:20 forward; train.py:9 <module>",
    "in the module alone": "model.py:20 forward; train.py:9 <module>",
    "between calls": "train.py:9 <module>",
    "overhanging": "model.py:20 forward; train.py:9 <module>",
    "on another thread": "loader.py:7 fetch",
    "on a thread without Python": None,
    "after all": None,
}


@pytest.mark.parametrize("scan", list(_SCANNERS))
def test_the_innermost_frames_of_the_user_that_hold_an_operator(tmp_path: Path, scan: str) -> None:
    path = _file(tmp_path, _NESTED)
    raw = shape(_SCANNERS[scan](path), path, Options())
    said_lines = (
        raw.tables["operators"].join(raw.tables["spans"], on="row").select("name", "source_lines").cast(pl.String)
    )
    assert dict(said_lines.iter_rows()) == _EXPECTED


@pytest.mark.parametrize("seed", range(5))
def test_neither_the_order_of_events_nor_the_clock_matters(tmp_path: Path, seed: int) -> None:
    by = [0, 0.001, 1_712_195_495_519_689.25, -500, 7][seed]
    events = [{**event, "ts": event["ts"] + by} for event in _NESTED]
    events = [events[at] for at in np.random.default_rng(seed).permutation(len(events))]
    assert _lines(_file(tmp_path, events)) == _EXPECTED


def test_a_frame_that_an_operator_called_did_not_call_it(tmp_path: Path) -> None:
    events = [
        _frame("train.py(1): step", 0, 100),
        _operator("an autograd function in Python", 10, 30),
        _frame("function.py(2): forward", 10, 29),
        _operator("within it", 10, 12),
    ]
    assert _lines(_file(tmp_path, events)) == {
        "an autograd function in Python": "train.py:1 step",
        "within it": "function.py:2 forward; train.py:1 step",
    }


def test_of_frames_alike_in_time_the_later_written_is_the_inner(tmp_path: Path) -> None:
    events = [_frame("outer.py(1): f", 0, 9), _frame("inner.py(2): g", 0, 9), _operator("op", 3, 4)]
    assert _lines(_file(tmp_path, events)) == {"op": "inner.py:2 g; outer.py:1 f"}


def test_none_are_kept_where_none_are_wanted(tmp_path: Path) -> None:
    stack = _operator("with a stack", 32, 33, 1, **{"Call stack": "a.py(1): f"})
    path = _file(tmp_path, [*_NESTED, stack])
    assert set(_lines(path, Options(frames="none")).values()) == {None}
    assert _lines(path)["with a stack"] == _EXPECTED["through torch"]


def test_stacks_that_operators_were_recorded_with(tmp_path: Path) -> None:
    stacks = {"mm": "torch/a.py(1): f;/home/ada/b.py(2): g;c.py(3): h;", "add": "", "mul": ["x"], "sub": None}
    events = [_operator(name, n, n + 0.5, 1, **{"Call stack": stack}) for n, (name, stack) in enumerate(stacks.items())]
    said_lines = {"mm": "b.py:2 g; c.py:3 h", "add": None, "mul": None, "sub": None}
    assert _lines(_file(tmp_path, events)) == said_lines
    private = _lines(_file(tmp_path, events), Options(keep_private=True))
    assert private["mm"] == "/home/ada/b.py:2 g; c.py:3 h"


def test_frames_are_counted_as_they_were(tmp_path: Path) -> None:
    for frames in ("lines", "none"):
        raw = TORCH_PROFILER.read(_file(tmp_path, _NESTED), Options(frames=frames))
        (finding,) = (f for f in raw.findings if f.kind == LedgerKind.PYTHON_FRAMES_LEFT_OUT)
        assert finding.count == 9


_TRAINING = [
    _frame("train.py(9): step", 0, 100),
    _frame("model.py(20): forward", 10, 50),
    _operator("aten::mm", 12, 20, **{"Sequence number": 5, "Fwd thread id": 0}),
    _operator("aten::add", 22, 25, **{"Sequence number": 6, "Fwd thread id": 0}),
]


def _backward(tid: int) -> list[_Event]:
    """Of the product; it computes something anew, in Python."""
    node = {"Sequence number": 5, "Fwd thread id": 1}
    return [
        _operator("autograd::engine::evaluate_function: MmBackward0", 60, 80, tid, **node),
        _operator("MmBackward0", 61, 79, tid, **node),
        _operator("aten::t", 62, 63, tid),
        _frame("recompute.py(3): again", 65, 78, tid),
        _operator("aten::relu", 66, 67, tid),
        _operator("aten::unknown", 90, 91, tid),
    ]


@pytest.mark.parametrize("tid", [1, 2])
def test_backward_work_has_the_lines_of_its_forward_twin(tmp_path: Path, tid: int) -> None:
    said_lines = _lines(_file(tmp_path, [*_TRAINING, *_backward(tid)]))
    forward = "model.py:20 forward; train.py:9 step"
    of_caller = "train.py:9 step" if tid == 1 else None
    assert said_lines == {
        "aten::mm": forward,
        "aten::add": forward,
        "autograd::engine::evaluate_function: MmBackward0": forward,
        "MmBackward0": forward,
        "aten::t": forward,
        "aten::relu": "recompute.py:3 again" + ("; train.py:9 step" if tid == 1 else ""),
        "aten::unknown": of_caller,
    }


@pytest.mark.parametrize("form", ["chrome", "jaeger"])
def test_they_come_back_from_an_export(tmp_path: Path, form: str) -> None:
    path = _file(tmp_path, [*_NESTED, *(dict(event, pid=2) for event in (*_TRAINING, *_backward(2)))])
    before = _lines(path)
    assert _lines(written(convert([path], Options()), form, tmp_path)) == before
    assert before["MmBackward0"] == "model.py:20 forward; train.py:9 step"


def test_nothing_private_is_in_a_trace(tmp_path: Path) -> None:
    stack = {"Call stack": "/home/ada/planted-secret/a.py(1): f;/root/planted-secret/b.py(2): g"}
    frame = _frame("/home/ada/planted-secret/c.py(3): h", 0, 9)
    path = _file(tmp_path, [frame, _operator("op", 1, 2), _operator("s", 20, 21, 1, **stack)])
    assert _lines(path) == {"op": "c.py:3 h", "s": "a.py:1 f; b.py:2 g"}
    assert "planted-secret" in str(_lines(path, Options(keep_private=True)))


_NUMBER = st.none() | st.integers(-5, 60) | st.floats() | st.sampled_from(["3", "x", 1 << 62, -(1 << 63)])
_ANY_FRAME = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBi"), "cat": st.just("python_function")},
    optional={
        "name": st.none()
        | st.sampled_from(["a.py(1): f", "b.py(2): g", "torch/c.py(3): h", "nn.Module: M_0", "\ud800"]),
        **dict.fromkeys(("ts", "dur", "pid", "tid"), _NUMBER),
    },
)


@pytest.mark.slow
@SETTINGS
@given(frames=st.lists(_ANY_FRAME, max_size=12))
def test_odd_frames_harm_nothing(tmp_path: Path, frames: list[_Event]) -> None:
    path = _file(tmp_path, [*frames, _operator("op", 5, 20), _operator("other", 30, 31)])
    answers = []
    for scan in _SCANNERS.values():
        with suppress(compiled.CannotScan):  # the file is left to the plain one, which is the first
            try:
                raw = shape(scan(path), path, Options())
            except IdsAreTexts:  # some have none: the file is read from a copy with numbers
                (raw,) = TORCH_PROFILER.read_runs([path], Options())
            answers.append(raw.tables["operators"]["source_lines"].cast(pl.String).to_list())
    assert answers
    assert all(answer == answers[0] for answer in answers)


@st.composite
def _forests(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Calls within calls: names, starts and ends, each within its caller, in any order."""
    calls: list[tuple[str, int, int]] = []

    def within(start: int, end: int, depth: int) -> None:
        cuts = sorted(draw(st.lists(st.integers(start, end), max_size=6, unique=True)))
        for first, last in zip(cuts[::2], cuts[1::2], strict=False):
            name = f"{'torch/' if draw(st.booleans()) else ''}m{len(calls)}.py({len(calls)}): f"
            calls.append((name, first, last))
            if depth and last - first > 2:
                within(first + 1, last - 1, depth - 1)

    within(0, 200, 4)
    return draw(st.permutations(calls))


@pytest.mark.slow
@SETTINGS
@given(calls=_forests(), moments=st.lists(st.integers(0, 200), min_size=1, max_size=20, unique=True))
def test_against_the_definition(tmp_path: Path, calls: list[tuple[str, int, int]], moments: list[int]) -> None:
    operators = [_operator(f"at {moment}", moment, moment) for moment in moments]
    path = _file(tmp_path, [*(_frame(*call) for call in calls), *operators])
    raw = TORCH_PROFILER.read(path, Options())
    said_lines = (
        raw.tables["operators"].join(raw.tables["spans"], on="row").select("name", "source_lines").cast(pl.String)
    )
    for moment in moments:
        around = [call for call in calls if call[1] <= moment < call[2] and not call[0].startswith("torch")]
        around.sort(key=lambda call: call[1], reverse=True)
        lines = "; ".join(name.replace("(", ":", 1).replace("):", "", 1) for name, _, _ in around[:3])
        assert said_lines.filter(pl.col("name") == f"at {moment}")["source_lines"].to_list() == [lines or None]


_MODULE = """
import torch
from torch.profiler import ProfilerActivity, profile


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.mm(x + 1, x) + self.inner(x)


def train(block, x):
    block(x).sum().backward()


block, x = Block(), torch.randn(8, 8, requires_grad=True)
told = torch._C._profiler._ExperimentalConfig(verbose=True)
with profile(activities=[ProfilerActivity.CPU], with_stack=True, experimental_config=told) as profiler:
    train(block, x)
profiler.export_chrome_trace("trace.json")
"""


def _by_external_id(path: Path) -> dict[int, str]:
    operators = TORCH_PROFILER.read(path, Options()).tables["operators"]
    return dict(operators.select("external_id", pl.col("source_lines").cast(pl.String)).iter_rows())


def _as_line(frame: str) -> str:
    return frame.replace("(", ":").replace("):", "")


@pytest.mark.torch
def test_against_the_stacks_that_torch_itself_tells(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "users_script.py").write_text(_MODULE, encoding="utf-8")
    subprocess.run([sys.executable, "users_script.py"], cwd=tmp_path, check=True, capture_output=True)
    document = json.loads((tmp_path / "trace.json").read_bytes())
    expected = {}
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op":
            stack = event["args"].pop("Call stack").split(";")
            expected[event["args"]["External id"]] = [f for f in stack if f.startswith("users_script.py(")][:3]
    path = _file(tmp_path, document["traceEvents"])
    ours = {number: lines.split("; ") for number, lines in _by_external_id(path).items()}
    assert len(ours) > 20
    assert ours == {number: [_as_line(frame) for frame in frames] for number, frames in expected.items()}
    rows = _MODULE.splitlines()
    forward, train = (rows.index(line) + 1 for line in ("    def forward(self, x):", "def train(block, x):"))
    lines = _lines(path)
    assert lines["aten::mm"] is not None
    start = [f"users_script.py:{forward} forward", f"users_script.py:{train} train"]
    assert str(lines["aten::mm"]).split("; ")[:2] == str(lines["MmBackward0"]).split("; ")[:2] == start


_SKIPPED = ("nn.Module", "torch/", "triton/", "functorch/", "<", "contextlib.py", "functools.py", "typing.py")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "sought"),
    [
        ("xdit_flux.mi300.capture", ("aten::addmm", "aten::convolution", "aten::scaled_dot_product_attention")),
        ("vllm_piecewise.mi300.capture", ("vllm::rocm_unquantized_gemm", "aten::empty_strided", "aten::fill_")),
    ],
)
def test_against_the_parents_that_kineto_writes(real_dir: Path, name: str, sought: tuple[str, ...]) -> None:
    """Of each the innermost frame by brute force, from which on `Python parent id` leads to the user's."""
    path = real_dir / "kineto" / "graph_pairs" / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    frames = [event for event in events if event.get("cat") == "python_function"]
    by_id = {event["args"]["Python id"]: event for event in frames}
    ours = _by_external_id(path)
    for operator in sought:
        event = next(event for event in events if event.get("cat") == "cpu_op" and event["name"] == operator)
        around = (f for f in frames if f["tid"] == event["tid"] and f["ts"] <= event["ts"] < f["ts"] + f["dur"])
        frame = max(around, key=lambda f: f["args"]["Python id"])
        while frame["name"].startswith(_SKIPPED):
            frame = by_id[frame["args"]["Python parent id"]]
        name = frame["name"].rpartition("/")[2] if frame["name"].startswith("/") else frame["name"]
        assert ours[event["args"]["External id"]].split("; ")[0] == _as_line(name)
