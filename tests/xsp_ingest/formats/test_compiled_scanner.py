"""The compiled scanner reads what the plain one reads, in pieces of any size, and never beyond the end."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.guarded import guarded_memory
from tests.helpers.kineto_documents import (
    EVENT,
    EVENTS,
    OPERATOR,
    SETTINGS,
    SMALL,
    STYLES,
    VALUES,
    assert_same,
    event_list,
)
from xsp_ingest.files import content
from xsp_ingest.files.content import content_bytes
from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.compiled import columns, scanner
from xsp_ingest.formats.torch_profiler.compiled.columns import Ready
from xsp_ingest.formats.torch_profiler.compiled.scanner import CannotScan
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document


def _compare(path: Path, data: bytes) -> Document:
    path.write_bytes(data)
    document = scanner.scan(path)
    assert_same(document, scan_plain.scan(path))
    return document


@pytest.fixture(autouse=True)
def _compiled_whatever_the_size() -> Iterator[None]:
    with override_limits(compiled_compile_min_bytes=0, compiled_finish_min_bytes=0):
        yield


@pytest.mark.parametrize(
    ("ready", "threshold"),
    [(Ready.COMPILE, "compiled_compile_min_bytes"), (Ready.FINISH, "compiled_finish_min_bytes")],
)
def test_small_files_do_not_wait_for_the_compiler(
    file: Path, monkeypatch: pytest.MonkeyPatch, ready: Ready, threshold: str
) -> None:
    monkeypatch.setattr(columns, "readiness", lambda: ready)
    file.write_bytes(SMALL)
    with override_limits(**{threshold: 1 << 20}), pytest.raises(CannotScan):
        scanner.scan(file)


@pytest.mark.parametrize("names", range(0, 60, 6))
def test_an_event_of_more_categories_than_there_is_room_for_texts(file: Path, names: int) -> None:
    one_text = [b'{"name": "n%d"}' % n for n in range(names)]
    many = b",".join(b'"cat":"%x","ph":"%x"' % (n, n) for n in range(100))
    with override_limits(compiled_first_texts=128), guarded_memory():
        _compare(file, event_list(*one_text, b"{" + many + b',"name":"x"}', *one_text, EVENT))


@pytest.mark.parametrize("behind", [b"\0", b"\0x", b" \0\0"])
def test_bytes_behind_the_document_are_refused_as_by_the_plain_scanner(file: Path, behind: bytes) -> None:
    file.write_bytes(SMALL + behind)
    with pytest.raises(CannotScan):
        scanner.scan(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.mark.real
def test_real_files(real_dir: Path) -> None:
    files = sorted((real_dir / "kineto").rglob("*.json.gz"))
    assert files
    for path in files:
        assert_same(scanner.scan(path), scan_plain.scan(path))


@pytest.mark.parametrize(
    "data",
    [
        SMALL,
        b"[]",
        b" [ ] ",
        b"\r\n\t[{}, {} ]",
        b'{"traceEvents":[]}',
        b'{"traceEvents" : [ ] , "a" : [ 1 , { "b" : null } ] , "c" : -1.50e+3, "d": NaN}',
        b'{"a": {"traceEvents": [{"name": "not here"}]}, "traceEvents": [{"name": "here"}]}',
        b'{"a": "traceEvents\\": [", "traceEvents": [{"name": "x"}], "b": "}"}',
        event_list(b'1, -2.5, "text", null, true, false, NaN, -Infinity, [[]], [{}], {"name": "a"}'),
        event_list(b'{"args": {"stream": 1}, "args": {"device": 2}}', b'{"args": {"stream": 1}, "args": 0}'),
        event_list(b'{"ts": 1, "ts": null}', b'{"name": "a", "name": "b"}', b'{"args": {"stream": 1, "stream": "x"}}'),
        event_list(
            b'{"args": {"External id": 1, "external id": 2}}', b'{"args": {"external id": 2, "External id": null}}'
        ),
        event_list(b'{"args": {"Input dims": [[1]], "Input Dims": [[2]]}}', b'{"args": {"Input dims": null}}'),
        event_list(b'{"args": {"grid": [1, 2, 3], "grid": [4]}}', b'{"args": {"grid": [1, "2", 3.0, 4], "block": 5}}'),
        event_list(b'{"args": {"grid": [], "block": {}}}', b'{"args": {}}', b'{"args": [], "ph": "i"}'),
        event_list(b'{"args": {"a": {"stream": 3}, "stream": 4}, "stream": 5, "correlation": 6}'),
        event_list(
            b'{"ph": 1, "cat": null, "name": 12}', b'{"name": 1.50}', b'{"name": {"b" : [1,\n2]}}', b'{"name": NaN}'
        ),
        event_list(
            b'{"cat": "python_function", "ph": "X", "name": "f.py(1): f"}',
            b'{"cat": "python_function", "ph": "X", "name": "nn.Module: A_0"}',
            b'{"cat": "python_function", "ph": "M", "name": "nn.Module:"}',
            b'{"cat": "python_function", "ph": "X"}',
            b'{"cat": "python_function", "ph": "X", "name": "a\\\\b"}',
            b'{"cat": "ac2g", "ph": "s", "id": 1}',
            b'{"cat": "fwdbwd", "ph": "s", "id": 1, "args": {"stream": 2}}',
        ),
        event_list(
            b'{"name": ""}', b"{}", b'{"name": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00"}', b'{"name": "A"}'
        ),
        event_list(
            b'{"name": "\xe2\x82\xac <script>alert(1)</script>"}', b'{"name": "\xff\xc3"}', b'{"name": "\\u0000"}'
        ),
        event_list(b'{"name": "' + b"k" * 5000 + b'"}', b'{"name": "' + b"k" * 5001 + b'"}'),
        event_list(b'{"an unknown key of more than twenty-four bytes": 1, "": 2, "name": "a"}'),
    ],
)
def test_documents_of_every_shape(file: Path, data: bytes) -> None:
    _compare(file, data)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5", 5000),
        ("-5", -5000),
        ("-0", 0),
        ("0.5", 500),
        ("1712195495519689.047", 1712195495519689047),
        ("1712195495519689.0475", 1712195495519689048),
        ("1712195495519689.0465", 1712195495519689046),
        ("1712195495519689.04650001", 1712195495519689047),
        ("-0.0005", 0),
        ("-0.0015", -2),
        ("1e3", 1000000),
        ("1.5E-3", 2),
        ("2.5e-3", 2),
        ("2.51e-3", 3),
        ("1e-400", 0),
        ("0e99", 0),
        ("1e+400", None),
        ("12e15", None),
        ("9e15", 9000000000000000000),
        ("9223372036854774.999", 9223372036854774999),
        ("9223372036854776", None),
        ("99999999999999999999999999", None),
        ("NaN", None),
        ("-Infinity", None),
        ("Infinity", None),
        ("null", None),
        ("true", None),
        ('"1.25"', 1250),
        ("[1]", None),
        ("{}", None),
    ],
)
def test_microseconds(file: Path, text: str, nanoseconds: int | None) -> None:
    document = _compare(file, event_list(f'{{"ts": {text}, "dur": {text}}}'.encode()))
    assert document.events["ts_ns"].to_list() == [nanoseconds]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("7.0", None),
        ("7e0", None),
        ('"7"', 7),
        ('"-7"', -7),
        ('"007"', 7),
        ('"stream 7"', 7),
        ('"stream "', None),
        ('"stream x7"', None),
        ('"7 "', None),
        ('""', None),
        ('"-"', None),
        ('"Spans"', None),
        ('"Caf\\u00e9"', None),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", None),
        ("-9223372036854775807", -9223372036854775807),
        ("18446744073709551615", None),
        ("1" * 400, None),
        ("true", None),
        ("null", None),
        ("NaN", None),
        ("-Infinity", None),
        ("[7]", None),
    ],
)
def test_whole_numbers(file: Path, text: str, number: int | None) -> None:
    file.write_bytes(event_list(f'{{"pid": {text}, "args": {{"stream": {text}}}}}'.encode()))
    expected = scan_plain.scan(file)
    assert expected.events["pid"].to_list() == [number]
    try:
        assert_same(scanner.scan(file), expected)
    except CannotScan:
        assert "\\" in text


@pytest.mark.parametrize(
    "data",
    [
        b'[{"name": "a"}] x',
        b'[{"name": "a"},]',
        b'[{"name": "a",}]',
        b'[{"name" "a"}]',
        b'[{name: "a"}]',
        b"[{'name': 1}]",
        b'[{"name": tru}]',
        b'[{"name": nulll}]',
        b'[{"ts": 01}]',
        b'[{"ts": 1.}]',
        b'[{"ts": .5}]',
        b'[{"ts": +5}]',
        b'[{"ts": 1e}]',
        b'[{"ts": -}]',
        b'[{"name": "a\nb"}]',
        b'[{"name": "\\x41"}]',
        b'[{"name": "\\u12g4"}]',
        b'[{"a": [1 2]}]',
        b'[{"a": [1,]}]',
        b'[{"a": [1}]]',
        b'[{"a": {"b"}}]',
        b"[1 2]",
        b"[,1]",
        b"[1,,2]",
        b"[\x00]",
        b'{"a": 1 "traceEvents": []}',
        b'{"traceEvents": [],}',
        b'{"traceEvents": []} {}',
        b'{"traceEvents": 5}',
        b'{"events": []}',
        b'"traceEvents"',
        b"5",
        b"",
        b" \n",
    ],
)
def test_what_the_plain_scanner_refuses_is_not_read(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(XspError):
        scan_plain.scan(file)
    with pytest.raises((XspError, CannotScan)):
        scanner.scan(file)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf[]",
        b'{"traceEvents": [], "traceEvents": [{}]}',
        b'{"trace\\u0045vents": []}',
        b'[{"n\\u0061me": "a"}]',
        b'[{"name": "\\ud800"}]',
        b'[{"cat": "ac2\\u0067"}]',
        b'[{"cat": "python_function", "name": "nn.M\\u006fdule: A_0"}]',
        b'[{"pid": -9223372036854775808}]',
        b'[{"a": ' + b"[" * 300 + b"]" * 300 + b"}]",
        '[{"pid": "\u0663"}]'.encode(),
        b'[{"ts": 0.00000000000000000000000000000000000001}]',
        b'[{"ts": "1_0"}]',
    ],
)
def test_the_rare_is_left_to_the_plain_scanner(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(CannotScan):
        scanner.scan(file)


@pytest.mark.parametrize("size", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("threshold", ["compiled_buffer_bytes", "content_block_bytes"])
def test_pieces_of_any_size(file: Path, threshold: str, size: int) -> None:
    with override_limits(**{threshold: size}):
        _compare(file, SMALL)
        _compare(file, event_list(b"1234567", EVENT, b" null ", OPERATOR, b"12 "))


@pytest.fixture
def _small_tables() -> Iterator[None]:
    with override_limits(
        compiled_first_rows=2, compiled_first_texts=64, compiled_first_text_bytes=256, compiled_first_frames=2
    ):
        yield


@pytest.mark.usefixtures("_small_tables")
def test_tables_that_must_grow(file: Path) -> None:
    frames = [b'{"ph":"X","cat":"python_function","name":"f","ts":%d,"dur":1}' % n for n in range(100)]
    assert _compare(file, event_list(*frames)).frames.height == 100
    entries = [json.dumps({"name": f"kernel {n % 700}", "ph": "X", "ts": n}).encode() for n in range(3000)]
    late = b'{"name": "late", "args": {"graph id": 4}}'
    document = _compare(file, event_list(*entries, late))
    assert document.details.select("event", "graph_id").rows() == [(3000, 4)]


def test_frames_of_functions_fill_a_document_as_events_do(file: Path) -> None:
    kept = ["a.py(1): f", "b\\u0061.py(3): h"]
    names = [*kept, "torch/b.py(2): g", "<built-in method f of object at 0x7>", "nn.Module: M_0"]
    frame = '{"ph": "X", "cat": "python_function", "name": "%s", "ts": %d, "dur": 1.5, "pid": 1, "tid": 2}'
    entries = [(frame % (names[n % len(names)], n)).encode() for n in range(1000)]
    compared = _compare(file, event_list(*entries, EVENT))
    assert (compared.python_frames, compared.frames.height, compared.events.height) == (800, 400, 201)
    parts = [(d.frames.rows(), d.python_frames) for d in scanner.documents(file, max_rows=64)]
    assert len(parts) == 400 // 64 + 1
    assert [row for rows, _ in parts for row in rows] == compared.frames.rows()
    assert parts[-1][1] == 800
    assert scanner.scan(file, frames=False).frames.is_empty()


@pytest.mark.slow
def test_truncation_at_every_byte(file: Path) -> None:
    for length in range(len(SMALL) - 1):
        file.write_bytes(SMALL[:length])
        with pytest.raises((XspError, CannotScan)):
            scanner.scan(file)


def test_truncation_is_said_in_one_sentence(file: Path) -> None:
    file.write_bytes(SMALL[:200])
    with pytest.raises(XspError, match="the trace is cut off"):
        scanner.scan(file)


def test_json_without_events(file: Path) -> None:
    file.write_bytes(b'{"schemaVersion": 1}')
    with pytest.raises(XspError, match="no list `traceEvents`"):
        scanner.scan(file)


class TestGzip:
    def test_members_and_padding(self, file: Path) -> None:
        half = len(SMALL) // 2
        _compare(file, gzip.compress(SMALL[:half]) + b"\0" * 9 + gzip.compress(SMALL[half:]) + b"\0" * 600)

    @pytest.mark.slow
    def test_without_the_faster_library(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(content, "_isal", lambda: None)
        _compare(file, gzip.compress(event_list(*[EVENT] * 40000)))

    def test_blocks(self, file: Path) -> None:
        with override_limits(gzip_read_bytes=11, content_block_bytes=5):
            _compare(file, gzip.compress(SMALL))

    @pytest.mark.slow
    def test_truncation_at_every_byte(self, file: Path) -> None:
        data = gzip.compress(SMALL)
        for length in range(2, len(data)):
            file.write_bytes(data[:length])
            with pytest.raises(XspError, match="cut off"):
                scanner.scan(file)

    @pytest.mark.parametrize("tail", [b"x", b"garbage behind the member"])
    def test_garbage_behind_it(self, file: Path, tail: bytes) -> None:
        file.write_bytes(gzip.compress(SMALL) + tail)
        with pytest.raises(XspError):
            scanner.scan(file)

    def test_a_damaged_stream(self, file: Path) -> None:
        data = bytearray(gzip.compress(SMALL))
        data[-6] ^= 1
        file.write_bytes(bytes(data))
        with pytest.raises(XspError):
            scanner.scan(file)

    def test_content_bytes(self, file: Path) -> None:
        file.write_bytes(gzip.compress(SMALL * 100))
        assert content_bytes(file) == len(SMALL) * 100
        file.write_bytes(SMALL)
        assert content_bytes(file) == len(SMALL)


def _agree(file: Path, data: bytes) -> None:
    """The same document, or both refuse, or the compiled scanner leaves it."""
    file.write_bytes(data)
    try:
        document = scanner.scan(file)
    except CannotScan:
        return
    except XspError:
        with pytest.raises(XspError):
            scan_plain.scan(file)
        return
    assert_same(document, scan_plain.scan(file))


@pytest.mark.slow
@SETTINGS
@given(EVENTS, st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.sampled_from(STYLES), st.booleans())
def test_any_document(file: Path, events: list[Any], head: dict[str, Any], style: dict[str, Any], bare: bool) -> None:  # noqa: FBT001
    events = [*events, *events, *events]  # the later ones are read by what was learned from the first
    document = events if bare else head | {"traceEvents": events} | {"after": 1}
    _agree(file, json.dumps(document, **style).encode("utf-8", "surrogatepass"))


@SETTINGS
@given(st.data())
def test_any_damage(file: Path, data: st.DataObject) -> None:
    alike = event_list(EVENT, OPERATOR, EVENT.replace(b"3.5", b"12"), OPERATOR.replace(b"12", b"7"), EVENT, OPERATOR)
    text = bytearray(data.draw(st.sampled_from([SMALL, event_list(OPERATOR, b"-1.5e3", EVENT), alike])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"9", b"e"])
        )
        text[at : at + data.draw(st.integers(0, 3))] = piece
    _agree(file, bytes(text))


@SETTINGS
@given(st.decimals(allow_nan=False, allow_infinity=False, places=None))
def test_any_number(file: Path, value: Any) -> None:  # noqa: ANN401 (Decimal)
    _agree(file, event_list(f'{{"ts": {value}, "dur": "{value}", "pid": {value}}}'.encode()))


def _like(event: bytes, old: bytes, new: bytes) -> bytes:
    assert old in event
    return event.replace(old, new, 1)


class TestEventsLikeEarlierOnes:
    """Between the values of an event nothing is read again once it is known: see `scan_seams`."""

    @pytest.mark.parametrize(
        "value",
        [
            b"0",
            b"-3",
            b"12345678",
            b"123456789",
            b"1234567890123456",
            b"12345678901234567",
            b"1.5",
            b"1e3",
            b"null",
            b'"17"',
            b'"stream 7"',
            b"true",
            b"{}",
            b"[1]",
        ],
    )
    @pytest.mark.parametrize("key", [b'"correlation": 8218', b'"device": 0', b'"tid": 7', b'"ts": 1712195495519689.047',
                                     b'"dur": 3.5', b'"block": [256, 1, 1]'])  # fmt: skip
    def test_other_values(self, file: Path, key: bytes, value: bytes) -> None:
        other = _like(EVENT, key, key.split(b":")[0] + b": " + value)
        _agree(file, event_list(EVENT, other, EVENT, other, other))

    @pytest.mark.parametrize(
        "dims",
        [b"[]", b"[[]]", b"[[8, 256, 3072], []]", b'["a]", "[", "\\\\"]', b"[" + b"[1, 2], " * 20 + b"[]]", b"7",
         b'"[]"', b'[{"a": "]"}, "' + b"x" * 70 + b'"]', b"null", b"[1,\n2]"],
    )  # fmt: skip
    def test_other_texts(self, file: Path, dims: bytes) -> None:
        other = _like(OPERATOR, b"[[2,\n3],[]]", dims)
        _compare(
            file, event_list(OPERATOR, other, OPERATOR, other, _like(other, b"aten::add", b"aten::" + b"k" * 90), other)
        )

    def test_other_words(self, file: Path) -> None:
        category = b"a category longer than any segment, which takes more of them: " + b"k" * 80
        others = [
            _like(EVENT, b'"kernel"', each)
            for each in (b'"' + category + b'"', b'"gpu_memset"', b"3", b"null", b'"ac2g"')
        ]
        _compare(file, event_list(EVENT, *others, EVENT, *others))

    def test_a_key_longer_than_a_seam(self, file: Path) -> None:
        other = _like(EVENT, b'"device"', b'"' + b"k" * 300 + b'": 1, "device"')
        document = _compare(file, event_list(EVENT, other, other, EVENT))
        assert document.details["device"].to_list() == [0] * 4

    def test_arguments_twice(self, file: Path) -> None:
        twice = EVENT[:-1] + b', "args": {"stream": 9}}'
        document = _compare(file, event_list(EVENT, twice, EVENT, twice, EVENT, twice))
        assert document.details["device"].to_list() == [0, None] * 3

    def test_arguments_that_are_none(self, file: Path) -> None:
        _compare(file, event_list(*[b'{"name": "a", "ts": 1, "args": 5}', b'{"name": "a", "ts": 1, "args": {}}'] * 3))

    def test_more_values_than_are_noted(self, file: Path) -> None:
        long = EVENT[:-1] + b"," + b", ".join(b'"k%d": %d' % (n, n) for n in range(300)) + b"}"
        _compare(file, event_list(long, EVENT, long, EVENT))

    @pytest.mark.slow
    def test_more_sorts_of_events_than_are_known(self, file: Path) -> None:
        others = [_like(EVENT, b'"pid"', b'"key %d": 1, "pid"' % n) for n in range(6000)]
        document = _compare(file, event_list(*others, *[EVENT] * 20000, *others))
        assert document.events.height == 32000

    @pytest.mark.parametrize(
        "other",
        [b'"stream": 07', b'"stream": 7.', b'"stream": 7e', b'"stream": 7 8', b'"stream": ', b'"stream": 7,,',
         b'"stream": -', b'"stream" 7', b'"stream": "7', b'"stream": [7', b'"stream": 7}', b'"stream": 7\0',
         b'"stream": tru', b"stream: 7"],
    )  # fmt: skip
    def test_what_is_no_json(self, file: Path, other: bytes) -> None:
        file.write_bytes(event_list(EVENT, EVENT, _like(EVENT, b'"stream": 7', other), EVENT))
        with pytest.raises(XspError):
            scan_plain.scan(file)
        with pytest.raises((XspError, CannotScan)):
            scanner.scan(file)

    def test_lists_that_are_none(self, file: Path) -> None:
        for dims in (b"[[2,3],[]", b"[2}", b'["]', b"[2 3]", b"[,]", b"[2,]", b'["a" "b"]'):
            file.write_bytes(event_list(OPERATOR, OPERATOR, _like(OPERATOR, b"[[2,\n3],[]]", dims)))
            with pytest.raises((XspError, CannotScan)):
                scanner.scan(file)


def test_damage_to_a_compressed_file(file: Path) -> None:
    data = zlib.compress(SMALL)
    file.write_bytes(data)
    with pytest.raises((XspError, CannotScan)):
        scanner.scan(file)
