"""Both engines of a sweep give the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from numba.core.errors import NumbaError

from fuzz.guarded import guarded_memory
from tests.helpers.toy_function import toy
from xsp_ingest.link import nest
from xsp_ingest.link.spans import innermost, outermost
from xsp_ingest.machine import native, sweep
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_model.columns.arrays import Ints


def _nest(start: list[int], end: list[int], slack: int, parent: list[int], depth: list[int]) -> None:
    top = -1
    for i in range(len(start)):
        while top >= 0 and end[top] + slack <= start[i]:
            top = parent[top]
        parent[i] = top
        if top >= 0:
            depth[i] = depth[top] + 1
        top = i


_SWEEP = sweep.dual(toy(_nest, "int64", "int64", "", "int64", "int64"))(_nest)
_START = np.array([0, 1, 2, 5, 11, 20], dtype=np.int64)
_END = np.array([10, 4, 3, 9, 12, 21], dtype=np.int64)


def test_the_plain_engine_runs_on_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        pytest.fail("compiled engine used")

    monkeypatch.setattr(sweep.Sweep, "run_compiled", fail)
    parent, depth = _SWEEP(_START, _END, 0, outputs=2, fill=-1)
    assert parent.tolist() == [-1, 0, 1, 0, -1, -1]
    assert depth.tolist() == [-1, 0, 1, 0, -1, -1]


@override_limits(sweep_min_rows=0, sweep_compile_min_rows=0)
@pytest.mark.parametrize("frozen", [False, True])
def test_the_compiled_engine_agrees(*, frozen: bool) -> None:
    start: Ints = _START.copy()
    start.flags.writeable = not frozen
    plain = _SWEEP.run_plain([_START, _END, 1], (np.zeros(6, np.int64), np.zeros(6, np.int64)))
    compiled = _SWEEP(start, _END, 1, outputs=2, fill=0)
    assert [c.tolist() for c in compiled] == [c.tolist() for c in plain]
    assert compiled[0].dtype == np.int64


@override_limits(sweep_min_rows=4, sweep_compile_min_rows=7)
def test_code_is_compiled_for_many_rows_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "_folders", lambda: iter([tmp_path]))
    _copying()(_START)
    assert not list(tmp_path.iterdir())
    _copying()(np.arange(7))
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("compiled again"))
    (copied,) = _copying()(_START)
    assert copied.tolist() == _START.tolist()
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged: not to be loaded
    (copied,) = _copying()(_START)
    assert copied.tolist() == _START.tolist()


def test_code_needs_no_folder_to_be_kept_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(native, "_folders", lambda: iter([tmp_path / "file"]))
    (copied,) = _copying().run_compiled([_START], (np.zeros_like(_START),))
    assert copied.tolist() == _START.tolist()


def test_code_that_needs_numba_to_run_is_refused() -> None:
    def allocate(source: Ints, target: Ints) -> None:
        target[0] = np.empty(len(source))[0]

    with pytest.raises(NumbaError, match="empty"):
        native.native(toy(allocate, "int64", "int64"))


def test_a_reversed_column_is_taken_in_its_own_order() -> None:
    (parent,) = _copying()(_START[::-1])
    assert parent.tolist() == _START[::-1].tolist()


@override_limits(sweep_min_rows=0)
def test_a_column_of_a_wider_type_is_swept_by_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep.Sweep, "run_compiled", lambda *_: pytest.fail("compiled engine used"))
    (copied,) = sweep.dual(toy(_copy, "int32", "int64"))(_copy)(_START)
    assert copied.tolist() == _START.tolist()


@override_limits(sweep_min_rows=0, sweep_compile_min_rows=0)
def test_a_column_of_a_narrower_type_is_made_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep.Sweep, "run_plain", lambda *_: pytest.fail("plain engine used"))
    (copied,) = _copying()(_START.astype(np.int32))
    assert copied.tolist() == _START.tolist()


@override_limits(sweep_min_rows=0, sweep_compile_min_rows=0)
def test_without_numba_what_is_not_shipped_is_swept_by_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "can_compile", lambda: False)
    monkeypatch.setattr(native, "_folders", lambda: iter([]))
    (copied,) = _copying()(_START)
    assert copied.tolist() == _START.tolist()


def _copying() -> sweep.Sweep:
    return sweep.dual(toy(_copy, "int64", "int64"))(_copy)


def _copy(source: list[int], target: list[int]) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@pytest.fixture
def _guarded_and_compiled() -> Iterator[None]:
    with override_limits(sweep_min_rows=0, sweep_compile_min_rows=0, climb_min_spans=0), guarded_memory():
        yield


@pytest.mark.usefixtures("_guarded_and_compiled")
def test_a_climb_ends_where_a_parent_is_beyond_the_spans() -> None:
    parent = np.array([-1, 1 << 30, 0], dtype=np.int32)
    mask = np.array([True, False, False])
    assert innermost(parent, mask).tolist() == [0, -1, 0]
    assert outermost(parent, mask).tolist() == [0, -1, 0]


@pytest.mark.usefixtures("_guarded_and_compiled")
def test_spans_and_moments_of_threads_beyond_those_counted_are_on_none() -> None:
    thread = np.array([0, 1 << 30, 0], dtype=np.int32)
    start, end = np.array([0, 1, 2], dtype=np.int64), np.array([9, 8, 7], dtype=np.int64)
    moments = nest.Moments(np.array([0, 1 << 30], dtype=np.int32), np.array([3, 3], dtype=np.int64))
    nesting = nest.nest(thread, start, end, np.zeros(3, dtype=np.int8), threads=1, moments=moments)
    assert nesting.parent.tolist() == [-1, -1, 0]
    assert nesting.owner.tolist() == [2, -1]
