"""Small multiples: a chart a model, all alike, over the systems and batch sizes that it was measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_analyze.pages import blocks
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.cohort.cohort import System
    from xsp_analyze.cohort.facts import Speed
    from xsp_analyze.pages.blocks import Block, Section

__all__ = ["multiples"]

_MAX_MODELS = 120
_MAX_SYSTEMS = 12  # more lines than this in one small chart are no chart
_MIN_ROWS = 2
_MEANS = (
    "One small chart a model, all of one measure, each to a scale of its own from 0: a line over batch sizes where they"
    " were swept, a point where one was measured. Choose the measure; a colour is a system and framework."
)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What the charts can show: of a batch size, or of the one trace that a row stands for."""

    label: str
    unit: str
    divisor: float
    of: Callable[[System, Speed], float | None]
    of_best_alone: bool = False


_MEASURES = (
    _Measure("Throughput", "inputs/s", 1.0, lambda _, speed: speed.throughput_per_s),
    _Measure("Step time", "ms", 1e6, lambda _, speed: speed.latency_ns),
    _Measure("Device busy", "%", 0.01, lambda system, _: system.facts.gpu_share, of_best_alone=True),
    _Measure("Device time", "ms", 1e6, lambda system, _: system.facts.kernel_duration_ns, of_best_alone=True),
    _Measure("Memory peak", "GB", 1e9, lambda system, _: system.facts.peak_memory_bytes, of_best_alone=True),
)


def multiples(systems: Sequence[System]) -> list[Section]:
    """The section; none where there are not two rows to set beside each other, or nothing was timed."""
    timed = [system for system in systems if system.speeds]
    labels = list(dict.fromkeys(map(_system_label, timed)))
    if len(timed) < _MIN_ROWS or len(labels) > _MAX_SYSTEMS:
        return []
    models: dict[str, list[System]] = {}
    for system in timed:
        models.setdefault(system.facts.model, []).append(system)
    items = [_item(model, rows, labels) for model, rows in list(models.items())[:_MAX_MODELS]]
    measured = [n for n in range(len(_MEASURES)) if any(line["points"][n] for item in items for line in item["lines"])]
    block: Block = {
        "type": "multiples",
        "systems": labels,
        "measures": [
            {"label": m.label, "unit": m.unit, "divisor": m.divisor} for n, m in enumerate(_MEASURES) if n in measured
        ],
        "items": [_only(item, measured) for item in items],
    }
    left = len(models) - len(items)
    more = [blocks.text(f"{count_of(left, 'more model', 'more models')}; the table holds all.")] if left else []
    return [blocks.section("multiples", "Side by side", "Models side by side", _MEANS, [block, *more])]


def _system_label(system: System) -> str:
    facts = system.facts
    return clean(", ".join(filter(None, (facts.system, facts.framework)))) or "unnamed system"


def _item(model: str, rows: Sequence[System], labels: Sequence[str]) -> dict[str, Any]:
    return {"title": clean(model), "lines": [_line(system, labels) for system in rows]}


def _line(system: System, labels: Sequence[str]) -> dict[str, Any]:
    """Points [batch size, value] of each measure; what is of one trace alone has one."""
    best = system.best
    points = []
    for measure in _MEASURES:
        speeds = [speed for speed, _ in system.speeds]
        if measure.of_best_alone:
            speeds = [best[0]] if best else []
        pairs = [(speed.batch_size, measure.of(system, speed)) for speed in speeds]
        points.append([[batch, value] for batch, value in pairs if value is not None])
    return {
        "name": clean(system.label),
        "system": labels.index(_system_label(system)),
        "link": blocks.address(system.member.report),
        "points": points,
    }


def _only(item: dict[str, Any], measured: Sequence[int]) -> dict[str, Any]:
    """The item with the measures alone that any model has."""
    lines = [{**line, "points": [line["points"][n] for n in measured]} for line in item["lines"]]
    return {**item, "lines": lines}
