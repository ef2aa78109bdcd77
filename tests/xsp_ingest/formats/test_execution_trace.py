"""Execution traces: shapes, types and callers of the operators of a torch.profiler trace."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.formats.execution_trace import EXECUTION_TRACE
from xsp_ingest.formats.execution_trace.nodes import read_nodes
from xsp_ingest.ingester import Options
from xsp_ingest.link.correlate import with_callers
from xsp_ingest.link.spans import span_kinds
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []

_CASE = "execution_trace/mlp_train_cpu"


def _node(number: int, name: str, rf_id: object, caller: int, **inputs: list[Any]) -> dict[str, Any]:
    """A node as schema 1.1 has it."""
    attributes = [{"name": "rf_id", "type": "uint64", "value": rf_id}, {"name": "tid", "type": "uint64", "value": 1}]
    return {"id": number, "name": name, "ctrl_deps": caller, "inputs": inputs, "outputs": {}, "attrs": attributes}


def _event(name: str, start: int, length: int, rf_id: int, **extra: object) -> dict[str, Any]:
    fields = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 7, "ts": start, "dur": length}
    return {**fields, "name": name, "args": {"Record function id": rf_id, **extra}}


def _written(folder: Path, nodes: list[dict[str, Any]], events: list[dict[str, Any]], pid: int = 7) -> list[Path]:
    et, trace = folder / "et", folder / "trace"
    et.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": pid, "nodes": nodes}), encoding="utf-8")
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return [et, trace]


def _operators(trace: Trace) -> list[tuple[Any, ...]]:
    spans = trace.frame("spans").select("span_id", "parent_id", pl.col("name").cast(pl.String))
    return trace.frame("operators").join(spans, on="span_id").select(
        "name", "parent_id", "input_shapes", "input_dtypes"
    ).rows()  # fmt: skip


def test_shapes_and_types_come_in_the_words_of_the_profiler(tmp_path: Path) -> None:
    shapes = [[2, 3], [[], []], [], [[2], [4, 5]], []]
    types = ["Tensor(c10::BFloat16)", "GenericList[Int,Int]", "Int", "GenericList[Tensor(float),Tensor(float)]", "None"]
    nodes = [_node(2, "aten::cat", 9, 1, shapes=shapes, types=types, values=[])]
    trace = convert(_written(tmp_path, nodes, [_event("aten::cat", 10, 5, 9)]), Options())
    assert _operators(trace) == [
        (
            "aten::cat",
            None,
            "[[2, 3], [], [], [[2], [4, 5]], []]",
            '["c10::BFloat16", "ScalarList", "Scalar", "TensorList", ""]',
        )
    ]
    assert ("execution_trace_joined", 1) in trace.frame("ledger").select("kind", "count").rows()


def test_what_the_profiler_itself_wrote_stays(tmp_path: Path) -> None:
    nodes = [_node(2, "aten::mul", 9, 1, shapes=[[2]], types=["Tensor(float)"])]
    event = _event("aten::mul", 10, 5, 9, **{"Input Dims": [[3]], "Input type": ["double"]})
    assert _operators(convert(_written(tmp_path, nodes, [event]), Options())) == [
        ("aten::mul", None, "[[3]]", '["double"]')
    ]


def test_the_older_schema_is_known(tmp_path: Path) -> None:
    node = {"id": 2, "name": "aten::mul", "rf_id": 9, "parent": 1, "inputs": [1], "input_shapes": [[2]]}
    nodes = [{**node, "input_types": ["Tensor(float)"]}]
    assert _operators(convert(_written(tmp_path, nodes, [_event("aten::mul", 10, 5, 9)]), Options())) == [
        ("aten::mul", None, "[[2]]", '["float"]')
    ]


def test_a_stated_caller_goes_before_nesting_by_time(tmp_path: Path) -> None:
    # `second` overhangs `first`, so that times alone put `child` into `second`.
    events = [_event("first", 0, 100, 1), _event("second", 50, 100, 2), _event("child", 60, 10, 3)]
    nodes = [_node(11, "first", 1, 0), _node(12, "second", 2, 11), _node(13, "child", 3, 11)]
    by_time = convert(_written(tmp_path, nodes, events)[1:], Options())
    by_record = convert(_written(tmp_path, nodes, events), Options())
    assert [row[1] for row in _operators(by_time)] == [None, 0, 1]
    assert [row[1] for row in _operators(by_record)] == [None, 0, 0]
    assert list(integrity.broken_rules(by_record)) == []


def test_circles_and_callers_from_the_future_change_nothing(tmp_path: Path) -> None:
    events = [_event("a", 0, 100, 1), _event("b", 10, 50, 2), _event("c", 20, 10, 3)]
    nodes = [_node(11, "a", 1, 13), _node(12, "b", 2, 12), _node(13, "c", 3, 12), _node(14, "d", 3, 14)]
    trace = convert(_written(tmp_path, nodes, events), Options())
    assert [row[1] for row in _operators(trace)] == [None, 0, 1]


def test_a_module_between_operator_and_caller_stays() -> None:
    spans = pl.DataFrame(
        {
            "row": [0, 1, 2],
            "level": ["operator", "layer", "operator"],
            "kind": ["operator", "module", "operator"],
            "start_ns": [0, 1, 2],
            "duration_ns": [9, 8, 1],
        },
        schema_overrides={"level": pl.Categorical, "kind": pl.Categorical},
    )
    operators = pl.DataFrame({"at": [0, 2], "called_by_row": [None, 0]}, schema_overrides={"called_by_row": pl.Int64})
    parent = np.array([-1, 0, 1])
    assert with_callers(spans, span_kinds(spans), operators, parent).tolist() == [-1, 0, 1]


def test_it_goes_to_the_run_of_its_process(tmp_path: Path) -> None:
    nodes = [_node(2, "aten::mul", 9, 1, shapes=[[2]], types=["Tensor(float)"])]
    et, first = _written(tmp_path, nodes, [_event("aten::mul", 10, 5, 9)], pid=8)
    second = tmp_path / "trace2"
    second.write_bytes(first.read_bytes().replace(b'"pid": 7', b'"pid": 8'))
    trace = convert([et, first, second], Options())
    assert [row[2] for row in _operators(trace)] == [None, "[[2]]"]


def test_one_that_fits_two_runs_alike_is_refused(tmp_path: Path) -> None:
    et, first = _written(tmp_path, [_node(2, "aten::mul", 9, 1)], [_event("aten::mul", 10, 5, 9)])
    second = tmp_path / "trace2"
    second.write_bytes(first.read_bytes() + b" ")
    with pytest.raises(XspError, match="fits 2 of the runs alike"):
        convert([et, first, second], Options())


def test_one_of_another_run_is_refused(tmp_path: Path) -> None:
    paths = _written(tmp_path, [_node(2, "aten::mul", 9, 1)], [_event("aten::add", 10, 5, 9)])
    with pytest.raises(XspError, match="of none of the runs given with it"):
        convert(paths, Options())


def test_alone_it_is_refused_with_advice(tmp_path: Path) -> None:
    et = _written(tmp_path, [_node(2, "aten::mul", 9, 1)], [])[0]
    with pytest.raises(XspError, match=r"not when\. Give it together with the torch.profiler trace"):
        convert([et], Options())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schema": "1.1.1", "pid": 1, "nodes": [', "cut off"),
        ('{"schema": "1.1.1", "pid": 1, "nodes": {}}', "not as its tool writes it"),
        ('{"schema": "1.1.1", "pid": 1, "nodes": ]}', "not as its tool writes it"),
    ],
)
def test_a_damaged_file_says_so(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "et"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(XspError, match=says):
        EXECUTION_TRACE.read(path, Options())


def test_odd_values_survive(tmp_path: Path) -> None:
    nodes = [
        _node(2, "a", 2**64, 1),
        _node(3, "b", "nine", 1),
        _node(4, "c", 5, 1, shapes=[1, None], types=[7, {}]),
        {"id": [1], "name": "d", "inputs": {"shapes": 3}, "attrs": []},
    ]
    table = read_nodes(_written(tmp_path, nodes, [])[0]).table
    assert table.rows() == [(5, "c", None, "[[], []]", '["", ""]')]


def test_real_shapes_equal_those_that_the_profiler_recorded(fixtures_dir: Path, tmp_path: Path) -> None:
    """The fixture was recorded with shapes: without them, the execution trace must give them back."""
    folder = fixtures_dir / _CASE
    full = convert([folder / "trace.json.gz"], Options())
    document = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    for event in document["traceEvents"]:
        for key in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides"):
            event.get("args", {}).pop(key, None)
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document), encoding="utf-8")
    assert convert([bare], Options()).frame("operators")["input_shapes"].null_count() > 200
    joined = convert([bare, folder / "et.json.gz"], Options())
    recorded = full.frame("operators").filter(pl.col("input_shapes").is_not_null())
    restored = joined.frame("operators").join(recorded.select("span_id"), on="span_id", how="semi")
    assert recorded.height > 200
    for name in ("input_shapes", "input_dtypes"):
        different = restored.filter(restored[name] != recorded[name])
        assert different.is_empty(), (different.head(3), recorded.filter(restored[name] != recorded[name]).head(3))
    assert joined.frame("spans").equals(full.frame("spans"))  # the callers are those that times suggest
