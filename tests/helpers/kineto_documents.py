"""Kineto documents of any shape, and that a scanner reads them as the plain reader does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.helpers.examples import examples
from xsp_ingest.formats.torch_profiler.events import FRAMEWORK_FRAMES

if TYPE_CHECKING:
    from xsp_ingest.formats.torch_profiler.events import Document

__all__ = ["EVENT", "EVENTS", "OPERATOR", "SETTINGS", "SMALL", "STYLES", "VALUES", "assert_same", "event_list"]

EVENT = (
    b'{"ph": "X", "cat": "kernel", "name": "void f<1>(int)", "pid": 0, "tid": 7, "ts": 1712195495519689.047, '
    b'"dur": 3.5, "args": {"External id": 5, "device": 0, "stream": 7, "correlation": 8218, '
    b'"grid": [8, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "Collective name": "allreduce", '
    b'"In msg nelems": 16, "Group size": 2, "dtype": "Float", "Process Group Name": "0", '
    b'"Process Group Ranks": "[0, 1]"}}'
)

OPERATOR = (
    b'{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":"12","ts":5,"dur":1,"args":{"Input Dims":[[2,\n3],[]],'
    b'"Input type":["float",""],"Concrete Inputs":["","[1, 2]",{"a":[null,true,false,-1.5e-3]}],'
    b'"Input Strides":[[3, 1],\n[]],"Call stack":"a.py(3): f;torch/b.py(4): g","Sequence number":4}}'
)

SMALL = b'{"schemaVersion": 1,\n "traceEvents": [' + EVENT + b",\n" + OPERATOR + b'], "distributedInfo": {"rank": 3}}\n'


def event_list(*entries: bytes) -> bytes:
    return b"[" + b",".join(entries) + b"]"


def assert_same(document: Document, expected: Document) -> None:
    assert_frame_equal(document.events, expected.events, categorical_as_str=True)
    assert_frame_equal(document.details, expected.details)
    assert_frame_equal(_kept(document), _kept(expected), categorical_as_str=True)
    assert dict(document.head) == dict(expected.head)
    assert document.not_objects == expected.not_objects
    assert document.python_frames == expected.python_frames
    assert dict(document.unread_flows) == dict(expected.unread_flows)


def _kept(document: Document) -> pl.DataFrame:
    """Its frames, without those that a scanner may leave out."""
    is_framework = [name.startswith(FRAMEWORK_FRAMES) for name in document.frames["name"].cast(pl.String)]
    return document.frames.filter(~pl.Series(is_framework, dtype=pl.Boolean))


_KEYS = st.sampled_from(
    [
        *("ph", "cat", "name", "ts", "dur", "pid", "tid", "id", "args", "s", "", 'a"b', "stream", "grid", "block"),
        *("External id", "external id", "Input Dims", "Input dims", "Input type", "correlation", "bytes", "Bytes"),
        *("Input Strides", "Concrete Inputs", "Call stack"),
        *("device", "registers per thread", "Total Allocated", "graph node id", "a key that nobody knows"),
        *("Process Group Name", "Process Group Ranks", "Group size", "dtype", "In msg nelems", "Collective name"),
    ]
)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=40)
    | st.sampled_from(
        [
            "7",
            "stream 7",
            "-3",
            "Spans",
            "X",
            "ac2g",
            "python_function",
            "nn.Module: A_0",
            "a.py(1): f",
            "torch/b.py(2): g",
        ]
    )
)

VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6))

EVENTS = st.lists(st.dictionaries(_KEYS, VALUES, max_size=10) | VALUES, max_size=6)

STYLES: list[dict[str, Any]] = [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}]

SETTINGS = settings(
    max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
