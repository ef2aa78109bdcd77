"""What is kept of a run in which graphs were captured: what the host did while it captured, and what that lay in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.captured_graphs import capture_windows, is_of_the_process
from xsp_model import Kind, Level
from xsp_model.tree import ancestors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.attributions import Attributed
    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Bools

__all__ = ["replayed_first", "spans_of_capture"]


def spans_of_capture(forest: Forest) -> Bools:
    """Which spans are kept; steps are not, as nothing is timed from such a run."""
    start = forest.spans["start_ns"].to_numpy()
    thread = forest.spans.select("process_id", "thread_id").hash_rows().to_numpy()
    kept: Bools = np.zeros(len(start), dtype=np.bool_)
    process = forest.spans["process_id"].to_numpy()
    calls = forest.is_level(Level.RUNTIME) & forest.is_kind(Kind.CALL)
    windows = capture_windows(forest)
    for begin, end in windows:
        first, last = np.searchsorted(start, (start[begin], start[end]), side="left")
        kept[first:last] |= thread[first:last] == thread[begin]
        if is_of_the_process(forest, (begin, end), windows):
            kept[first:last] |= calls[first:last] & (process[first:last] == process[begin])
    held = np.flatnonzero(kept)
    for up in ancestors(forest.parent):
        kept[up[held][up[held] >= 0]] = True
    device = forest.is_level(Level.KERNEL) | forest.is_kind(Kind.SYNC)
    return kept & ~device & ~forest.is_kind(Kind.STEP)


def replayed_first(
    calls: pl.DataFrame, run: int, attributed: Sequence[Attributed], forests: Sequence[Forest]
) -> pl.DataFrame:
    """Calls of layers of a capture as of when their work first ran in a replay, which orders them among the others."""
    starts = [
        each.rows.filter(pl.col("layer_run") == run).with_columns(
            forest.spans["start_ns"].gather(each.rows.filter(pl.col("layer_run") == run)["at"]).alias("replayed_ns")
        )
        for each, forest in zip(attributed, forests, strict=False)
    ]
    first = pl.concat(starts).group_by("layer").agg(pl.col("replayed_ns").min())
    joined = calls.join(first, left_on="at", right_on="layer", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("replayed_ns", "first_ns").alias("first_ns")).drop("replayed_ns")
