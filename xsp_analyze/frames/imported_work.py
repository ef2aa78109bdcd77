"""The least work of operators that was modelled before the trace was analysed: the metrics of a source `modelled ...`.

A user's own models (`users_work`) and a compiler's cost analysis come this way. The metrics are `modelled_flop`, or
`modelled_flop_bf16` where the precision of the products is known, `modelled_vector_flop`, `modelled_read_bytes`,
`modelled_written_bytes` and `modelled_bus_bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["MODELLED", "imported_work", "metric_of", "source_of"]

MODELLED = "modelled"
"""What the source of such a metric starts with: `modelled by XLA`, `modelled by my.toml as attention`."""

_CLASSES = "|".join(KernelClass)

_FLOP = "modelled_flop"
_AMOUNTS = {
    "flop": _FLOP,
    "vector_flop": "modelled_vector_flop",
    "read_bytes": "modelled_read_bytes",
    "written_bytes": "modelled_written_bytes",
    "bus_bytes": "modelled_bus_bytes",
}


def metric_of(amount: str, precision: str | None = None) -> str:
    """The metric that holds this field of `ModelledWork`."""
    return f"{_FLOP}_{precision}" if amount == "flop" and precision else _AMOUNTS[amount]


def source_of(who: str, operator_class: KernelClass | None = None) -> str:
    """The source of metrics that this file or compiler gives, and what it says that the operator does."""
    return f"{MODELLED} by {who}" + (f" as {operator_class}" if operator_class else "")


def imported_work(trace: Trace) -> pl.DataFrame:
    """One row a span that has any: its id, the amounts of `ModelledWork`, precision and class (null: not said).

    Of several sources of a span the first by name decides, for all of it.
    """
    metric, source = pl.col("metric").cast(pl.String), pl.col("source").cast(pl.String)
    is_flop = (metric == _FLOP) | metric.str.starts_with(f"{_FLOP}_")
    rows = trace.scan("metrics").filter(source.str.starts_with(MODELLED), metric.str.starts_with(f"{MODELLED}_"))
    is_amount = {amount: metric == name for amount, name in _AMOUNTS.items()} | {"flop": is_flop}
    return (
        rows.filter(source == source.min().over("span_id"))
        .group_by("span_id")
        .agg(
            *(pl.col("value").filter(is_amount[amount]).first().alias(amount) for amount in _AMOUNTS),
            metric.filter(is_flop).first().str.strip_prefix(_FLOP).str.strip_prefix("_").alias("precision"),
            source.first().str.extract(rf"^{MODELLED} by .* as ({_CLASSES})$").alias("operator_class"),
        )
        .with_columns(pl.when(pl.col("precision") != "").then("precision").alias("precision"))
        .sort("span_id")
        .collect()
    )
