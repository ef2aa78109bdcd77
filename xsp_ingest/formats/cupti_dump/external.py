"""External correlation: which operator of the framework each call and each device activity belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from xsp_ingest.staging.cupti_fields import Records

__all__ = ["issued", "placed"]

_KEY = ("processId", "externalKind", "externalId")


def placed(records: Records) -> tuple[pl.DataFrame, list[Finding]]:
    """The operators, each on the thread of its launches, and with their extent where it has no times of its own.

    The thread ids of a framework and of CUPTI may be of different kinds; the launches say which is which.
    """
    operators = _keyed(records, "FRAMEWORK_OPERATOR")
    launches = _launches(records).join(operators.select(*_KEY, "row"), on=_KEY, how="inner", nulls_equal=True)
    extent = launches.group_by("row").agg(
        pl.col("start").min().alias("first"),
        pl.col("end").max().alias("last"),
        pl.col("threadId").mode().min().alias("launched_on"),
    )
    extended = operators.join(extent, on="row", how="left", maintain_order="left")
    threads = _translation(extended)
    extended = extended.join(threads, on=["processId", "threadId"], how="left", maintain_order="left").with_columns(
        pl.coalesce("start", "first").alias("start"),
        pl.coalesce("end", "last").alias("end"),
        pl.coalesce("is_thread", "threadId", "launched_on").alias("threadId"),
    )
    ids = _keyed(records, "EXTERNAL_CORRELATION")
    unnamed = ids.join(operators, on=_KEY, how="anti", nulls_equal=True)["externalId"].n_unique()
    detail = "external ids that no operator of the dump has"
    return extended, [Finding(LedgerKind.UNNAMED_EXTERNAL_ID, detail, unnamed)]


def _translation(operators: pl.DataFrame) -> pl.DataFrame:
    """The thread of CUPTI for a thread of the framework, where all launches of its operators are on that one."""
    return (
        operators.drop_nulls(["threadId", "launched_on"])
        .group_by("processId", "threadId")
        .agg(pl.col("launched_on").unique().sort().alias("seen"))
        .filter(pl.col("seen").list.len() == 1)
        .select("processId", "threadId", pl.col("seen").list.first().alias("is_thread"))
    )


def issued(records: Records, work: pl.DataFrame) -> pl.DataFrame:
    """The device work with `issued_by_row`: its operator, of several the one that began last; null where unknown.

    Linking uses it only where the launch itself is not in the dump.
    """
    operators = _keyed(records, "FRAMEWORK_OPERATOR").select(*_KEY, "start", pl.col("row").alias("operator"))
    ties = (
        _keyed(records, "EXTERNAL_CORRELATION")
        .drop_nulls(["correlationId", "externalId"])
        .join(operators, on=_KEY, how="inner", nulls_equal=True)
        .sort("start", "operator", nulls_last=False)
        .unique(["processId", "correlationId"], keep="last", maintain_order=True)
        .select(pl.col("processId").alias("process_id"), pl.col("correlationId").alias("correlation_id"), "operator")
    )
    tied = work.drop("issued_by_row").join(ties, on=["process_id", "correlation_id"], how="left", maintain_order="left")
    return tied.rename({"operator": "issued_by_row"}).select(work.columns)


def _launches(records: Records) -> pl.DataFrame:
    """Calls with the external ids that were pushed around them."""
    calls = pl.concat([_keyed(records, kind) for kind in ("RUNTIME", "DRIVER")], how="diagonal")
    ids = _keyed(records, "EXTERNAL_CORRELATION").drop_nulls(["correlationId", "externalId"]).drop("row")
    return calls.drop_nulls(["correlationId", "start"]).drop("row").join(ids, on=["processId", "correlationId"])


def _keyed(records: Records, kind: str) -> pl.DataFrame:
    return records.of(kind).with_columns(records.process)
