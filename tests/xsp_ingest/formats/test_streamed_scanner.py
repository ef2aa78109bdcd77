"""The plain path reads what the standard library's `json` reads, or leaves the file to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.kineto_documents import (
    EVENT,
    EVENTS,
    OPERATOR,
    SETTINGS,
    SMALL,
    STYLES,
    assert_same,
    event_list,
)
from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.events import Document
from xsp_ingest.formats.torch_profiler.scan_plain import CannotScan
from xsp_ingest.formats.torch_profiler.streamed import documents
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def _scan(path: Path, max_rows: int = 1 << 17) -> Document:
    """The documents as one."""
    events, details, frames, rows = [], [], [], 0
    for document in documents(path, max_rows):
        events.append(document.events.clone())
        details.append(document.details.with_columns(pl.col("event") + rows))
        frames.append(document.frames)
        rows += document.events.height
    counts = document.not_objects, document.python_frames, document.unread_flows
    return Document(pl.concat(events), pl.concat(details), pl.concat(frames), document.head, *counts)


def _compare(path: Path, data: bytes) -> Document:
    path.write_bytes(data)
    scanned = _scan(path)
    assert_same(scanned, scan_plain.scan(path))
    return scanned


def _agree(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        scanned = _scan(path)
    except CannotScan:
        return
    assert_same(scanned, scan_plain.scan(path))


@pytest.mark.real
def test_real_files(real_dir: Path) -> None:
    files = sorted((real_dir / "kineto").rglob("*.json.gz"))
    assert files
    left = []
    for path in files:
        try:
            scanned = _scan(path, 20_000)
        except CannotScan:
            left.append(path.name)
            continue
        assert_same(scanned, scan_plain.scan(path))
    assert not left


@pytest.mark.parametrize(
    "data",
    [
        SMALL,
        b"[]",
        b" [ ] ",
        b'{"traceEvents":[]}',
        b'{"a": {"traceEvents": [{"name": "not here"}]}, "traceEvents": [{"name": "here"}]}',
        b'{"a": "traceEvents\\": [", "traceEvents": [{"name": "x"}], "b": "}", "c": [{}, {"d": [1, 2]}, {}]}',
        b'{"traceEvents" : [ {"name": "a"} , {"name": "b"} ] , "a" : [ 1 , { "b" : null } ] , "c" : -1.50e+3}',
        event_list(b'{"args": {"stream": 1}, "args": {"device": 2}}', b'{"args": null, "pid": null, "ts": null}'),
        event_list(
            b'{"args": {"External id": 1, "external id": 2}}', b'{"args": {"external id": 2, "External id": null}}'
        ),
        event_list(b'{"args": {"Input dims": [[1]], "Input Dims": [[2]]}}', b'{"args": {"Input dims": null}}'),
        event_list(b'{"args": {"grid": [1, 2, 3], "block": [4]}}', b'{"args": {"grid": [1, "2", 3.0, 4], "block": 5}}'),
        event_list(b'{"args": {"a": {"stream": 3}, "stream": 4}, "stream": 5, "correlation": 6}'),
        event_list(
            b'{"cat": "python_function", "ph": "X", "name": "f.py(1): f"}',
            b'{"cat": "python_function", "ph": "X", "name": "nn.Module: A_0"}',
            b'{"cat": "python_function", "ph": "M", "name": "nn.Module:"}',
            b'{"cat": "python_function", "ph": "X"}',
            b'{"cat": "ac2g", "ph": "s", "id": 1}',
            b'{"cat": "fwdbwd", "ph": "s", "id": 1, "args": {"stream": 2}}',
        ),
        event_list(
            b'{"name": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00 \xe2\x82\xac"}',
            b'{"unknown": [{"a": "}, {"}, {}]}',
        ),
        event_list(*[EVENT, OPERATOR] * 40),
    ],
)
def test_documents_of_every_shape(file: Path, data: bytes) -> None:
    _compare(file, data)


@pytest.mark.parametrize("size", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("block", [3, 1 << 20])
def test_pieces_of_any_size(file: Path, size: int, block: int) -> None:
    with override_limits(streamed_piece_bytes=size, streamed_cut_bytes=10, content_block_bytes=block):
        _compare(file, event_list(*[EVENT, OPERATOR, b'{"a": [{"b": 1}, {"c": 2}]}'] * 5))
        if min(size, block) < 20:
            return
        scanned = _compare(
            file, b'{"traceEvents": ' + event_list(*[EVENT] * 20) + b', "after": ' + event_list(*[b"{}"] * 900) + b"}"
        )
        assert scanned.events.height == 20


def test_documents_of_a_few_rows(file: Path) -> None:
    file.write_bytes(event_list(*[EVENT, OPERATOR] * 500))
    with override_limits(streamed_piece_bytes=4000):
        assert len(list(documents(file, 100))) > 5
        assert_same(_scan(file, 100), scan_plain.scan(file))


@pytest.mark.parametrize(
    "text",
    ["5", "0.5", "1712195495519689.047", "1712195495519689.0475", "-5", "-0.0005", "1e3", "2.5e-3",
     "9223372036854774.999", "9223372036854775", "9223372036854776", "99999999999999999999",
     '"1.25"', "null", "[1]", "{}", "1.50", "0"],
)  # fmt: skip
def test_microseconds(file: Path, text: str) -> None:
    for others in ([], [b'{"ts": 5, "dur": 7}'], [b'{"ts": 5.125, "dur": 7.000}'], [b"{}"]):
        _compare(file, event_list(*others, f'{{"ts": {text}, "dur": {text}}}'.encode()))


@pytest.mark.parametrize(
    "text",
    ["7", "-7", '"7"', '"-7"', '"007"', '"stream 7"', '"stream x7"', '"7 "', '" 7"', '"1_0"', '""', '"\\u0663"', "null",
     "9223372036854775807", "18446744073709551615", '"9223372036854775808"'],
)  # fmt: skip
def test_whole_numbers(file: Path, text: str) -> None:
    for others in ([], [b'{"pid": 5, "args": {"stream": 3}}'], [b"{}"]):
        _agree(file, event_list(*others, f'{{"pid": {text}, "args": {{"stream": {text}}}}}'.encode()))
        _agree(file, event_list(f'{{"pid": {text}}}'.encode(), *others))


def test_the_least_number_across_pieces(file: Path) -> None:
    file.write_bytes(event_list(b'{"pid": 1}', b'{"pid": -9223372036854775808}', b'{"pid": 2}'))
    with override_limits(streamed_piece_bytes=20), pytest.raises(CannotScan):
        _scan(file)


@pytest.mark.parametrize(
    "data",
    [
        b'[{"pid": -9223372036854775808}]',
        b'[{"name": 5}]',
        b'[{"name": "\xff"}]',
        b'[{"pid": 7.5}]',
        b'[{"a": NaN}]',
        b"[1]",
        b'{"traceEvents": [], "traceEvents": [{}]}',
        b"\xef\xbb\xbf[]",
    ],
)
def test_the_rare_is_left_to_the_standard_library(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    scan_plain.scan(file)
    with pytest.raises(CannotScan):
        _scan(file)


def test_truncation_at_every_byte(file: Path) -> None:
    for length in range(len(SMALL) - 1):
        file.write_bytes(SMALL[:length])
        with pytest.raises((XspError, CannotScan)):
            _scan(file)


@pytest.mark.slow
@SETTINGS
@given(EVENTS, st.sampled_from(STYLES), st.booleans())
def test_any_document(file: Path, events: list[Any], style: dict[str, Any], bare: bool) -> None:  # noqa: FBT001
    document = events if bare else {"before": 1, "traceEvents": events, "after": 1}
    _agree(file, json.dumps(document, **style).encode("utf-8", "surrogatepass"))


_PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "i", None]),
        "cat": st.sampled_from(["kernel", "cpu_op", "ac2g", "python_function"]),
        "name": st.sampled_from(["a", "nn.Module: A_0", "caf\u00e9"]),
        "ts": st.integers(0, 1 << 53) | st.decimals(0, 1 << 40, places=3).map(float),
        "pid": st.integers(-5, 5) | st.sampled_from(["7", "stream 7", "x"]),
        "args": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "External id": st.integers() | st.none(),
                "external id": st.integers(),
                "device": st.integers(0, 8),
                "grid": st.lists(st.integers(0, 9), max_size=4),
                "Input Dims": st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2),
                "other": st.floats(0, 1),
            },
        ),
    },
)


@SETTINGS
@given(st.lists(_PLAIN, max_size=9), st.sampled_from(STYLES))
def test_any_list_of_events(file: Path, events: list[Any], style: dict[str, Any]) -> None:
    _agree(file, json.dumps(events, **style).encode())


@SETTINGS
@given(st.data())
def test_any_damage(file: Path, data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([SMALL, event_list(EVENT, OPERATOR, EVENT)])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"9", b"e"])
        )
        text[at : at + data.draw(st.integers(0, 3))] = piece
    _agree(file, bytes(text))
