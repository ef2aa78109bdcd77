"""What captures and replays of graphs lay in: steps, batches, layers. It tells graphs of equal kernels apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import outermost
from xsp_ingest.link.graph_batches import graph_batches, replay_batches
from xsp_model.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.captured_graphs import CapturedGraph
    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.graph_batches import Batch
    from xsp_ingest.link.layers import Layering
    from xsp_model.arrays import Ints, Positions

__all__ = ["Surroundings", "of_layer", "surroundings"]

_INSTANCE = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of each captured graph the batch and the layer it was captured in; of each replay batch, layer and step.

    Layers are named, "" for none. Replays with the same number in `steps` are of one step; where steps are not marked,
    of one outermost call.
    """

    captured_batches: Sequence[int | None]
    captured_layers: Sequence[str]
    batches: Sequence[Batch | None]
    layers: Sequence[str]
    steps: Ints


def surroundings(
    graphs: Sequence[CapturedGraph],
    run: int,
    launches: Positions,
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
    names: Sequence[str],
) -> Surroundings:
    """Those of the graphs, which stand in order of their runs, and of replays of a run by their launches."""
    batches: list[int | None] = []
    layers: list[str] = []
    for each, alike in groupby(graphs, key=lambda graph: graph.run):
        begins = [graph.begin for graph in alike]
        batches += graph_batches(forests[each], begins, names[each])
        layers += _layers(forests[each], layerings[each], np.array(begins))
    forest = forests[run]
    return Surroundings(
        batches,
        layers,
        replay_batches(forest, launches),
        _layers(forest, layerings[run], launches),
        _steps(forest, launches),
    )


def _layers(forest: Forest, layering: Layering, at: Positions) -> list[str]:
    """The name of the innermost layer's call around each span."""
    held = forest.spans["name"].gather(nullable_index(layering.held_in[at]))
    return held.cast(pl.String).fill_null("").to_list()


def _steps(forest: Forest, launches: Positions) -> Ints:
    step = forest.spans["step"].gather(launches)
    root = outermost(forest.parent, np.ones(len(forest.parent), dtype=np.bool_))[launches].astype(np.int64)
    return np.where(step.is_null().to_numpy(), root, -2 - step.fill_null(0).to_numpy())


def of_layer(graphs: Sequence[int], captured: Sequence[str], layer: str) -> list[int]:
    """Those of the graphs that were captured in a call of this layer; where none was, all but those of its siblings.

    A graph that was captured in one instance of a module is not replayed in another one.
    """
    same = [graph for graph in graphs if layer and captured[graph] == layer]
    kind = _INSTANCE.sub("", layer)
    return same or [g for g in graphs if not (layer and captured[g] and _INSTANCE.sub("", captured[g]) == kind)]
