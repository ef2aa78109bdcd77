"""A user's work models, put into a trace as the work of the operators that they hold for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.operators.modelled_calls import modelled_kinds
from xsp_analyze.frames.operators.operator_calls import MODELLED, metric_of, recorded_kinds, source_of
from xsp_analyze.work_models.registry import Models, holds
from xsp_analyze.work_models.user_models import AMOUNTS, UserModel, read_user_models
from xsp_model import Finding, LedgerKind, Level
from xsp_model.ledger import to_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["with_work_models"]

_SHOWN = 5  # names in a finding
_TEXTS = pl.col(pl.Categorical).cast(pl.String)


def with_work_models(trace: Trace, files: Sequence[Path]) -> Trace:
    """The trace with the work that the files' models tell of its operators as metrics, which analyses take first.

    Where files hold for the same name the first does. What no model could tell, and names that the trace does not
    have, are in the ledger.

    Raises:
        XspError: A file is none, or one of its rows is not sound.
    """
    models = [model for file in files for model in read_user_models(file)]
    by_name, names = Models(models), _operator_names(trace)
    holding = {name: model for name in names if isinstance(model := by_name.of(name), UserModel)}
    calls = _calls(trace, by_name, holding)
    metrics = _metrics(calls, holding)
    findings = [*_findings_of_unused(models, names), *_findings_of_untold_calls(calls, metrics, holding)]
    return trace.with_tables({"metrics": _metrics_with(trace, metrics), "ledger": _ledger_with(trace, findings)})


def _operator_names(trace: Trace) -> list[str]:
    rows = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR)).select(pl.col("name").cast(pl.String))
    return sorted(rows.unique().collect()["name"].drop_nulls())


def _calls(trace: Trace, models: Models, names: Mapping[str, UserModel]) -> pl.DataFrame:
    """The operators of these names: span_id, name and the columns of WORK by the user's models."""
    recorded = recorded_kinds(trace)
    kinds = recorded.kinds.with_row_index("kind").with_columns(pl.col("kind").cast(pl.Int64))
    modelled = modelled_kinds(kinds.filter(pl.col("name").is_in(list(names))), models)
    calls = pl.DataFrame({"span_id": recorded.ids, "kind": recorded.kind_of})
    return calls.join(modelled, on="kind", how="inner", maintain_order="left").sort("span_id")


def _metrics(calls: pl.DataFrame, holding: Mapping[str, UserModel]) -> pl.DataFrame:
    """One row a call and amount that a model says and told."""
    parts = [
        of_model.select(
            "span_id",
            _metric_name(amount).alias("metric"),
            pl.col(amount).alias("value"),
            pl.lit("byte" if amount.endswith("bytes") else "flop").alias("unit"),
            pl.lit(_source(model)).alias("source"),
        ).drop_nulls("value")
        for name, model in holding.items()
        for of_model in [calls.filter(pl.col("name") == name, _has_amount())]
        for amount in AMOUNTS.values()
        if amount in model.says
    ]
    kinds = {"span_id": pl.Int64(), "metric": pl.String(), "value": pl.Float64(), "unit": pl.String()}
    return pl.concat([pl.DataFrame(schema={**kinds, "source": pl.String()}), *parts])


def _metric_name(amount: str) -> pl.Expr:
    plain = pl.lit(metric_of(amount))
    if amount != "flop":
        return plain
    of_precision = pl.concat_str(pl.lit(metric_of(amount, "")), pl.lit("_"), "precision")
    return pl.coalesce(of_precision, plain)


def _source(model: UserModel) -> str:
    return source_of(model.file.name, model.operator_class if model.has_class else None)


def _has_amount() -> pl.Expr:
    return pl.any_horizontal(pl.col(amount).is_not_null() for amount in AMOUNTS.values())


def _metrics_with(trace: Trace, metrics: pl.DataFrame) -> pl.DataFrame:
    """The trace's metrics and these; what was modelled before of the same spans is left out."""
    again = pl.col("source").str.starts_with(MODELLED) & pl.col("span_id").is_in(metrics["span_id"].implode())
    return pl.concat([trace.frame("metrics").with_columns(_TEXTS).filter(~again), metrics], how="vertical_relaxed")


def _ledger_with(trace: Trace, findings: Sequence[Finding]) -> pl.DataFrame:
    """The ledger with these; what a bundle has of an earlier time is not said again."""
    before, now = trace.frame("ledger").with_columns(_TEXTS), to_frame(findings)
    new = now.join(before, on=now.columns, how="anti", nulls_equal=True)
    return pl.concat([before, new], how="diagonal_relaxed")


def _findings_of_unused(models: Sequence[UserModel], names: Sequence[str]) -> Iterator[Finding]:
    """Of each file the names in it that no operator of the trace has."""
    patterns = [(model.file, pattern) for model in models for pattern in model.operators]
    for file in dict.fromkeys(file for file, _ in patterns):
        unused = [p for f, p in patterns if f == file and not any(holds(p, name) for name in names)]
        if unused:
            yield _finding(LedgerKind.WORK_MODEL_UNUSED, file, unused, len(unused))


def _findings_of_untold_calls(
    calls: pl.DataFrame, metrics: pl.DataFrame, holding: Mapping[str, UserModel]
) -> Iterator[Finding]:
    """Of each file the calls that its models hold for and told nothing of."""
    untold = calls.filter(~pl.col("span_id").is_in(metrics["span_id"].implode()))
    for file in dict.fromkeys(model.file for model in holding.values()):
        of_file = untold.filter(pl.col("name").is_in([name for name, model in holding.items() if model.file == file]))
        if of_file.height:
            names = of_file["name"].unique().sort().to_list()
            yield _finding(LedgerKind.WORK_MODEL_UNFIT, file, names, of_file.height)


def _finding(kind: LedgerKind, file: Path, names: Sequence[str], count: int) -> Finding:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Finding(kind, f"{kind.sentence} ({file.name}: {', '.join(names[:_SHOWN])}{more})", count)
