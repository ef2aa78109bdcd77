"""Chosen parts of a JSON document, read a stretch at a time: against the standard library's whole parse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from xsp_ingest.files.json_window import EACH, JsonPart, Targets, walk
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LIST, _VALUE = ("runs", EACH, "rows"), ("runs", EACH, "about")
_TARGETS = Targets("the document", lists={_LIST: Any}, values={_VALUE: Any, ("end",): Any})


@pytest.fixture(params=[1, 3, 1 << 20])
def piece_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    """Files come in pieces of so many bytes: every border falls everywhere."""
    with override_limits(content_block_bytes=request.param):
        yield request.param


def _walked(content: str | bytes, folder: Path, targets: Targets = _TARGETS) -> list[JsonPart]:
    path = folder / "document.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(walk(path, targets))


def _gathered(parts: list[JsonPart]) -> tuple[dict[tuple[int, ...], list[Any]], dict[Any, Any]]:
    lists: dict[tuple[int, ...], list[Any]] = {}
    values = {}
    for part in parts:
        if part.location == _LIST:
            lists.setdefault(part.numbers, []).extend(part.content)
        else:
            values[part.location, part.numbers] = part.content
    return lists, values


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
_RUNS = st.lists(
    st.fixed_dictionaries({"x": _JSON, "rows": st.lists(_JSON, max_size=5), "y": _JSON, "about": _JSON}), max_size=3
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(runs=_RUNS, more=_JSON, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_it_finds_what_a_whole_parse_finds(
    runs: list[dict[str, Any]], more: object, *, ascii_only: bool, indent: int | None, piece_bytes: int, tmp_path: Path
) -> None:
    del piece_bytes
    document = {"first": more, "runs": runs, "other": [more], "end": more}
    content = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    lists, values = _gathered(_walked(content, tmp_path))
    again = json.loads(content.decode("utf-8", "replace"))
    assert lists == {(n,): run["rows"] for n, run in enumerate(again["runs"])}
    assert values == {(_VALUE, (n,)): run["about"] for n, run in enumerate(again["runs"])} | {
        (("end",), ()): again["end"]
    }


def test_a_long_list_of_bare_numbers_comes_in_parts(tmp_path: Path) -> None:
    numbers = list(range(10_000_000, 11_500_000))
    parts = _walked(json.dumps([numbers, [[n, 1] for n in range(5)]]), tmp_path, Targets("it", lists={(EACH,): Any}))
    lists = [[entry for part in parts if part.numbers == (n,) for entry in part.content] for n in range(2)]
    assert lists == [numbers, [[n, 1] for n in range(5)]]
    assert len(parts) > 3


def test_what_is_not_wanted_may_be_longer_than_a_window(tmp_path: Path) -> None:
    content = json.dumps({"other": [{"text": "x" * 50}] * 1000, "runs": [{"rows": [1]}]})
    with override_limits(json_entry_max_bytes=1000, content_block_bytes=100):
        assert _gathered(_walked(content, tmp_path)) == ({(0,): [1]}, {})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"runs": [{"rows": [1, 2', "cut off"),
        ('{"runs": [{"rows": [1, 2]}', "cut off"),
        ('{"other": {"a": "b', "cut off"),
        ('{"runs": [}', "not valid JSON"),
        ('{"runs" [', "not valid JSON"),
        ("{7: 8}", "not as its tool writes it"),
        ('{"runs": [{"rows": {}}]}', "no list `rows`"),
        ('{"runs": [{"rows": [1 2]}]}', "not valid JSON"),
        ('{"runs": [{"about": tru}]}', "not valid JSON"),
        ('{"other": ' + "[" * 200_000, "nested more than 64 deep"),
        ("12", "not valid JSON"),
    ],
)
def test_what_is_broken_is_refused_in_a_sentence(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=says) as refused:
        _walked(content, tmp_path)
    assert "\n" not in str(refused.value)


def test_bytes_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    assert _walked(b'{"end": "a\xff"}', tmp_path)[0].content == "a\ufffd"
