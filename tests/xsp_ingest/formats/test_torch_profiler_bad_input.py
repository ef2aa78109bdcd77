"""Broken PyTorch traces: one clear sentence, or a ledger that counts exactly what is wrong."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.files.content import content_bytes
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from pathlib import Path


def _sound() -> KinetoTrace:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    kineto.launch("gemm", 3_000, 20_000, 7_000)
    return kineto


def _refusal(path: Path, content: bytes, options: Options | None = None) -> str:
    path.write_bytes(content)
    with pytest.raises(XspError) as caught:
        convert([path], options or Options())
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_truncated_trace_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    content = _sound().to_bytes()
    for length in range(60, len(content) - 2, 7):
        assert "cut off" in _refusal(tmp_path / "t.json", content[:length], Options(strict_json=True))


def test_a_truncated_gzip_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(_sound().to_bytes())
    cut = content[: len(content) // 2]
    assert "cut off" in _refusal(tmp_path / "t.json.gz", cut, Options(strict_json=True))


def test_a_truncated_trace_has_every_event_before_the_cut(tmp_path: Path) -> None:
    content = _sound().to_bytes()
    sound = convert([_sound().write(tmp_path / "sound.json")], Options()).frame("spans").height
    heights = []
    for length in range(len(content) // 2, len(content) - 2, 7):
        (tmp_path / "t.json").write_bytes(content[:length])
        trace = convert([tmp_path / "t.json"], Options())
        heights.append(trace.frame("spans").height)
        assert "cut_off_json" in trace.frame("ledger")["kind"].to_list()
    assert heights == sorted(heights)
    assert heights[0] < heights[-1] <= sound


def test_a_small_gzip_that_was_cut_off_is_not_taken_for_gigabytes(tmp_path: Path) -> None:
    """Its last four bytes are no length; to compile the scanner for such a file looked like a hang."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(_sound().to_bytes())[:200] + b"\xff\xff\xff\xf0")
    assert content_bytes(path) < limits().compiled_min_bytes
    assert content_bytes(path) <= 100 * path.stat().st_size


def test_a_damaged_gzip_is_refused(tmp_path: Path) -> None:
    assert "decompressed" in _refusal(tmp_path / "t.json.gz", b"\x1f\x8b\x08\x00" + bytes(100))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"hello", "no known profiler format"),
        (b'{"a": 1}', "no known profiler format"),
        (b'{"schemaVersion": 1, "traceEvents": 3}', "no list `traceEvents`"),
        (b'{"schemaVersion": 1, "traceEvents": [}', "not valid JSON at character 37"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "no profiler events"),
        (b'[{"ph": "M", "name": "process_name"}]', "no profiler events"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in _refusal(tmp_path / "t.json", content)


def test_lists_in_one_another_without_end_are_refused(tmp_path: Path) -> None:
    events = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 2, "args": {"x": '
    content = events + b"[" * 20_000 + b"]" * 20_000 + b"}}]}"
    assert "the JSON nests lists or objects some thousand deep" in _refusal(tmp_path / "trace.json", content)


def test_a_directory_without_a_known_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(XspError, match="no file of a known profiler format"):
        convert([tmp_path], Options())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="there is no such file"):
        convert([tmp_path / "nowhere.json"], Options())


def test_unknown_files_beside_known_ones_are_counted(tmp_path: Path) -> None:
    _sound().write(tmp_path / "a.json")
    (tmp_path / "notes.txt").write_text("nothing")
    assert ledger_counts(convert([tmp_path], Options()))["unknown_file"] == 1


def test_what_is_wrong_is_counted_and_the_rest_kept(tmp_path: Path) -> None:
    kineto = _sound()
    where = {"device": 0, "stream": 7}
    kineto.raw(ph="X", cat="kernel", name="no dur", pid=0, tid=7, ts=30_000, args={**where, "correlation": 1})
    kineto.raw(ph="X", cat="kernel", name="no ts", pid=0, tid=7, dur=5, args={**where, "correlation": 1})
    kineto.raw(ph="X", cat="cpu_op", name="no dur", pid=100, tid=100, ts=30_000)
    kineto.span("kernel", "negative", 40_000, -5, process_id=0, thread_id=7, args={**where, "correlation": 1})
    kineto.span("kernel", "absurd", 41_000, 10**15, process_id=0, thread_id=7, args={**where, "correlation": 1})
    kineto.kernel("no correlation", 50_000, 100, correlation=None)
    kineto.kernel("twice", 51_000, 100, correlation=None)
    kineto.kernel("twice", 51_000, 100, correlation=None)
    kineto.span("a_new_category", "x", 52_000, 1)
    kineto.raw(ph="B", cat="cpu_op", name="begin", pid=100, tid=100, ts=30_000)
    trace = converted(kineto, tmp_path)
    assert ledger_counts(trace) == {
        "missing_duration": 2,
        "missing_start": 1,
        "negative_duration": 1,
        "absurd_duration": 1,
        "duplicate_event": 1,
        "unknown_category": 1,
        "unpaired_events": 1,
        "events_left_out": 2,  # the launch's arrow
    }
    work = trace.frame("spans").filter(level="kernel")
    assert work.select("name", "duration_ns", "attribution").rows() == [
        ("gemm", 7_000, "layer"),
        ("negative", 0, "layer"),
        ("absurd", 0, "layer"),
        ("no correlation", 100, "orphan_no_correlation"),
        ("twice", 100, "orphan_no_correlation"),
    ]


def test_a_list_of_events_reads_as_the_object_does(tmp_path: Path) -> None:
    kineto = _sound()
    kineto.write(tmp_path / "list.json", list_form=True)
    kineto.write(tmp_path / "object.json")
    as_list, as_object = (convert([tmp_path / f"{n}.json"], Options()) for n in ("list", "object"))
    assert as_list.frame("spans").equals(as_object.frame("spans"))


def test_any_file_name_and_compression_will_do(tmp_path: Path) -> None:
    content = _sound().to_bytes()
    (tmp_path / "odd.name").write_bytes(gzip.compress(content))
    (tmp_path / "plain").write_bytes(content)
    packed, plain = (convert([tmp_path / n], Options()).frame("spans") for n in ("odd.name", "plain"))
    assert packed.equals(plain)


def test_entries_that_are_no_events_are_counted(tmp_path: Path) -> None:
    document = json.loads(_sound().to_bytes())
    document["traceEvents"] += [None, 3, "x", float("nan")]
    (tmp_path / "t.json").write_text(json.dumps(document))
    assert ledger_counts(convert([tmp_path / "t.json"], Options()))["not_an_event"] == 4


def test_half_a_surrogate_pair_is_no_character(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(_sound().to_bytes().replace(b"gemm", b"g\\ud800mm"))
    assert "g?mm" in convert([path], Options()).frame("spans")["name"].to_list()


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + _sound().to_bytes())
    assert convert([path], Options()).frame("spans")["name"].to_list().count("gemm") == 1
