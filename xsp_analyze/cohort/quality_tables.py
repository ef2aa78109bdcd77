"""Accuracy, time and cost to a target, and how far the outputs of one model's traces are from each other, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.cohort.keys import KEYS, MODEL, result_of
from xsp_analyze.cohort.price import NO_PRICES
from xsp_analyze.cohort.quality import final, time_to
from xsp_analyze.core import Column, Role
from xsp_analyze.frames.outputs import by_name, distance, input_match

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.cohort.cohort import Member, System
    from xsp_analyze.cohort.price import Prices
    from xsp_analyze.cohort.quality import Target
    from xsp_analyze.core import Result

__all__ = ["accuracies", "outputs"]

_ACCURACIES = (
    *KEYS,
    Column("trace", pl.String(), "The trace.", role=Role.KEY),
    Column("metric", pl.String(), "What was measured.", role=Role.KEY),
    Column("dataset", pl.String(), "On what; null: the run does not say.", role=Role.KEY),
    Column("value", pl.Float64(), "What the run ended with, else the last point of its training curve."),
    Column("value_unit", pl.String(), "Its unit, where the run says.", role=Role.LABEL),
    Column("best_value", pl.Float64(), "The best of all points."),
    Column("sample_count", pl.Int64(), "Samples it was measured on; null: the run does not say."),
    Column("curve_points", pl.Int64(), "Points of the training curve."),
    Column("target", pl.Float64(), "What it is to reach, as given."),
    Column("time_to_target_ns", pl.Int64(), "When the curve first reaches it; null: never, or no curve.", "ns"),
    Column("cost_to_target", pl.Float64(), "That time at the system's price per hour."),
)
_OUTPUTS = (
    MODEL,
    Column("trace", pl.String(), "The trace.", role=Role.KEY),
    Column("output", pl.String(), "What came out of a step.", role=Role.KEY),
    Column("reference", pl.String(), "The trace that it is compared with: the model's first that has any."),
    Column("framework", pl.String(), "Framework and version of the trace.", role=Role.LABEL),
    Column("reference_framework", pl.String(), "Those of the reference.", role=Role.LABEL),
    Column("dtype", pl.String(), "Type of the output's elements.", role=Role.LABEL),
    Column("max_abs_difference", pl.Float64(), "Largest difference of the elements compared."),
    Column("relative_l2", pl.Float64(), "L2 norm of the difference over the reference's."),
    Column("cosine", pl.Float64(), "Cosine of the two as vectors."),
    Column("top1_agreement_share", pl.Float64(), "Rows whose largest element is the same one."),
    Column("compared_count", pl.Int64(), "Elements compared; null: none."),
    Column("basis", pl.String(), "identical bytes, sampled values or checksums only.", role=Role.LABEL),
    Column("input_match", pl.String(), "Whether both were given the same weights and inputs.", role=Role.LABEL),
)


def accuracies(systems: Sequence[System], prices: Prices = NO_PRICES, target: Target | None = None) -> Result:
    """One row a trace, metric and dataset, in the order of models."""
    rows = [row for system in systems for member in system.members for row in _rows_of(system, member, prices, target)]
    return result_of("B13.accuracy", "accuracy and time to a target", _ACCURACIES, rows)


def _rows_of(system: System, member: Member, prices: Prices, target: Target | None) -> Iterator[dict[str, Any]]:
    measures = member.facts.accuracies
    for (metric, dataset), last in final(measures).items():
        own = [m for m in measures if (m.metric, m.dataset) == (metric, dataset)]
        values = [m.value for m in own]
        aimed = target if target and target.metric.casefold() == metric.casefold() else None
        reached = time_to(own, aimed) if aimed else None
        yield {
            "model": system.label,
            "system": member.facts.system,
            "framework": member.facts.framework,
            "trace": member.name,
            "metric": metric,
            "dataset": dataset,
            "value": last.value,
            "value_unit": last.unit,
            "best_value": max(values) if last.more_is_better else min(values),
            "sample_count": last.sample_count,
            "curve_points": sum(m.time_ns is not None for m in own) or None,
            "target": aimed.value if aimed else None,
            "time_to_target_ns": reached,
            "cost_to_target": prices.of_time(member.facts.system, reached),
        }


def outputs(systems: Sequence[System]) -> Result:
    """One row an output of every trace but a model's first that has any, compared with that one's."""
    first: dict[str, Member] = {}
    rows: list[dict[str, Any]] = []
    for member in sorted((m for s in systems for m in s.members), key=lambda m: (m.facts.model, m.name, m.identity)):
        if not by_name(member.facts.tensors):
            continue
        reference = first.setdefault(member.facts.model, member)
        if reference is not member:
            rows += _apart(reference, member)
    return result_of("B13.outputs", "outputs of one model", _OUTPUTS, rows)


def _apart(reference: Member, member: Member) -> Iterator[dict[str, Any]]:
    same_inputs = input_match(reference.facts.tensors, member.facts.tensors)
    theirs = by_name(reference.facts.tensors)
    for name, tensor in by_name(member.facts.tensors).items():
        apart = distance(theirs[name], tensor) if name in theirs else None
        if apart is not None:
            yield {
                "model": member.facts.model,
                "trace": member.name,
                "output": name,
                "reference": reference.name,
                "framework": member.facts.framework,
                "reference_framework": reference.facts.framework,
                "dtype": tensor.dtype,
                "max_abs_difference": apart.max_abs_difference,
                "relative_l2": apart.relative_l2,
                "cosine": apart.cosine,
                "top1_agreement_share": apart.top1_agreement,
                "compared_count": apart.value_count,
                "basis": str(apart.basis),
                "input_match": str(same_inputs),
            }
