"""Doubts about the numbers of the first screen, each at the number that it concerns."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames import coverage
from xsp_analyze.pages.report.step_bar import has_starts
from xsp_analyze.service.modelled_work import coverage_of
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count_of, duration, share
from xsp_model import Attribution, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from xsp_analyze.findings import Advice
    from xsp_analyze.service.answers import Answers

__all__ = ["GENERAL", "doubts"]

GENERAL = "general"
"""Where a doubt stands that concerns no one number, or one that is not shown."""

_FEW = 3  # steps: of fewer, how far they lie apart tells nothing
_ALL = 0.995  # from there on a share is shown as all of it
_OF_RULES: Mapping[str, str] = {
    "device-only": "coverage", "orphans": "coverage", "unattributed": "coverage", "no-modules": "coverage",
    "graph-replays": "coverage", "profiling-overhead": "step", "few-steps": "step", "ramp-up": "step",
    "host-ahead": "step", "unmatched": "bar",
}  # fmt: skip
_OF_KINDS: Mapping[str, str] = {  # by what a kind of the ledger begins with
    "clock_skew": "bar", "no_epoch": "bar", "no_timestamps": "bar", "rounded_times": "bar", "dropped_records": "bar",
    "negative_duration": "bar", "missing_": "bar", "outside_steps": "bar", "averaged_times": "step",
    "absurd_duration": "step", "step": "step", "sanity_sums": "step", "sanity_": "peak", "counter": "peak",
    "flops_": "peak", "tensor_": "peak", "work_model": "peak", "peaks_": "peak", "gpu_metric": "busy",
    "graph_": "coverage", "ambiguous": "coverage", "operators_outside": "coverage", "compiled_": "coverage",
    "module_": "coverage", "match_": "coverage", "out_of_memory": "memory", "memory_": "memory",
    "unreadable_memory": "memory", "unusable_memory": "memory",
}  # fmt: skip
_RULE_ON: Mapping[str, str] = {
    Attribution.MODEL_ONLY: "unattributed", Attribution.GRAPH_REPLAY: "graph-replays",
    Attribution.ORPHAN_BEFORE_WINDOW: "orphans", Attribution.ORPHAN_NO_LAUNCH: "orphans",
    Attribution.ORPHAN_NO_CORRELATION: "orphans",
}  # fmt: skip
_MAX_RUNS = 3  # named; of more, how many they are
_ALWAYS = {LedgerKind.CLOCK_SKEW, LedgerKind.AVERAGED_TIMES, LedgerKind.NO_TIMESTAMPS, LedgerKind.ROUNDED_TIMES}
"""Mere information in the ledger, but beside a number a doubt."""


def doubts(answers: Answers, advice: Sequence[Advice], shown: Collection[str]) -> dict[str, list[str]]:
    """Sentences by what they concern: a tile, `bar`, or GENERAL for what is of none of those shown."""
    texts: dict[str, list[str]] = defaultdict(list)
    for where, sentence in (*_own(answers, advice), *_of_findings(advice), *_of_ledger(answers)):
        at = texts[where if where in shown else GENERAL]
        if sentence not in at:
            at.append(sentence)
    return dict(texts)


def _own(answers: Answers, advice: Sequence[Advice]) -> Iterator[tuple[str, str]]:
    """What no rule and no entry of the ledger says: few steps, work that is not modelled, runs for counters."""
    if 0 < answers.step_count < _FEW and not any(one.rule.id == "few-steps" for one in advice):
        steps = count_of(answers.step_count, "step", "steps")
        yield "step", f"Of {steps} alone: whether other steps take as long, it does not tell."
    if not answers.step_count and has_starts(answers):
        yield "step", "No steps are marked: this is the whole trace, start and end of the program included."
    if answers.per_step.of_trace.is_one_by_one:
        yield "bar", "This run was for hardware counters: kernels ran one by one, and slower than they do without."
    covered = coverage_of(answers)
    if covered is not None and covered.modelled_share < _ALL:
        yield "peak", covered.sentence
    yield from _of_coverage(answers, {one.rule.id for one in advice})


def _of_coverage(answers: Answers, rules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Where device time is that is tied to no layer, and what to do about it; not what one of the rules says."""
    part, total = answers.summary.coverage, answers.summary.device_time_ns
    if part is None or not total or part >= _ALL:
        return
    for one in answers.summary.attributed:
        if one.attribution == Attribution.LAYER or not one.duration_ns or _RULE_ON[one.attribution] in rules:
            continue
        kind = coverage.ATTRIBUTIONS[Attribution(one.attribution)]
        sentence = f"{share(one.duration_ns / total)} ({duration(one.duration_ns)}) is {kind.sentence}."
        yield "coverage", f"{sentence} {kind.advice.rstrip('.')}." if kind.advice else sentence


def _of_findings(advice: Sequence[Advice]) -> Iterator[tuple[str, str]]:
    for one in advice:
        if one.rule.on_trust:
            yield _OF_RULES.get(one.rule.id, GENERAL), clean(f"{one.observation.sentence} {one.do}")


def _of_ledger(answers: Answers) -> Iterator[tuple[str, str]]:
    """Its warnings and errors, each kind and text once."""
    rows = (
        coverage.ledger(answers.per_step)
        .filter(
            ~pl.col("kind").is_in([str(a) for a in Attribution]),
            pl.col("severity").ne(str(Severity.INFO)) | pl.col("kind").is_in([str(k) for k in _ALWAYS]),
        )
        .group_by("kind", "detail", "advice", maintain_order=True)
        .agg(pl.col("count").sum(), pl.col("run_id").drop_nulls().unique().sort())
    )
    several = len(answers.summary.runs) > 1
    for kind, detail, advice, number, runs in rows.iter_rows():
        concerns = next((at for start, at in _OF_KINDS.items() if str(kind).startswith(start)), GENERAL)
        counts = number and number > 1 and kind != LedgerKind.CLOCK_SKEW
        times = f" ({number:,.0f})" if counts else ""
        sentence = f"{_in_runs(runs) if several else ''}{detail.rstrip('.')}{times}."
        how = f" {advice.rstrip('.')}." if advice else ""
        yield concerns, clean(f"{sentence[:1].upper()}{sentence[1:]}{how}")


def _in_runs(runs: Sequence[int]) -> str:
    """Which runs an entry is of, before its text."""
    if not runs:
        return ""
    named = ", ".join(map(str, runs)) if len(runs) <= _MAX_RUNS else ""
    return f"run{'s' if len(runs) > 1 else ''} {named}: " if named else f"{len(runs)} runs: "
