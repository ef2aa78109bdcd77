"""Ranges in spans in ranges, thousands deep: the shortcuts on the way up change nothing but how long it is."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from tests.helpers.examples import examples
from xsp_ingest.link import nesting
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_NO_END = 10**9
_SPAN = st.tuples(st.integers(0, 50), st.integers(0, 2_000), st.booleans(), st.integers(-1, 20))


@settings(max_examples=examples(200))
@given(st.lists(_SPAN, max_size=20))
def test_shortcuts_change_no_answer(spans: list[tuple[int, int, bool, int]]) -> None:
    start = np.array([span[0] for span in spans], dtype=np.int64)
    end = start + np.array([span[1] for span in spans], dtype=np.int64)
    is_range = np.array([span[2] for span in spans], dtype=np.bool_)
    around = np.array([min(span[3], at - 1) for at, span in enumerate(spans)], dtype=np.int32)
    answers = []
    for deep in (0, _NO_END):
        with override_limits(shortcut_min_steps=deep):
            answers.append(nesting._within(np.flatnonzero(is_range), start, end, is_range, around))
    for short, plain in zip(*answers, strict=True):
        assert short.tolist() == plain.tolist()


def test_what_lies_in_thousands_of_sound_spans_is_not_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4_000
    start = np.arange(count, dtype=np.int64)
    steps: list[int] = []

    def counted() -> Iterator[int]:
        for step in itertools.islice(itertools.count(), 200):
            steps.append(step)
            yield step

    monkeypatch.setattr(nesting, "count", counted)
    is_range = start % 2 == 0
    begin, until = nesting._within(np.flatnonzero(is_range), start, 10_000 - start, is_range, start - 1)
    assert len(steps) < 100
    assert (begin.tolist(), until.tolist()) == (start[is_range].tolist(), (10_000 - start)[is_range].tolist())
