"""The page of a cohort: one HTML file over all models, linking to the report of each."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.cohort import tables
from xsp_analyze.cohort.price import NO_PRICES
from xsp_analyze.pages.cohort import charts
from xsp_analyze.pages.cohort.markup import escaped, page, section, sentence, table
from xsp_analyze.render.units import duration, is_share, number, quantity, scale_of, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.cohort.cohort import System
    from xsp_analyze.cohort.price import Prices
    from xsp_analyze.core import Column, Result

__all__ = ["Part", "render"]

Part = tuple[str, str, str]
"""A section: its identity, its label in the table of contents, and its HTML."""

_PAIR = 2
_MOST_ROWS = 2_000  # of a table; a page of more would take seconds to open
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. Rest the pointer on a heading to read"
    " what the column means. This page holds all it needs and loads nothing."
)
_MODELS = (
    "One row a model, system and framework, at its optimal batch size where batch sizes were swept, else at its"
    " fastest. Click a heading to sort, a model to open its report."
)
_MIX = (
    "Where each model's time goes, by group of operators: device time of what operators launched, or the operators'"
    " own time on the host where there is no device. Neighbours are alike."
)
_TREE = (
    "Models that join further left spend their time on more similar operators. The distance is 1 less the cosine of"
    " their vectors of time by operator type (Fathom, IISWC 2016); clusters are joined by average linkage. Operators of"
    " different frameworks have different names and count as different."
)
_ACROSS = (
    "Each at its own optimal or fastest batch size; speed-up is of throughput, over the slowest of the model's rows."
)


def render(
    systems: Sequence[System],
    *,
    title: str,
    prices: Prices = NO_PRICES,
    before: Sequence[Part] = (),
    after: Sequence[Part] = (),
) -> str:
    """The page; sections that the cohort has nothing for are left out. `before` and `after` come around its own."""
    parts = list(before)
    if systems:
        parts += _cohort(systems, prices)
    parts += after
    return page(title, _short(systems, prices), parts, f"Made by {_program()}. {_FOOTER}")


def _cohort(systems: Sequence[System], prices: Prices) -> list[Part]:
    found = tables.models(systems, prices)
    links = {"model": [s.member.report for s in systems]}
    content = table(_cut(found), links, search=True) + _left(len(systems), "xsp cohort -f csv writes all.")
    parts = [("models", "Models", section("models", "Models and systems", _MODELS, content))]
    first = tables.top(systems, prices)
    if first.table.height:
        means = "The first models by each measure that at least two of them have."
        parts.append(
            ("top", "First by each measure", section("top", "First by each measure", means, _tops(first, found)))
        )
    mixed = [s for s in systems if s.facts.mix.shares]
    if mixed:
        parts += _alike(mixed)
    several = tables.across(systems)
    if several.table.height:
        content = section("systems", "One model across systems and frameworks", _ACROSS, table(_cut(several)))
        parts.append(("systems", "Across systems", content))
    return parts


def _cut(result: Result) -> Result:
    """What a page can hold of a table."""
    return replace(result, table=result.table.head(_MOST_ROWS))


def _left(rows: int, where: str) -> str:
    return sentence(f"The first {_MOST_ROWS:,} of {rows:,} rows; {where}") if rows > _MOST_ROWS else ""


def _alike(mixed: Sequence[System]) -> list[Part]:
    from xsp_analyze.cohort.linkage import cosines, leaf_order, linkage  # noqa: PLC0415

    if len(mixed) > charts.MOST_LEAVES:
        pairs = " `xsp cohort -f csv` writes every pair." if len(mixed) <= tables.MAX_COMPARED else ""
        text = f"{len(mixed):,} models are more than a tree can show.{pairs}"
        return [("mix", "Operators", section("mix", "Time by group of operators", _MIX, sentence(text)))]
    order = leaf_order(linkage(1 - cosines([s.facts.mix.shares for s in mixed])), len(mixed))
    parts = [
        ("mix", "Operators", section("mix", "Time by group of operators", _MIX, charts.bars([mixed[n] for n in order])))
    ]
    if len(mixed) >= _PAIR:
        parts.append(("similar", "Similarity", section("similar", "Which models are alike", _TREE, charts.tree(mixed))))
    return parts


def _tops(first: Result, found: Result) -> str:
    columns = {c.name: c for c in found.columns}
    blocks = []
    for measure in first.table["measure"].unique(maintain_order=True):
        rows = first.table.filter(pl.col("measure") == measure)
        items = "".join(
            f"<li>{escaped(_named(row))} <span>{escaped(_value(columns[measure], row['value']))}</span></li>"
            for row in rows.iter_rows(named=True)
        )
        blocks.append(f"<div><h3>{escaped(_TITLES[measure])}</h3><ol>{items}</ol></div>")
    return f'<div class="tops">{"".join(blocks)}</div>'


_TITLES: Mapping[str, str] = {
    "throughput_per_s": "Most inputs per second",
    "latency_ns": "Shortest step",
    "gpu_share": "Largest GPU share",
    "gpu_utilisation_share": "Highest GPU utilisation",
    "convolution_share": "Most time in convolutions",
    "memory_bound_share": "Most memory-bound layers",
    "peak_memory_bytes": "Most memory",
    "cost_per_1k_inputs": "Cheapest",
}


def _named(row: Mapping[str, object]) -> str:
    return " on ".join(str(row[k]) for k in ("model", "system") if row[k])


def _value(column: Column, value: float) -> str:
    if is_share(column):
        return share(value)
    scale = scale_of(column, [value])
    return quantity(value, column.unit) if column.unit in {"ns", "byte"} else f"{number(value, scale)} {scale.unit}"


def _short(systems: Sequence[System], prices: Prices) -> list[str]:
    """What the cohort is, in two or three sentences."""
    if not systems:
        return []
    models = {s.facts.model for s in systems}
    places = sorted({s.facts.system for s in systems if s.facts.system})
    traces = sum(len(s.members) for s in systems)
    on = f" on {', '.join(places)}" if 0 < len(places) <= _PAIR else f" on {len(places)} systems" if places else ""
    said = [f"{_count(len(models), 'model')}{on}, from {_count(traces, 'trace')}."]
    timed = [s for s in systems if s.best]
    if len(timed) >= _PAIR:
        quick = min(timed, key=lambda s: s.best[0].latency_ns if s.best else 0.0)
        slow = max(timed, key=lambda s: s.best[0].latency_ns if s.best else 0.0)
        times = [duration(s.best[0].latency_ns) for s in (quick, slow) if s.best]
        said.append(f"A step takes from {times[0]} ({quick.facts.model}) to {times[1]} ({slow.facts.model}).")
    shares = [s.facts.gpu_share for s in systems if s.facts.gpu_share is not None]
    if shares:
        said.append(f"Of a step, {share(min(shares))} to {share(max(shares))} is device time.")
    if prices.per_hour:
        said.append(f"Costs are in {prices.currency or 'the currency of the prices given'}.")
    return [" ".join(said)]


def _count(number_of: int, noun: str) -> str:
    return f"{number_of:,} {noun}{'' if number_of == 1 else 's'}"


def _program() -> str:
    try:
        return f"XSP {version('xsp')}"
    except PackageNotFoundError:  # run from a checkout
        return "XSP"
