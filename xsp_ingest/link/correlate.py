"""Rule 2: a device activity's parent is the runtime call with its process and correlation id, else what issued it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.distinct_texts import category_indices
from xsp_ingest.link.keys import pair_keys
from xsp_model import Attribution, Kind, Level, scratch
from xsp_model.arrays import lookup, no_refs, true_indices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_ingest.link.span_kinds import SpanKinds
    from xsp_model.arrays import Ints, Positions

__all__ = ["Launches", "correlate"]

_REASONS = tuple(str(reason) for reason in Attribution)


@dataclass(frozen=True, slots=True)
class Launches:
    """For each span the position of its launch or -1, and for device work without one the reason (-1: none needed).

    A reason is an index in `Attribution`.
    """

    launch: Positions
    orphans: NDArray[np.int8]


def correlate(spans: pl.DataFrame, kinds: SpanKinds) -> Launches:
    """Finds launches over raw spans in order; where runtime and driver both recorded one, the outermost call is it.

    Work whose launch was not recorded has instead the span that the file itself says issued it.
    """
    calls = true_indices(
        kinds.is_level(Level.RUNTIME) & kinds.is_kind(Kind.CALL) & spans["correlation_id"].is_not_null().to_numpy()
    )
    work = true_indices(kinds.is_level(Level.KERNEL))
    launch = _launches(spans, calls, work)
    issuer = _issuers(spans, work)
    if issuer is not None:
        launch = np.where(launch >= 0, launch, issuer)
    out = no_refs(spans.height)
    out[work] = launch
    orphans = np.full(spans.height, -1, dtype=np.int8)
    lost = work[launch < 0]
    if len(lost):
        orphans[lost] = _reasons(_facts(spans, lost), _facts(spans, calls))
    return Launches(out, orphans)


def _facts(spans: pl.DataFrame, at: Positions) -> pl.DataFrame:
    return scratch.gather_rows(spans.select("process_id", "correlation_id", "start_ns"), at)


def _launches(spans: pl.DataFrame, calls: Positions, work: Positions) -> Ints:
    """For each piece of work the first call with its process and id: the outermost, as spans are in order."""
    ids = spans.select("process_id", "correlation_id")
    launches = lookup(*pair_keys(scratch.gather_rows(ids, calls), scratch.gather_rows(ids, work)))
    for piece in scratch.pieces(len(launches)):
        some = launches[piece]
        some[some >= 0] = calls[some[some >= 0]]
    return launches


def _issuers(spans: pl.DataFrame, work: Positions) -> Ints | None:
    """For each piece of work the position of the span that the file says issued it, or -1; None: it says so of none."""
    issuer_rows = spans["issued_by_row"]
    if issuer_rows.null_count() == len(issuer_rows):
        return None
    rows = issuer_rows.gather(work)
    issuers = lookup(spans["row"].to_numpy(), rows.fill_null(0).to_numpy())
    return np.where(rows.is_not_null().to_numpy(), issuers, -1)


def _reasons(lost: pl.DataFrame, calls: pl.DataFrame) -> NDArray[np.int8]:
    """Launched before the window: the id is older than the process's first call, or the work began before it."""
    first = calls.group_by("process_id").agg(
        pl.col("correlation_id").min().alias("first_id"), pl.col("start_ns").min().alias("first_ns")
    )
    compared = lost.join(first, on="process_id", how="left", maintain_order="left")
    early = (pl.col("correlation_id") < pl.col("first_id")) | (pl.col("start_ns") < pl.col("first_ns"))
    reason = (
        pl.when(pl.col("correlation_id").is_null())
        .then(pl.lit(str(Attribution.ORPHAN_NO_CORRELATION)))
        .when(early)
        .then(pl.lit(str(Attribution.ORPHAN_BEFORE_WINDOW)))
        .otherwise(pl.lit(str(Attribution.ORPHAN_NO_LAUNCH)))
    )
    return category_indices(compared.select(reason.cast(pl.Categorical)).to_series(), _REASONS)
