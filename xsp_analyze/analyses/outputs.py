"""How accurate a model is and how far outputs are apart (B36)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.frames.outputs import by_name, distance, input_match, recorded_distances, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.frames.outputs import Distance, RecordedTensor
    from xsp_analyze.trace.step_view import StepView

__all__ = ["accuracy_and_outputs"]

# B36: how good a run's results are, and how far its outputs are from those of another run.

_COLUMNS = (
    Column("run_id", pl.Int64(), "The run.", role=Role.KEY),
    Column("role", pl.String(), "Of a profile: what the run is taken for.", role=Role.LABEL),
    Column("kind", pl.String(), "accuracy, training curve, output, input or weights.", role=Role.KEY),
    Column("name", pl.String(), "The metric, or the tensor.", role=Role.KEY),
    Column("dataset", pl.String(), "What the metric was measured on; null: the run does not say.", role=Role.KEY),
    Column("time_ns", pl.Int64(), "Of a training curve: since training began.", "ns", role=Role.KEY),
    Column("reference", pl.String(), "What the output is compared with; null: nothing.", role=Role.KEY),
    Column("point", pl.Int64(), "Counts rows that have all of this in common, from 0.", role=Role.KEY),
    Column("value", pl.Float64(), "The metric's value."),
    Column("value_unit", pl.String(), "Its unit, where the run says.", role=Role.LABEL),
    Column("sample_count", pl.Int64(), "Samples it was measured on; null: the run does not say."),
    Column("shape", pl.String(), "Of the tensor.", role=Role.LABEL),
    Column("dtype", pl.String(), "Type of the tensor's elements.", role=Role.LABEL),
    Column("step", pl.Int64(), "Steps run before the one that the tensor is of."),
    Column("l2_norm", pl.Float64(), "Root of the sum of squares of the tensor's finite elements."),
    Column("max_abs", pl.Float64(), "Largest magnitude of the tensor's finite elements."),
    Column("non_finite_count", pl.Int64(), "Elements that are infinite or no number."),
    Column("max_abs_difference", pl.Float64(), "Largest difference to the reference, of the elements compared."),
    Column("relative_l2", pl.Float64(), "L2 norm of the difference over the reference's, of the elements compared."),
    Column("cosine", pl.Float64(), "Cosine of the two as vectors, of the elements compared."),
    Column("top1_agreement_share", pl.Float64(), "Rows whose largest element is the same one, of those compared."),
    Column("compared_count", pl.Int64(), "Elements compared; null: none, or the run does not say."),
    Column("basis", pl.String(), "identical bytes, all values, sampled values or checksums only.", role=Role.LABEL),
    Column("input_match", pl.String(), "Whether both were given the same weights and inputs.", role=Role.LABEL),
    Column("sha256", pl.String(), "Digest of the tensor's bytes.", role=Role.LABEL),
)
_ORDER = ("accuracy", "training curve", "output", "input", "weights")


@analysis(
    "B36",
    "accuracy and outputs",
    needs=("results",),
    columns=_COLUMNS,
    by_step=False,
    read="A faster run whose outputs differ, or whose accuracy is less, did not do the same work faster.",
)
def accuracy_and_outputs(frames: StepView) -> pl.LazyFrame:
    """One row a measure of a run, a tensor of it, and a reference that an output is compared with.

    By kind (accuracy, training curve, output, input, weights), run, name and time. Outputs of a later run of a profile
    are compared with those of the first that has any; distances that runs say themselves stand beside.
    """
    rows = [*_measures(frames), *_tensors(frames), *_distances_on_record(frames)]
    schema = {c.name: c.type_of(averaged=False) for c in _COLUMNS if c.name != "point"}
    table = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row")
    keys = [c.name for c in _COLUMNS if c.role is Role.KEY and c.name != "point"]
    kind = pl.col("kind").replace_strict({name: n for n, name in enumerate(_ORDER)}, return_dtype=pl.Int64())
    numbered = table.sort(kind, "run_id", "name", "dataset", "time_ns", "reference", "step", "value", nulls_last=True)
    return numbered.with_columns(pl.int_range(pl.len()).over(keys).cast(pl.Int64).alias("point")).lazy()


def _measures(frames: StepView) -> Iterator[dict[str, Any]]:
    labels = frames.of_trace.run_labels
    for row in frames.of_trace.timed_runs.frame("accuracies").iter_rows(named=True):
        kind = "accuracy" if row["time_ns"] is None else "training curve"
        named = {"kind": kind, "name": row["metric"], "value_unit": row["unit"], "role": labels[row["run_id"]]}
        yield {**row, **named}


def _tensors(frames: StepView) -> Iterator[dict[str, Any]]:
    """The tensors of every run, outputs of all but the first run compared with the first one's."""
    first: list[RecordedTensor] = []
    reference = ""
    for run, label in frames.of_trace.run_labels.items():
        tensors = tensors_of(frames.trace, [run])
        for tensor in tensors:
            row = {**asdict(tensor), "run_id": run, "role": label}
            counterpart = by_name(first).get(tensor.name) if tensor.kind == "output" else None
            apart = distance(counterpart, tensor) if counterpart else None
            compared = {"reference": reference, "input_match": str(input_match(first, tensors)), **_columns(apart)}
            yield {**row, **(compared if apart else {})}
        if tensors and not first:
            first, reference = tensors, label or f"run {run}"


def _distances_on_record(frames: StepView) -> Iterator[dict[str, Any]]:
    for run, label in frames.of_trace.run_labels.items():
        for name, reference, _, apart in recorded_distances(frames.trace, [run]):
            row = {"run_id": run, "role": label, "kind": "output", "name": name, "reference": reference}
            yield {**row, **_columns(apart)}


def _columns(apart: Distance | None) -> dict[str, Any]:
    if apart is None:
        return {}
    return {
        "max_abs_difference": apart.max_abs_difference,
        "relative_l2": apart.relative_l2,
        "cosine": apart.cosine,
        "top1_agreement_share": apart.top1_agreement,
        "compared_count": apart.value_count,
        "basis": str(apart.basis),
    }
