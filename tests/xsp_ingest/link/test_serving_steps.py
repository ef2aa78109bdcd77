"""Steps of serving engines, by the names that these give to them. Times in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp_ingest.link.range_rules import KINETO, NVTX, classify

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MIXED, _DECODE = "execute_context_2(6144)_generation_3(3)", "execute_context_0(0)_generation_64(64)"


def serving(*steps: str, around: tuple[int, ...] = ()) -> KinetoTrace:
    """The steps one after another, a kernel each, and a profiler's step around every so many of them."""
    kineto = KinetoTrace()
    first = 0
    for number, count in enumerate(around):
        kineto.step(number + 5, first * 10_000 - 100, count * 10_000 - 50)
        first += count
    for index, name in enumerate(steps):
        start = index * 10_000
        kineto.annotation(name, start, 8_000)
        kineto.launch("gemm", start + 100, start + 6_000, 400)
    return kineto


def steps_of(trace: Trace) -> list[tuple[str, int | None]]:
    spans = trace.frame("spans").filter(pl.col("level") == "model").sort("start_ns")
    return list(spans.select(pl.col("name").cast(pl.String), "step").iter_rows())


def kernel_steps(trace: Trace) -> list[int | None]:
    return trace.frame("spans").filter(pl.col("kind") == "kernel").sort("start_ns")["step"].to_list()


@pytest.mark.parametrize("rules", [KINETO, NVTX])
@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        (_MIXED, "model", "step"),
        ("step[DECODE bs=32]", "model", "step"),
        ("decode[bs=64 tok=64 d=64]", "model", "step"),
        ("[Executor] _forward_step 7: 0 ctx reqs, 64 gen reqs", "model", "step"),
        ("execute_diffusion_1_256x256", "model", "step"),
        ("capture_8192_PIECEWISE", "application", "range"),
        ("prefill", "layer", "range"),
    ],
)
def test_a_name_that_an_engine_gives_marks_a_step(rules: object, name: str, level: str, kind: str) -> None:
    names = pl.DataFrame({"name": [name]})
    assert classify(names, rules).row(0) == (level, kind)  # type: ignore[arg-type]


def test_the_users_steps_go_before_an_engines() -> None:
    names = pl.DataFrame({"name": ["request", _MIXED]})
    levels = classify(names, KINETO, model_ranges=["^request$"])["level"].to_list()
    assert levels == ["model", "application"]


def test_steps_are_counted_as_numbers_in_their_names_are_counts(tmp_path: Path) -> None:
    trace = converted(serving(_DECODE, _MIXED, "execute_context_0(0)_generation_63(63)"), tmp_path)
    assert [step for _, step in steps_of(trace)] == [0, 1, 2]
    assert kernel_steps(trace) == [0, 1, 2]
    assert trace.frame("ranges").sort("span_id")["text"].to_list()[1] == _MIXED


def test_an_iteration_that_the_name_says_is_the_steps_number(tmp_path: Path) -> None:
    names = [f"[Executor] _forward_step {number}: 0 ctx reqs, {reqs} gen reqs" for number, reqs in ((41, 8), (42, 7))]
    assert [step for _, step in steps_of(converted(serving(*names), tmp_path))] == [41, 42]


def test_a_profilers_step_around_one_batch_stays_the_step(tmp_path: Path) -> None:
    trace = converted(serving(_MIXED, _DECODE, around=(1, 1)), tmp_path)
    assert steps_of(trace) == [("ProfilerStep#5", 5), (_MIXED, 5), ("ProfilerStep#6", 6), (_DECODE, 6)]


def test_a_profilers_step_around_many_gives_way(tmp_path: Path) -> None:
    trace = converted(serving(_MIXED, _DECODE, _DECODE, around=(3,)), tmp_path)
    assert steps_of(trace) == [("ProfilerStep#5", None), (_MIXED, 0), (_DECODE, 1), (_DECODE, 2)]
    assert kernel_steps(trace) == [0, 1, 2]


def test_all_of_a_process_give_way_where_one_does(tmp_path: Path) -> None:
    trace = converted(serving(_MIXED, _DECODE, _DECODE, around=(2, 1)), tmp_path)
    assert [step for name, step in steps_of(trace) if "execute" in name] == [0, 1, 2]
    assert [step for name, step in steps_of(trace) if "Profiler" in name] == [None, None]
    assert not ledger_counts(trace).get("ambiguous_nesting")
