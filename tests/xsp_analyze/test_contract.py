"""Every answer is what its analysis declares, and nothing else can be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import DAMAGED, SOUND, FixtureCase, every, trace_of
from tests.helpers.hand import paper_trace
from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import AMOUNT, LATENCY_NS, TIME_NS, Column, ContractError, Role, analysis, run
from xsp_analyze.needs import AnyOf, holds, is_need, words_of_need
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_analyze.core import Analysis

_KEY = Column("name", pl.String(), "What it is.", role=Role.KEY)
_TIME = Column("time_ns", TIME_NS, "Its time.", "ns")


def _answering(table: pl.DataFrame, *columns: Column, key: tuple[str, ...] | None = None) -> Analysis:
    @analysis("T01", "toy", needs=(), columns=columns or (_KEY, _TIME), key=key)
    def toy(_: StepView) -> pl.LazyFrame:
        return table.lazy()

    return toy


_GOOD = pl.DataFrame({"name": ["a", "b"], "time_ns": [1, 2]})


def test_what_is_declared_is_answered_and_what_is_not_is_left_out() -> None:
    table = run(_answering(_GOOD.with_columns(rest=pl.lit(1))), StepView.of(paper_trace(), "all")).table
    assert table.equals(_GOOD)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (_GOOD.drop("time_ns"), "answers without time_ns"),
        (_GOOD.cast({"time_ns": pl.Float64}), "time_ns is Float64, declared is Int64"),
        (_GOOD.cast({"name": pl.Categorical}), "name is Categorical"),
        (pl.concat([_GOOD, _GOOD]), "several rows of one name"),
    ],
)
def test_what_is_not_as_declared_is_a_bug(table: pl.DataFrame, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        run(_answering(table), StepView.of(paper_trace(), "all"))


def test_what_is_unknown_is_null_and_neither_nan_nor_infinite() -> None:
    share = Column("share", pl.Float64(), "A share.")
    for odd in ("nan", "inf", "-inf"):
        with pytest.raises(ContractError, match="holds NaN or an infinity"):
            run(_answering(pl.DataFrame({"share": [float(odd)]}), share), StepView.of(paper_trace(), "all"))
    run(_answering(pl.DataFrame({"share": [None]}, schema={"share": pl.Float64}), share), StepView.of(paper_trace()))


def test_times_are_exact_over_whole_steps_and_floats_in_a_mean_step() -> None:
    for averaged, dtype in ((True, pl.Float64()), (False, pl.Int64())):
        assert all(Column("a", of, "").type_of(averaged=averaged) == dtype for of in (TIME_NS, AMOUNT, LATENCY_NS))
    assert Column("a", LATENCY_NS, "").admits(pl.Float64(), averaged=False)
    assert not _TIME.admits(pl.Float64(), averaged=False)


def test_keys_may_be_other_columns_than_those_in_that_role() -> None:
    twice = pl.concat([_GOOD, _GOOD.with_columns(time_ns=pl.col("time_ns") + 2)])
    frames = StepView.of(paper_trace(), "all")
    assert run(_answering(twice, key=("name", "time_ns")), frames).table.height == 4
    assert run(_answering(pl.concat([_GOOD, _GOOD]), key=()), frames).table.height == 4


def test_keys_are_columns() -> None:
    with pytest.raises(ContractError, match="has keys or sums that are no columns: nam"):
        run(_answering(_GOOD, key=("nam",)), StepView.of(paper_trace(), "all"))


def test_one_of_several_needs_is_enough() -> None:
    frames = StepView.of(paper_trace())
    assert holds(frames.of_trace, AnyOf("step_times", "kernel"))
    assert not holds(frames.of_trace, AnyOf("step_times", "metrics"))
    assert words_of_need(AnyOf("spans", "step_times")) == "spans or step_times"


@pytest.mark.parametrize("one", all_analyses(), ids=lambda one: one.id)
def test_declarations_name_what_there_is(one: Analysis) -> None:
    names = {c.name for c in one.columns}
    assert len(names) == len(one.columns)
    assert all(is_need(need) for need in one.needs)
    assert set(one.additive) <= names
    assert set(one.key or ()) <= names


@every([*SOUND, *DAMAGED])
def test_every_answer_over_every_fixture_is_as_declared(case: FixtureCase) -> None:
    try:
        trace = trace_of(case)
    except XspError:
        pytest.skip("it is refused")
    for steps in (None, "all", "each"):
        try:
            frames = StepView.of(trace, steps)
        except XspError:
            continue
        for one in all_analyses():
            if steps is None or one.by_step:
                _ask(one, frames)


def _ask(one: Analysis, frames: StepView) -> None:
    try:
        run(one, frames)
    except XspError:
        return
