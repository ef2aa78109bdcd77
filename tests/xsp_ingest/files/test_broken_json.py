"""JSON that tools write and that is none: what is mended, what is lost, and what the ledger says of it."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.files.broken_json import Mending
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

_SOUND = '{"ph":"X","name":"a","ts":1}'
_NEXT = '{"ph":"X","name":"z","ts":9}'
_SMALL_IS_LARGE = {
    "compiled_compile_min_bytes": 0,
    "compiled_finish_min_bytes": 0,
    "compiled_min_bytes": 0,
    "streamed_min_bytes": 0,
}


def _mended(path: Path, text: str, block: int = 7) -> tuple[Any, Mending]:
    content = text.encode("latin-1")
    mending = Mending()
    blocks = (content[start : start + block] for start in range(0, len(content), block))
    return json.loads(b"".join(mending.rewrite(path, iter(blocks)))), mending


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("written", "meant", "cause"),
    [
        ('{"ph":"X","name":"a\tb\nc"}', {"ph": "X", "name": "a\tb\nc"}, "a raw control character"),
        (r'{"ph":"X","f":"C:\Users\new\x.py"}', {"ph": "X", "f": r"C:\Users\new\x.py"}, "a backslash"),
        (r'{"ph":"X","f":"C:\Users\new\","n":1}', {"ph": "X", "f": "C:\\Users\\new\\", "n": 1}, "a backslash"),
        ('{"ph":"X","name":"f("a", "b")","n":1}', {"ph": "X", "name": 'f("a", "b")', "n": 1}, "a bare quote"),
        ('{"ph":"X","name":"{"a"}"}', {"ph": "X", "name": '{"a"}'}, "a bare quote"),
        ('{"ph":"X","args":["say "a"", 2]}', {"ph": "X", "args": ['say "a"', 2]}, "a bare quote"),
        ('{"ph":"X","dur":N/A,"n":[nan]}', {"ph": "X", "dur": None, "n": [None]}, "a bare word"),
        ('{"ph":"X","dur":-Infinity}', {"ph": "X", "dur": None}, "a bare word"),
        ('{"ph":"X","up":True,"dur":}', {"ph": "X", "up": True, "dur": None}, "no value"),
        ('{"ph":"X","n":[1,2,],}', {"ph": "X", "n": [1, 2]}, "a comma too many"),
    ],
)
def test_what_is_plainly_meant_is_read(written: str, meant: object, cause: str, block: int, tmp_path: Path) -> None:
    events, mending = _mended(tmp_path, f"[{_SOUND},\n{written},\n{_NEXT}]", block)
    assert events == [json.loads(_SOUND), meant, json.loads(_NEXT)]
    assert not mending.lost
    assert any(finding.detail.startswith(cause) and f"at byte {len(_SOUND) + 3}" <= finding.detail.rsplit("first ")[1]
               for finding in mending.findings())  # fmt: skip


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "written",
    [
        '{"ph":"X","name":"lost","args":{"a":1}',
        '{"ph":"X","name":"lost","args":{"dims":[[1,2',
        '{"ph":"X","name":"lost","ts":12,5,"dur":3}',
        '{"ph":"X","name":"lost","ts":1 "dur":3}',
        '{"ph":"X","name":"lost, "ts":1}',
        '{"ph":"X","name":"lost",{}',
    ],
)
def test_one_entry_is_lost_where_one_is_broken(written: str, block: int, tmp_path: Path) -> None:
    text = f'{{"head":1,"traceEvents":[{_SOUND},{written},{_NEXT}],"tail":2}}'
    document, mending = _mended(tmp_path, text, block)
    assert document == {"head": 1, "traceEvents": [json.loads(_SOUND), json.loads(_NEXT)], "tail": 2}
    assert [offset for _, offset in mending.lost] == [text.index(written)]
    (finding,) = (each for each in mending.findings() if each.kind == "broken_entry")
    assert finding.detail.startswith(f"an entry (lost) at byte {text.index(written)} of ") or "lost," in written


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"ph":"X","name":"lost","ts":nope nope}', []),
        ('{"ph":"X","n":[{"ph":1},{"ph":2} broken],"x":1}', []),
    ],
)
def test_the_last_entry_may_be_the_broken_one(written: str, meant: list[object], tmp_path: Path) -> None:
    document, mending = _mended(tmp_path, f'{{"traceEvents":[{_SOUND},{written}],"tail":2}}')
    assert document == {"traceEvents": [json.loads(_SOUND), *meant], "tail": 2}
    assert len(mending.lost) == 1


@pytest.mark.parametrize(
    ("text", "events", "kind"),
    [
        (f"[{_SOUND},{_NEXT}", 2, "mended_json"),
        (f"[{_SOUND},{_NEXT},\n", 2, "mended_json"),
        (f"[{_SOUND},{_NEXT[:-9]}", 1, "cut_off_json"),
        (f"[{_SOUND},{_NEXT},]", 2, "mended_json"),
        (f"[{_SOUND}\n{_NEXT}]", 2, "mended_json"),
        (f"[{_SOUND},{_NEXT}]\0\0", 2, "mended_json"),
    ],
)
def test_ends_of_lists(text: str, events: int, kind: str, tmp_path: Path) -> None:
    entries, mending = _mended(tmp_path, text)
    assert len(entries) == events
    assert kind in {finding.kind for finding in mending.findings()}


def test_a_nested_document_that_is_cut_keeps_what_was_complete(tmp_path: Path) -> None:
    text = '{"data":[{"traceID":"1","spans":[{"traceID":"1","n":1},{"traceID":"1","n":2},{"traceID":"1","n'
    document, _ = _mended(tmp_path, text)
    assert document == {"data": [{"traceID": "1", "spans": [{"traceID": "1", "n": 1}, {"traceID": "1", "n": 2}]}]}


def test_a_member_beside_the_events_is_mended_or_lost(tmp_path: Path) -> None:
    document, mending = _mended(tmp_path, f'{{"path":"C:\\Users\\me","x": oh [no,"traceEvents":[{_SOUND}]}}')
    assert document["path"] == r"C:\Users\me"
    assert document["traceEvents"] == [json.loads(_SOUND)]
    assert len(mending.lost) == 1


def test_many_lost_entries_are_no_trace(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="more than 10000 entries of the JSON are broken"):
        _mended(tmp_path, f"[{_SOUND}" + ',{"ph":}}' * 10_001 + "]", 1 << 20)


def _trace() -> KinetoTrace:
    trace = KinetoTrace()
    for number in range(30):
        trace.operator(f"aten::op{number}", 100 * number, 50)
    return trace


@pytest.mark.parametrize("limits", [{}, _SMALL_IS_LARGE], ids=["plain", "compiled"])
def test_a_broken_trace_is_read_but_for_what_is_lost(limits: dict[str, int], tmp_path: Path) -> None:
    content = _trace().to_bytes().replace(b"op7", b"op\t7", 1).replace(b'"aten::op9"', b'"aten::op9', 1)
    (tmp_path / "trace.json").write_bytes(content)
    with override_limits(**limits):
        trace = convert([tmp_path / "trace.json"], Options())
        with pytest.raises(XspError, match="not valid JSON"):
            convert([tmp_path / "trace.json"], Options(strict_json=True))
    names = trace.frame("spans")["name"].cast(str).to_list()
    assert ("aten::op\t7" in names, "aten::op9" in names) == (True, False)
    assert sum(name.startswith("aten::op") for name in names) == 29
    ledger = {row["kind"]: row for row in trace.frame("ledger").iter_rows(named=True)}
    assert ledger["broken_entry"]["count"] == ledger["mended_json"]["count"] == 1
    lost = content.rindex(b"{", 0, content.index(b'"aten::op9'))
    assert f"at byte {lost} of trace.json" in ledger["broken_entry"]["detail"]


def test_a_gzip_stream_that_breaks_off_gives_what_it_holds(tmp_path: Path) -> None:
    packed = gzip.compress(_trace().to_bytes(), mtime=0)
    (tmp_path / "trace.json.gz").write_bytes(packed[: len(packed) * 3 // 4])
    trace = convert([tmp_path / "trace.json.gz"], Options())
    assert 0 < trace.frame("spans").height < 30
    assert "cut_off_json" in trace.frame("ledger")["kind"].to_list()


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b'"dur": NaN,', "a bare word in place of a value at byte"),
        (b'"s": "\xff",', "no UTF-8 at byte"),
        (b'"s": "\t",', "a raw control character in a text at byte"),
        (b'"s": 1 2,', "no JSON there"),
    ],
)
def test_strict_reading_refuses_whatever_the_standard_does(written: bytes, why: str, tmp_path: Path) -> None:
    content = _trace().to_bytes().replace(b'"ph":', written + b'"ph":', 3)
    (tmp_path / "trace.json").write_bytes(content)
    convert([tmp_path / "trace.json"], Options())
    with pytest.raises(XspError, match=why):
        convert([tmp_path / "trace.json"], Options(strict_json=True))


def test_a_damaged_stream_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(_trace().to_bytes())
    (tmp_path / "trace.json.gz").write_bytes(packed[:-8] + bytes(8))
    trace = convert([tmp_path / "trace.json.gz"], Options())
    assert len(trace.frame("spans")) == 30
    (row,) = (row for row in trace.frame("ledger").iter_rows(named=True) if row["kind"] == "cut_off_json")
    assert "is damaged" in row["detail"]
    assert "earlier values may be wrong" in row["detail"]


def test_a_second_document_is_not_read_and_not_called_mended(tmp_path: Path) -> None:
    _, mending = _mended(tmp_path, f"[{_SOUND},{_NEXT}][{_SOUND}]")
    (finding,) = mending.findings()
    assert (
        finding.detail == f"what stands behind the end of the JSON was not read: at byte {len(_SOUND) + len(_NEXT) + 3}"
    )


def test_many_broken_entries_among_many_more_are_left_out(tmp_path: Path) -> None:
    events, mending = _mended(tmp_path, "[" + ",".join([_SOUND] * 101_000) + ',{"ph":{"}' * 10_001 + "]", 1 << 20)
    assert (len(events), len(mending.lost)) == (101_000, 10_001)
