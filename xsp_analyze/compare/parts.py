"""What the difference of latency is made of, in parts that add up to it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.compare import levels
from xsp_analyze.formulas import quotient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.compare.side import Pairs, Side

__all__ = [
    "REST",
    "Contribution",
    "Explained",
    "Waterfall",
    "explain_difference",
    "leading",
    "waterfall",
    "with_locations",
]

REST = {
    "device": "time with no device work, less work that overlapped",
    "host": "outside of layers",
}


@dataclass(frozen=True, slots=True)
class Contribution:
    """One part of the difference; `kernel` is what changed most within it the same way, with its own part of it."""

    name: str
    kind: str  # layer, layer_type, kernel_class, outside (device work of no layer) or rest
    before_ns: int | None
    after_ns: int | None
    difference_ns: int
    kernel: str | None = None
    kernel_difference_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """`parts` sum to `difference_ns` exactly. Times are of the device where both sides have any, else of the host.

    `by` is what the parts are: layer, layer_type or kernel_class.
    """

    basis: str
    by: str
    before_ns: int
    after_ns: int
    parts: Sequence[Contribution]

    @property
    def difference_ns(self) -> int:
        """After less before."""
        return self.after_ns - self.before_ns


Work = dict[tuple[str, str], dict[str, float]]
"""Time of a mean step by part (kind, name) and, in it, by kernel or operator."""


def waterfall(basis: str, by: str, total: tuple[float, float], before: Work, after: Work) -> Waterfall:
    """The parts by `by`, largest first, and last what is left of the total: idle time, overlap, work between layers."""
    first, last = round(total[0]), round(total[1])
    parts = [_part(key, before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after])]
    parts.sort(key=lambda p: (-abs(p.difference_ns), p.kind, p.name))
    inside = [sum(getattr(p, column) or 0 for p in parts) for column in ("before_ns", "after_ns")]
    rest = Contribution(
        REST[basis], "rest", first - inside[0], last - inside[1], last - first - (inside[1] - inside[0])
    )
    return Waterfall(basis, by, first, last, [*parts, rest])


def _part(key: tuple[str, str], before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> Contribution:
    one = None if before is None else round(sum(before.values()))
    two = None if after is None else round(sum(after.values()))
    names = dict.fromkeys([*(before or {}), *(after or {})])
    by_kernel = {n: (after or {}).get(n, 0.0) - (before or {}).get(n, 0.0) for n in names}
    difference = (two or 0) - (one or 0)
    cause = leading(by_kernel, difference)
    return Contribution(
        name=key[1],
        kind=key[0],
        before_ns=one,
        after_ns=two,
        difference_ns=difference,
        kernel=None if cause is None else cause[0],
        kernel_difference_ns=None if cause is None else round(cause[1]),
    )


def leading(differences: Mapping[str, float], total: float) -> tuple[str, float] | None:
    """What changed most the way the total did, so that a cause never has the other sign; null: nothing did."""
    alike = {name: ns for name, ns in differences.items() if ns * total > 0}
    return max(alike.items(), key=lambda item: abs(item[1]), default=None)


# Time of a mean step by layer or class and, in it, by kernel or operator: what waterfalls and causes are made of.

_OUTSIDE = "outside of layers"
_FEW_LAYERS = 24


@dataclass(frozen=True, slots=True)
class Explained:
    """The waterfalls (none: no latency is known), and for layers of before (by index) what changed inside."""

    waterfalls: Sequence[Waterfall]
    by_layer: dict[int | None, dict[str, float]]


def explain_difference(one: Side, two: Side, pairs: Pairs, *, on_device: bool) -> Explained:
    """What the difference of latency is made of: by layer where there are few, by type of layer, by class of kernels.

    Where operators are the layers not by layer: they are numbered as they come, and no single one says anything.
    """
    total = float(one.model[0].mean_ns[0]), float(two.model[0].mean_ns[0])
    work = [_device_work(side) if on_device else _host_work(side) for side in (one, two)]
    slots = _slots(one, two, pairs)
    by_layer = [_by_layer(w, slot) for w, slot in zip(work, slots, strict=True)]
    parts: dict[str, list[_Parts]] = {}
    if len(pairs.rows) <= _FEW_LAYERS and "operator" not in {one.facts.layer_source, two.facts.layer_source}:
        parts["layer"] = by_layer
    parts["layer_type"] = [_by_type(w) for w in work]
    if on_device:
        parts["kernel_class"] = [_by_class(w) for w in work]
    basis = "device" if on_device else "host"
    falls = []
    for by, sides in parts.items() if np.isfinite(total).all() else ():
        named = [{_part_name(key, one, two, pairs): value for key, value in side.items()} for side in sides]
        falls.append(waterfall(basis, by, total, *named))
    return Explained(falls, _causes(one, pairs, *by_layer))


def with_locations(
    first: pl.DataFrame, second: pl.DataFrame, one: Side, two: Side, pairs: Pairs
) -> tuple[pl.DataFrame, ...]:
    """Both tables of kernels with `place`: the layer, by the name before, or what else of the step they belong to."""
    out = []
    for kernels, slot in zip((first, second), _slots(one, two, pairs), strict=True):
        names = {index: _slot_name(at, one, two, pairs) for index, at in slot.items()}
        rows = zip(kernels["layer_index"], kernels["phase"].cast(pl.String), strict=True)
        locations = [names.get(index) or f"{_OUTSIDE} ({phase or 'unknown phase'})" for index, phase in rows]
        out.append(kernels.with_columns(pl.Series("place", locations, dtype=pl.String)))
    return tuple(out)


def _slots(one: Side, two: Side, pairs: Pairs) -> tuple[dict[int, int], dict[int, int]]:
    """For each side the number of the pair that a layer's index belongs to."""
    keys = [side.layers[0].keys for side in (one, two)]
    before = {int(str(keys[0][i])): at for at, (i, _) in enumerate(pairs.rows) if i is not None}
    after = {int(str(keys[1][j])): at for at, (_, j) in enumerate(pairs.rows) if j is not None}
    return before, after


