"""Long JSON lists are read a stretch at a time, and give the same however the file is cut into pieces."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import integer, nanoseconds
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path


class _Entry(msgspec.Struct):
    name: Any = None
    args: Any = None


def _names(path: Path, seen: Entries, key: bytes | None = None) -> list[object]:
    return [entry.name for batch in entries(path, _Entry, seen, key=key) for entry in batch]


def test_entries_come_in_order_with_braces_quotes_and_escapes_in_texts(tmp_path: Path) -> None:
    names = ['a"b', "}{][", "back\\slash", "\\", "\u03c3\U0001f680", ""]
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"name": name, "args": {"x": [name]}} for name in names]), encoding="utf-8")
    assert _names(path, Entries()) == names


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_pieces_of_any_size_give_the_same(tmp_path: Path, size: int) -> None:
    document = {"other": [{"name": "no"}], "traceEvents": [{"name": 'a"]', "args": [{}]}, 3, {"name": "b"}], "end": 1}
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document, indent=1).encode())
    seen = Entries()
    with override_limits(content_block_bytes=size):
        assert _names(path, seen, b"traceEvents") == ['a"]', "b"]
    assert seen.foreign == 1


def test_packed_files_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "list.json.gz"
    path.write_bytes(gzip.compress(b'[{"name": "a"}]'))
    assert _names(path, Entries()) == ["a"]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"name": "\xff"}]')
    seen = Entries()
    assert _names(path, seen) == ["\ufffd"]
    assert seen.not_utf8 == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "cut off"),
        (b"[", "cut off"),
        (b'[{"name": "a"}, {"name": "b', "cut off"),
        (b"[" * 1000, "nested more than 64 deep"),
        (b'[{"name":' + b'{"x":' * 100 + b"1" + b"}" * 100 + b"}]", "nested more than 64 deep"),
        (b'{"name": 1}', "no JSON list"),
        (b'[{"name": nan}]', "not valid JSON"),
        (b"[{]}", "not valid JSON"),
    ],
)
def test_what_is_no_list_is_refused_in_one_sentence(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(text)
    with pytest.raises(XspError, match=says):
        _names(path, Entries())


@pytest.mark.slow
def test_an_entry_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'[{"name": "' + b"a" * (80 << 20)))
    with pytest.raises(XspError, match="longer than 32 MiB"):
        _names(path, Entries())


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"name": "a"}' + tail)
    try:
        _names(path, Entries())
    except XspError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either outcome is right)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5_000),
        (1234567.891, 1_234_567_891),
        ("0.0200902", 20),
        (-3, -3_000),
        (True, None),
        ("soon", None),
        (float("nan"), None),
        (float("inf"), None),
        (2**63, None),
        ("1e400", None),
        ("1e-400", 0),
    ],
)
def test_times_are_exact_or_nothing(value: object, expected: int | None) -> None:
    assert nanoseconds(value, 1000) == expected


def test_whole_numbers_may_be_digits() -> None:
    assert [integer(value) for value in ("12", "-3", 4)] == [12, -3, 4]
    assert [integer(value) for value in (4.0, "4.0", True, "9" * 19, None)] == [None] * 5
