"""Trace JSON of TensorFlow's and JAX's profilers: the same as the profile that it was made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.limits import limits, override_limits

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from xsp_model import Trace

_HEAD = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}


def _event(pid: int, tid: int, name: str, start_us: float, duration_us: float, **args: str) -> dict[str, object]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start_us, "dur": duration_us, "name": name, "args": args}


def _named(pid: int, name: str, tid: int | None = None) -> dict[str, object]:
    thread = {} if tid is None else {"tid": tid}
    return {
        "ph": "M",
        "pid": pid,
        **thread,
        "name": "process_name" if tid is None else "thread_name",
        "args": {"name": name},
    }


def _read(folder: Path, *events: object) -> Trace:
    path = folder / "t.json"
    path.write_text(json.dumps({**_HEAD, "traceEvents": [*events, {}]}))
    return convert([path], Options())


def test_a_kernel_hangs_under_its_launch(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        _named(1, "/device:GPU:3"),
        _named(1, "Stream #7(Kernel)", 70),
        _named(2, "/host:CPU"),
        _named(2, "tf_Compute/5", 5),
        _event(2, 5, "dense/MatMul:MatMul", 1.5, 20.25),
        _event(2, 5, "cuLaunchKernel", 2, 1, correlation_id="9"),
        _event(
            1,
            70,
            "gemm",
            10,
            5.001,
            correlation_id="9",
            kernel_details="regs:8 grid:2,1,1 block:32,1,1",
            context_id="$$4",
        ),
        _event(2, 5, "$file.py:3 f", 0, 99),
    )
    spans = named(trace)
    kernel = spans["gemm"]
    assert (kernel["parent"], kernel["layer"]) == ("cuLaunchKernel", "dense/MatMul")
    assert (kernel["start_ns"], kernel["duration_ns"]) == (8_500, 5_001)
    assert (kernel["device_id"], kernel["stream_id"], kernel["context_id"]) == (3, 7, 4)
    assert trace.frame("kernels")["registers_per_thread"].to_list() == [8]
    assert ledger_counts(trace) == {"python_frames_left_out": 1}


def test_the_trace_of_steps_is_as_their_profile(fixtures_dir: Path) -> None:
    """Every event at the same time for as long; only the programs' metadata is missing."""
    trace, profile = (
        convert([fixtures_dir / folder / "jax_train_cpu" / file], Options())
        for folder, file in (("xla_trace_json", "steps.trace.json.gz"), ("xplane", "steps.xplane.pb"))
    )
    columns = ["level", "kind", "name", "start_ns", "duration_ns", "step"]
    ours, theirs = (
        t.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns) for t in (trace, profile)
    )
    assert ours.join(theirs, on=columns, how="anti", nulls_equal=True).height == 0
    beyond = theirs.join(ours, on=columns, how="anti", nulls_equal=True)
    assert beyond["name"].str.contains("/|^[a-z]+$").all()  # framework operations around the instructions
    assert set(beyond["level"]) == {"operator"}


def test_a_file_cut_at_a_million_events_says_so(tmp_path: Path) -> None:
    assert limits().xla_max_events == 1_000_000
    events = [_event(2, 5, f"n{n}:MatMul", n, 1) for n in range(2)]
    with override_limits(xla_max_events=2):
        assert ledger_counts(_read(tmp_path, _named(2, "/host:CPU"), *events))["cut_at_a_million"] == 2


def test_odd_entries_are_counted(tmp_path: Path) -> None:
    odd = [7, {"ph": "X", "name": "no process"}, {**_event(2, 5, "a:B", 0, 1), "ts": "soon"}]
    trace = _read(tmp_path, _named(2, "/host:CPU"), _event(2, 5, "a:B", 0, 1), *odd)
    assert ledger_counts(trace)["not_an_event"] == 3


@settings(max_examples=examples(100))
@given(offset=st.integers(0, 5_000), value=st.binary(min_size=1, max_size=3), cut=st.integers(0, 20))
def test_a_changed_trace_is_refused_in_one_sentence_or_read(
    offset: int, value: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    _read(folder, _named(2, "/host:CPU"), *(_event(2, 5, f"n{n}:MatMul", n, 1, step_num="1") for n in range(9)))
    content = (folder / "t.json").read_bytes()
    at = offset % len(content)
    (folder / "t.json").write_bytes((content[:at] + value + content[at + len(value) :])[: len(content) - cut])
    assert "\n" not in _complaint(folder / "t.json")


def _complaint(path: Path) -> str:
    """What is said of the file; empty where it can be read. Anything but an XspError fails the test."""
    try:
        convert([path], Options(), format_name="xla_trace_json")
    except XspError as error:
        return str(error)
    return ""