def _slot_name(at: int, one: Side, two: Side, pairs: Pairs) -> str:
    i, j = pairs.rows[at]
    labels = one.layers[0].labels if i is not None else two.layers[0].labels
    name = str(labels["layer_name"][i if i is not None else j])  # type: ignore[index]
    return name if i is not None else f"{name} (new)"


_Key = tuple[str, int | str]
_Parts = dict[_Key, dict[str, float]]


def _device_work(side: Side) -> pl.DataFrame:
    """Device time: layer_index (null: of none), layer_type, kernel_class, place (of what has no layer), name, ns."""
    phase = pl.when(pl.col("phase").is_null()).then(pl.lit("")).otherwise(pl.lit(", ") + pl.col("phase"))
    labels = pl.col("attribution").str.replace_all("_", " ") + phase
    placed_work = side.work().with_columns(
        pl.when(pl.col("layer_index").is_null()).then(labels.str.replace("model only", _OUTSIDE)).alias("place")
    )
    keys = ("layer_index", "layer_type", "place", "kernel_class", "name")
    return placed_work.group_by(keys, maintain_order=True).agg(pl.col("ns").sum())


def _host_work(side: Side) -> pl.DataFrame:
    """Layer latency on the host: of each layer its operators' own time, and what is left of it."""
    measured, frames = side.layers[0], side.views[0]
    latency = measured.labels.select(
        pl.col("key").alias("layer_index"), "layer_type", pl.Series("whole", measured.mean_ns)
    )
    inside = levels.operators_by_layer(frames).with_columns(quotient(pl.col("ns"), side.per))
    left = (
        latency.join(inside.group_by("layer_index").agg(pl.col("ns").sum().alias("inside")), on="layer_index",
                     how="left")
        .select("layer_index", "layer_type", pl.lit("outside of its operators").alias("name"),
                (pl.col("whole") - pl.col("inside").fill_null(0)).alias("ns"))
    )  # fmt: skip
    layers = inside.join(latency.drop("whole"), on="layer_index").select("layer_index", "layer_type", "name", "ns")
    return pl.concat([layers, left]).with_columns(pl.lit(None, pl.String).alias("place"))


def _by_layer(work: pl.DataFrame, slots: dict[int, int]) -> _Parts:
    out: _Parts = {}
    for index, location, name, ns in work.select("layer_index", "place", "name", "ns").iter_rows():
        at = slots.get(index) if index is not None else None
        key: _Key = ("layer", at) if at is not None else ("outside", location or _OUTSIDE)
        _add(out, key, name, ns)
    return out


def _by_type(work: pl.DataFrame) -> _Parts:
    out: _Parts = {}
    for index, kind, location, name, ns in work.select("layer_index", "layer_type", "place", "name", "ns").iter_rows():
        key: _Key = ("layer_type", kind) if index is not None and kind else ("outside", location or _OUTSIDE)
        _add(out, key, name, ns)
    return out


def _by_class(work: pl.DataFrame) -> _Parts:
    out: _Parts = {}
    for kernel_class, name, ns in work.select("kernel_class", "name", "ns").iter_rows():
        _add(out, ("kernel_class", kernel_class), name, ns)
    return out


def _add(out: _Parts, key: _Key, name: str, ns: float | None) -> None:
    part = out.setdefault(key, {})
    part[name] = part.get(name, 0.0) + (ns or 0.0)


def _part_name(key: _Key, one: Side, two: Side, pairs: Pairs) -> tuple[str, str]:
    kind, what = key
    return (kind, _slot_name(what, one, two, pairs)) if isinstance(what, int) else (kind, what)


def _causes(one: Side, pairs: Pairs, before: _Parts, after: _Parts) -> dict[int | None, dict[str, float]]:
    keys = one.layers[0].keys
    causes: dict[int | None, dict[str, float]] = {}
    for at, (i, j) in enumerate(pairs.rows):
        ours, theirs = before.get(("layer", at), {}), after.get(("layer", at), {})
        if i is not None and j is not None:
            by_name = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in dict.fromkeys([*ours, *theirs])}
            causes[int(str(keys[i]))] = by_name
    return causes
