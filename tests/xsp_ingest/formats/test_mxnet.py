"""MXNet profiles: begins and ends become operators on their device, once each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

_GPU, _THREAD = 1, 2**64 - 5


def _lanes() -> list[dict[str, object]]:
    names = ("cpu/0", "gpu/3", "cpu pinned/")
    return [{"ph": "M", "args": {"name": name}, "pid": n, "name": "process_name"} for n, name in enumerate(names)]


def _pair(
    name: str, start: object, end: object, *, category: str = "operator", lane: int = _GPU, ends: str = "BE"
) -> list[dict[str, object]]:
    return [
        {"name": name, "cat": category, "ph": ph, "ts": at, "pid": lane, "tid": _THREAD}
        for ph, at in zip(ends, (start, end), strict=True)
    ]


def _read(folder: Path, *events: object, options: Options | None = None) -> Trace:
    path = folder / "profile.json"
    path.write_text(json.dumps({"traceEvents": [*_lanes(), *events], "displayTimeUnit": "ms"}), encoding="utf-8")
    return convert([path], options or Options())


def test_an_operator_is_a_begin_and_an_end_on_the_lane_of_its_device(tmp_path: Path) -> None:
    trace = _read(tmp_path, *_pair("Convolution", 10, 35))
    span = named(trace)["Convolution"]
    assert (span["start_ns"], span["duration_ns"], span["device_id"], span["level"]) == (0, 25_000, 3, "operator")
    assert span["thread_id"] == -5  # the hash has 64 bits
    assert trace.frame("runs")["clock_origin_ns"].to_list() == [10_000]
    assert trace.frame("runs")["epoch_ns"].null_count() == 1


def test_an_operator_that_is_a_task_as_well_counts_once(tmp_path: Path) -> None:
    task = _pair("Convolution", 10, 36, ends="be", lane=99)
    trace = _read(tmp_path, *_pair("Convolution", 10, 35), *task)
    assert trace.frame("spans").height == 1
    assert ledger_counts(trace) == {"events_left_out": 1}


def test_events_sorted_by_time_are_paired_from_the_inside(tmp_path: Path) -> None:
    (a, b), (c, d) = _pair("op", 0, 100), _pair("op", 10, 20)
    trace = _read(tmp_path, a, c, d, b)
    assert sorted(trace.frame("spans")["duration_ns"].to_list()) == [10_000, 100_000]


def test_the_category_of_old_versions_is_that_of_operators(tmp_path: Path) -> None:
    trace = _read(tmp_path, *_pair("Pooling", 1, 2, category="category", lane=0))
    assert trace.frame("spans").select(pl.col("level").cast(pl.String)).item() == "operator"


def test_events_of_the_users_are_ranges_and_steps_where_they_are_named_so(tmp_path: Path) -> None:
    events = [
        *_pair("iteration 4", 0, 100, category="event", lane=9),
        *_pair("encoder", 5, 50, category="net", lane=9, ends="()"),
        *_pair("Convolution", 10, 35),
    ]
    spans = named(_read(tmp_path, *events))
    assert (spans["iteration 4"]["kind"], spans["Convolution"]["step"]) == ("step", 4)
    assert (spans["encoder"]["level"], spans["encoder"]["kind"]) == ("layer", "range")


def test_shapes_behind_a_name_are_inputs_and_no_part_of_it(tmp_path: Path) -> None:
    name = "Convolutionin: [[8,3,32,32],[16,3,3,3]]out: [[8,16,30,30]]"
    trace = _read(tmp_path, *_pair(name, 10, 35), *_pair("_backward_Convolution", 40, 60))
    layers = trace.frame("layers").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert layers["layer_name"].to_list() == ["Convolution", "_backward_Convolution"]
    assert layers["shapes"].to_list() == ["[[8,3,32,32],[16,3,3,3]]", None]
    assert named(trace)["_backward_Convolution"]["phase"] == "backward"


def test_memory_in_use_is_a_series_of_each_device(tmp_path: Path) -> None:
    names = ("Memory: gpu/3", "Memory: cpu/0", "Memory: cpu pinned/", "batches")
    samples = [{"ph": "C", "name": n, "ts": 5, "args": {n: 7}, "pid": 0, "tid": 0} for n in names]
    counters = _read(tmp_path, *_pair("op", 0, 9), *samples).frame("counters")
    rows = (
        counters.with_columns(pl.col(pl.Categorical).cast(pl.String))
        .select("counter", "device_id", "value", "unit")
        .rows()
    )
    assert sorted(rows, key=str) == [
        ("allocated_bytes", 3, 7.0, "byte"),
        ("allocated_bytes", None, 7.0, "byte"),
        ("batches", None, 7.0, "1"),
        ("pinned_bytes", None, 7.0, "byte"),
    ]


def test_begins_without_end_and_ends_without_begin_are_counted(tmp_path: Path) -> None:
    trace = _read(tmp_path, *_pair("op", 0, 9), _pair("alone", 1, 2)[0], _pair("other", 1, 2)[1])
    assert ledger_counts(trace) == {"unpaired_events": 2}


def test_times_since_1970_give_the_epoch(tmp_path: Path) -> None:
    trace = _read(tmp_path, *_pair("op", 1_795_132_800_000_000, 1_795_132_800_000_009))
    assert trace.frame("runs")["epoch_ns"].to_list() == [1_795_132_800_000_000_000]


def test_a_dump_that_was_never_closed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"traceEvents": _lanes()})[:-2], encoding="utf-8")
    with pytest.raises(XspError, match="is cut off"):
        convert([path], Options())


_KEYS = ("ts", "dur", "pid", "tid", "name", "args", "cat", "ph")
_ANY = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(_KEYS), _ANY | st.lists(_ANY, max_size=2)), max_size=4))
def test_values_of_any_type_are_counted_or_refused(tmp_path: Path, changes: list[tuple[int, str, object]]) -> None:
    sample: dict[str, object] = {"ph": "C", "name": "x", "ts": 5, "args": {"x": 7}, "pid": 0, "tid": 0}
    events = [*_pair("op", 0, 9), *_pair("step 1", 0, 20, category="event"), sample]
    for index, key, value in changes:
        events[index][key] = value
    try:
        trace = _read(tmp_path, *events)
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []
