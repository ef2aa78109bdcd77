"""For which batch a graph was captured and for which it was replayed, where names around both say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_model.step_annotations import parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_model.arrays import Positions

__all__ = ["Batch", "graph_batches", "graphs_for_step", "replay_batches"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The size that the engine picks a graph by; `exact`: as it was padded, and not only at least so many."""

    size: int
    exact: bool


def graph_batches(forest: Forest, begins: Sequence[int], file: str) -> list[int | None]:
    """For each graph, by the call that began its capture, the size it was captured for; else as the file's name says.

    Serving engines annotate captures, or write each into a file or folder named after it.
    """
    around = _around(forest, np.array(begins, dtype=np.int64), captures=True)
    parts = [part.split(".")[0] for part in reversed(PurePath(file).parts)]
    named = next((size for part in parts if (size := _size(part, captures=True)) is not None), None)
    return [named if batch is None else batch.size for batch in around]


def _size(text: str, *, captures: bool) -> int | None:
    annotation = parse_step_annotation(text)
    return annotation.batch_key if annotation is not None and annotation.is_capture == captures else None


def replay_batches(forest: Forest, launches: Positions) -> list[Batch | None]:
    """For each launch the batch of the step around it."""
    return _around(forest, launches, captures=False)


def _around(forest: Forest, at: Positions, *, captures: bool) -> list[Batch | None]:
    """The innermost annotation around each span that says a batch."""
    batches: dict[str, Batch] = {}
    for name in forest.spans["name"].unique().drop_nulls().cast(pl.String):
        annotation = parse_step_annotation(name)
        if annotation is not None and annotation.is_capture == captures and annotation.batch_key is not None:
            padded = annotation.padded_tokens if annotation.padded_requests is None else annotation.padded_requests
            batches[name] = Batch(annotation.batch_key, padded is not None)
    if not batches:
        return [None] * len(at)
    annotated = forest.spans["name"].cast(pl.String).is_in(list(batches)).to_numpy()
    holder = innermost(forest.parent, annotated)[at]
    names = forest.spans["name"].gather(np.maximum(holder, 0)).cast(pl.String)
    return [batches[name] if held >= 0 else None for name, held in zip(names, holder, strict=True)]


def graphs_for_step(graphs: Sequence[int], captured: Sequence[int | None], step: Batch | None) -> list[int]:
    """Those of the graphs that a step of this batch replays: of its padded size, else the smallest that holds it."""
    if step is None:
        return list(graphs)
    sizes = {graph: captured[graph] for graph in graphs}
    enough = [size for size in sizes.values() if size is not None and size >= step.size]
    replayed = step.size if step.exact else min(enough, default=None)
    return [graph for graph, size in sizes.items() if size is None or size == replayed]
