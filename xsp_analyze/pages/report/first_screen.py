"""What a reader sees first: the first screen, doubts about its numbers, what to do next, where time is to gain."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.catalog import all_analyses
from xsp_analyze.faults import attempt
from xsp_analyze.findings.simulated import TOGETHER
from xsp_analyze.formulas import total_of
from xsp_analyze.frames import coverage
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.step_bar import step_bar
from xsp_analyze.pages.report.summary import in_one_line
from xsp_analyze.pages.report.tiles import tiles
from xsp_analyze.render.findings import evidence_of, gain, gain_of, value_of
from xsp_analyze.service import coverage_of, roofed_time_ns
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of, duration, share
from xsp_model import Attribution, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.findings import Advice
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = ["GENERAL", "doubts", "first_screen", "gains_of", "next_steps", "simulated_gains", "work_list"]

# Doubts about the numbers of the first screen, each at the number that it concerns.

GENERAL = "general"
"""Where a doubt stands that concerns no one number, or one that is not shown."""
_FEW = 3  # steps: of fewer, how far they lie apart tells nothing
_ALL = 0.995  # from there on a share is shown as all of it
_OF_RULES: Mapping[str, str] = {
    "device-only": "coverage", "orphans": "coverage", "unattributed": "coverage", "no-modules": "coverage",
    "graph-replays": "coverage", "profiling-overhead": "step", "few-steps": "step", "ramp-up": "step",
    "host-ahead": "step", "unmatched": "bar", "start-up": "bar",
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
    if not answers.step_count and answers.per_step.of_trace.has_starts:
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
        if one.attribution == Attribution.LAYER or not one.duration_ns or _RULE_ON.get(one.attribution) in rules:
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
    is_worth_it = pl.col("severity").ne(str(Severity.INFO)) | pl.col("kind").is_in([str(k) for k in _ALWAYS])
    entries = coverage.ledger_entries(answers.per_step).filter(is_worth_it)
    rows = entries.select("kind", "detail", "advice", "count", "run_id")
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


# The part of a report that says what is worth doing next, and how far its numbers can be trusted.

_NEXT_MEANS = (
    "What rules with thresholds found, the most promising first. Gains are upper bounds of what a step becomes shorter"
    " by, each taken alone: they overlap and do not add up."
)
_FIRST_STEPS = 5


def next_steps(answers: Answers) -> Section | None:
    """The five most promising findings, the others behind a button, then doubts about the numbers; None without any.

    What rules could not look at because it failed is said first.
    """
    gains = gains_of(answers)
    doubts = [_item(one) for one in answers.advice if one.rule.on_trust]
    drawn: list[Block] = [blocks.text(f"{fault}.") for fault in answers.faults_of_advice]
    if gains:
        drawn += [{"type": "advice", "items": gains, "first": _FIRST_STEPS}]
    if doubts:
        drawn += [
            blocks.text("How far to trust the numbers:"),
            {"type": "advice", "items": doubts, "first": _FIRST_STEPS},
        ]
    return blocks.section("next", "What to do", "What to do next", _NEXT_MEANS, drawn) if drawn else None


_SIMULATED_MEANS = (
    "The first findings acted on, by a replay of the trace with other times: what a step then becomes shorter by, each"
    " alone and all of them together. xsp what-if tells it of any other change."
)


def simulated_gains(answers: Answers) -> Section | None:
    """The first three findings that were simulated, each alone, and together; None where none was."""
    simulated = [one for one in answers.advice if one.gain_ns is not None and one.simulated_ns][:TOGETHER]
    items = [
        (one.rule.title, duration(one.simulated_ns), f"{one.simulated_ns:.0f} ns", gain(one.gain_ns, one.gain_share))
        for one in simulated
    ]
    together = simulated[0].together_ns if simulated else None
    if together is not None:
        note = "Gains do not add up: what one takes off may be what another waits behind."
        items.append(("All of them together", duration(together), f"{together:.0f} ns", note))
    return blocks.section("what-if", "What if", "What if", _SIMULATED_MEANS, [blocks.facts(items)]) if items else None


def gains_of(answers: Answers) -> list[dict[str, Any]]:
    """The findings with something to gain as the page draws them, most promising first."""
    return [_item(one) for one in answers.advice if not one.rule.on_trust]


def _item(one: Advice) -> dict[str, Any]:
    rule, observation = one.rule, one.observation
    return {
        "id": rule.id,
        "title": rule.title,
        "gain": gain_of(one),
        "share": one.gain_share,
        "sentence": clean(observation.sentence),
        "evidence": [{"label": clean(e.label), "value": value_of(e)} for e in evidence_of(one)],
        "rows": _section(observation.rows),
        "search": clean(observation.search),
        "do": one.do,
        "about": [
            ["Told when", rule.fires],
            ["Why it matters", rule.why],
            ["Gain", f"{rule.gain} Estimated from {one.basis}."],
            ["Source", rule.source],
        ],
        "page": f"docs/findings/{rule.id}.md",
    }


def _section(rows: str) -> str:
    """The section of the page that shows the rows of this analysis, or the analysis itself; rows may be of neither."""
    return next((a.section or a.id for a in all_analyses() if a.id == rows), rows)


# The first screen of a report: one line, the bar of a step, the key numbers, what to do, and what to doubt.

_FIRST = 3


def first_screen(answers: Answers, targets: Collection[str]) -> dict[str, Any]:
    """What its script draws; `targets` are the ids of sections and analyses on the page, which links may lead to."""
    bar = attempt("The bar of a step", partial(step_bar, answers), lambda _: None)
    numbers = attempt("The key numbers", partial(tiles, answers), lambda _: [])
    gains = gains_of(answers)
    verdict = answers.verdict
    shown = {tile["id"] for tile in numbers} | ({"bar"} if bar else set())
    about = attempt("Doubts", lambda: doubts(answers, answers.advice, shown), lambda _: {})
    return {
        "line": attempt("The first line", partial(in_one_line, answers), lambda fault: [str(fault)]),
        "verdict": [str(verdict.bound), clean(verdict.sentence.removeprefix(verdict.bound))] if verdict else None,
        "bar": bar and {**bar, "parts": _without_dead_links(bar["parts"], targets), "doubts": about.get("bar", [])},
        "tiles": [{**tile, "doubts": about.get(tile["id"], [])} for tile in _without_dead_links(numbers, targets)],
        "findings": gains[:_FIRST],
        "finding_count": len(gains),
        "doubts": about.get(GENERAL, []),
    }


def _without_dead_links(items: Iterable[dict[str, Any]], targets: Collection[str]) -> list[dict[str, Any]]:
    """Without links to what the page does not have."""
    return [{**item, "link": item["link"] if item["link"].partition("?")[0] in targets else None} for item in items]


# The part of a report that says where the time to gain is: operators by shape (B23), most to gain first.

_MAX_ROWS = 10
_TITLE = ("gain", "Time to gain", "Where the time to gain is")
_COLUMNS = (
    "operator", "shapes", "gain_ns", "roof_share", "bound", "device_sum_ns", "count", "dtypes", "layers",
    "source_lines",
)  # fmt: skip
_GAIN_MEANS = (
    "Operators, by the shapes and types that they are called with, that would save most device time if each ran at the"
    " roof of its device. Roof share is that least time over the time taken: what the shapes ask for (modelled, not"
    " measured), flop at the peak of their precision or bytes at the bandwidth of memory, whichever takes longer: the"
    " bound. Memory asks for fusion or narrower types, compute for better kernels or narrower precisions. Nothing quite"
    " reaches its roof, tuned products 70 to 90 % of it, so gains are upper bounds."
)
_WAITS = 0.5  # of the time: a device that works for less does not decide how long the whole takes


def work_list(answers: Answers) -> Section | None:
    """The rows with most to gain, and how much of device time they are of; None where no operator has a roof."""
    result = answers.of("B23")
    if isinstance(result, str):
        return None
    rows = result.table.filter(pl.col("gain_ns") > 0)
    if rows.is_empty():
        return None
    shown = replace(
        result, table=rows.head(_MAX_ROWS), columns=[c for n in _COLUMNS for c in result.columns if c.name == n]
    )
    table = blocks.table(shown, bar="gain_ns", name="gain", left_out=_omitted_rows(rows))
    drawn = [*(blocks.text(line) for line in _sentences(answers, result)), table]
    return blocks.section(*_TITLE, f"{_GAIN_MEANS} Times are {answers.basis}, of all devices added up.", drawn)


def _omitted_rows(rows: pl.DataFrame) -> str | None:
    if rows.height <= _MAX_ROWS:
        return None
    part = total_of(rows["gain_ns"].head(_MAX_ROWS)) / total_of(rows["gain_ns"])
    return (
        f"The first {_MAX_ROWS} of {count(rows.height)} rows, with {share(part)} of the time to gain."
        " B23 under Every analysis has them all."
    )


def _sentences(answers: Answers, result: Result) -> Iterator[str]:
    """What all of them take and would take, and what they are of."""
    rows = result.table.drop_nulls("gain_ns")
    spent, gain = roofed_time_ns(rows), total_of(rows["gain_ns"])
    yield (
        f"{duration(spent)} of device time would be {duration(spent - gain)} at the roof, {share(1 - gain / spent)} of"
        f" it: {duration(gain)} to gain at most."
    )
    if covered := coverage_of(answers):
        yield covered.sentence
    part = answers.first("A15").get("gpu_share")
    if part is not None and part < _WAITS:
        yield (
            f"The device works for {share(part)} of the time and waits for the rest: while it does, little of this"
            " makes the whole shorter."
        )
