"""OpenTelemetry spans of programs that are not ours: ranges, by their ids and exact times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.exported import with_texts
from xsp_ingest.convert import convert
from xsp_ingest.formats.jaeger.otlp.reader import lanes
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_EPOCH = 1_763_900_000_123_456_789


def _span(number: int, start: int, end: int, *, parent: int = 0, **more: object) -> dict[str, object]:
    times = {"startTimeUnixNano": str(_EPOCH + start), "endTimeUnixNano": str(_EPOCH + end)}
    ids = {"spanId": f"{number:016x}", "parentSpanId": f"{parent:016x}" if parent else ""}
    return {"traceId": "0" * 31 + "1", "name": f"span {number}", "kind": 1, **ids, **times, **more}


def _document(*spans: dict[str, object], **about: object) -> dict[str, object]:
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in about.items()]
    return {"resourceSpans": [{"resource": {"attributes": pairs}, "scopeSpans": [{"spans": list(spans)}]}]}


def _read(folder: Path, text: str, **options: object) -> Trace:
    path = folder / "spans.json"
    path.write_text(text, encoding="utf-8")
    return convert([path], Options(**options))  # type: ignore[arg-type]


def _tree(trace: Trace) -> dict[str, str | None]:
    spans = with_texts(trace.frame("spans"))
    names = spans["name"].to_list()
    return {row["name"]: None if row["parent_id"] is None else names[row["parent_id"]] for row in spans.to_dicts()}


def test_times_are_exact_and_since_1970(tmp_path: Path) -> None:
    trace = _read(tmp_path, json.dumps(_document(_span(1, 3, 10), _span(2, 4, 5, parent=1))))
    assert trace.frame("spans").select("start_ns", "duration_ns").rows() == [(0, 7), (1, 1)]
    assert trace.frame("runs")["epoch_ns"].to_list() == [_EPOCH + 3]
    assert _tree(trace) == {"span 1": None, "span 2": "span 1"}


def test_a_document_a_line_is_one_run(tmp_path: Path) -> None:
    lines = [json.dumps(_document(_span(n, n * 10, n * 10 + 5))) for n in (1, 2)]
    trace = _read(tmp_path, "\n".join(lines) + "\n")
    assert (trace.row_count, trace.height("runs")) == (2, 1)


def test_an_indented_document_is_read(tmp_path: Path) -> None:
    assert _read(tmp_path, json.dumps(_document(_span(1, 0, 5)), indent=2)).row_count == 1


def test_the_resource_says_who_wrote_it_and_which_process(tmp_path: Path) -> None:
    about = {
        "service_name": {"stringValue": "llama"},
        "process_pid": {"intValue": "77"},
        "telemetry_sdk_name": {"stringValue": "opentelemetry"},
        "telemetry_sdk_version": {"stringValue": "1.30.0"},
    }
    trace = _read(tmp_path, json.dumps(_document(_span(1, 0, 5), **about)))
    assert trace.frame("runs").select("profiler", "model").row(0) == ("opentelemetry 1.30.0", "llama")
    assert trace.frame("spans")["process_id"].to_list() == [77]


def test_nothing_hangs_under_what_it_does_not_name(tmp_path: Path) -> None:
    spans = (_span(1, 0, 100), _span(2, 10, 50), _span(3, 20, 30, parent=1), _span(4, 25, 60, parent=1))
    trace = _read(tmp_path, json.dumps(_document(*spans)))
    assert _tree(trace) == {"span 1": None, "span 2": None, "span 3": "span 1", "span 4": None}
    ledger = dict(trace.frame("ledger").select("kind", "count").rows())
    assert ledger["parent_not_around"] == 1  # span 4 runs while its sibling does


def test_lanes_of_one_process_hold_none_of_another() -> None:
    assert lanes([(1, 0, 10), (2, 1, 5), (1, 2, 4)], [-1, 0, 0]) == ([0, 1, 0], 1)


def test_what_lacks_a_time_or_a_parent_is_counted(tmp_path: Path) -> None:
    spans = (_span(1, 0, 100), _span(2, 1, 2, endTimeUnixNano="0"), _span(3, 5, 6, parent=99), _span(4, 9, 7))
    trace = _read(tmp_path, json.dumps(_document(*spans)))
    ledger = dict(trace.frame("ledger").select("kind", "count").rows())
    assert (ledger["missing_time"], ledger["missing_reference"], ledger["negative_duration"]) == (1, 1, 1)
    assert trace.row_count == 3


def test_names_choose_steps_and_layers(tmp_path: Path) -> None:
    spans = (_span(1, 0, 100, name="generate"), _span(2, 5, 50, parent=1, name="prefill"))
    trace = _read(tmp_path, json.dumps(_document(*spans)), model_ranges=["^generate$"])
    assert with_texts(trace.frame("spans")).select("level", "kind").rows() == [("model", "step"), ("layer", "range")]


@pytest.mark.parametrize(
    "text", ['{"resourceSpans": [', '{"resourceSpans": [1]}', '{"resourceSpans": [{"a": ' + "[" * 9000]
)
def test_what_is_no_such_document_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(XspError, match=r"OTLP's JSON|nests"):
        _read(tmp_path, text)
