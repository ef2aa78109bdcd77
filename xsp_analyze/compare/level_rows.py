"""The rows of each level: which of one side is which of the other, and what is known of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.classification.labels import base_name, normal_name
from xsp_analyze.compare.levels import KERNEL, Measured
from xsp_analyze.compare.rows import Row, conclude, rows_of
from xsp_analyze.compare.side import pair_layers
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE
from xsp_analyze.frames.layers.repeated_blocks import repeated_blocks
from xsp_analyze.merge.matching import align

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from xsp_analyze.compare.rows import Assumed, Move
    from xsp_analyze.compare.side import Pairs, Side
    from xsp_analyze.compare.significance import Judged

__all__ = [
    "Change",
    "ChangeKind",
    "block_rows",
    "changes",
    "kernel_class_rows",
    "kernel_partners",
    "kernel_rows",
    "layer_rows",
    "layer_type_rows",
    "layers_under_first",
    "model_rows",
    "one_to_one",
    "operator_rows",
    "regrouped_rows",
]

_MAX_TOGETHER = 8  # a stretch of more kernels than this is no fusion: its kernels are told one by one


class ChangeKind(StrEnum):
    """What became of kernels in one place of the step."""

    APPEARED = "appeared"
    VANISHED = "vanished"
    RENAMED = "renamed"  # the same function, other template arguments or launch
    REPLACED = "replaced"
    FUSED = "fused"  # several became one
    SPLIT = "split"  # one became several


@dataclass(frozen=True, slots=True)
class Change:
    """Kernels of before that stand where those of after do: how often (`count`), their time in one step, and where."""

    kind: ChangeKind
    before: tuple[str, ...]
    after: tuple[str, ...]
    count: int
    before_ns: int
    after_ns: int
    layers: Sequence[str]


@dataclass
class _Seen:
    count: int = 0
    before_ns: int = 0
    after_ns: int = 0
    layers: dict[str, None] = field(default_factory=dict)


_Kernel = tuple[str, int]  # name and ns
_Key = tuple[tuple[str, ...], tuple[str, ...]]


def changes(before: pl.DataFrame, after: pl.DataFrame) -> list[Change]:
    """Changes between one step of each side, those that matter most first.

    Both have a row a kernel in order of launch: name, duration_ns, and `place`, the layer (or other place in the
    step) that it is compared within.
    """
    seen: dict[_Key, _Seen] = {}
    ours, theirs = _by_place(before), _by_place(after)
    for location in dict.fromkeys([*ours, *theirs]):
        for one, two in _gaps(ours.get(location, []), theirs.get(location, [])):
            entry = seen.setdefault((tuple(n for n, _ in one), tuple(n for n, _ in two)), _Seen())
            entry.count += 1
            entry.before_ns += sum(ns for _, ns in one)
            entry.after_ns += sum(ns for _, ns in two)
            entry.layers[location] = None
    changed = [
        Change(_kind(*key), *key, entry.count, entry.before_ns, entry.after_ns, list(entry.layers))
        for key, entry in seen.items()
    ]
    return sorted(changed, key=lambda c: (-abs(c.after_ns - c.before_ns), -c.before_ns, c.before, c.after))


def regrouped_rows(before: pl.DataFrame, after: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Of pairs of matching rows (`first` of before, `second` of after) those of which nothing but the place differs.

    That the times are the same to the ns shows that it is one execution, read with and without what tells its layer.
    """
    same_time = before["duration_ns"].gather(pairs["first"]) == after["duration_ns"].gather(pairs["second"])
    elsewhere = before["place"].gather(pairs["first"]) != after["place"].gather(pairs["second"])
    return pairs.filter(same_time & elsewhere)


def one_to_one(changed: Sequence[Change], before: Collection[str], after: Collection[str]) -> dict[str, str]:
    """Kernels of before that after runs nowhere, and the one that stands in all their places; all in one spelling.

    `before` and `after` are all kernels of each side, spelled so.
    """
    forward, backward = _partners(changed, before=True), _partners(changed, before=False)
    pairs = {}
    for one, others in forward.items():
        two = next(iter(others))
        alone = len(others) == 1 and two is not None and backward.get(two) == {one}
        if alone and two is not None and one not in after and two not in before:
            pairs[one] = two
    return pairs


def _partners(changed: Sequence[Change], *, before: bool) -> dict[str, set[str | None]]:
    """For each kernel of one side what stands in its places; null: nothing, or more than one kernel."""
    out: dict[str, set[str | None]] = {}
    for change in changed:
        ours, theirs = (change.before, change.after) if before else (change.after, change.before)
        single = normal_name(theirs[0]) if len(ours) == len(theirs) == 1 else None
        for name in ours:
            out.setdefault(normal_name(name), set()).add(single)
    return out


def _by_place(kernels: pl.DataFrame) -> dict[str, list[_Kernel]]:
    by_location: dict[str, list[_Kernel]] = {}
    names = kernels["name"].cast(pl.String)
    for location, name, ns in zip(kernels["place"], names, kernels["duration_ns"], strict=True):
        by_location.setdefault(location, []).append((name, ns))
    return by_location


def _gaps(before: list[_Kernel], after: list[_Kernel]) -> Iterator[tuple[list[_Kernel], list[_Kernel]]]:
    """Stretches of one place where the sides differ; what only moved within a stretch is not one."""
    spelled = [[normal_name(name) for name, _ in side] for side in (before, after)]
    for first, second in align(*spelled).mismatches():
        one, two = [before[i] for i in first], [after[j] for j in second]
        one, two = _without_common(one, two), _without_common(two, one)
        if one and two and len(one) + len(two) <= _MAX_TOGETHER:
            yield one, two
        else:
            yield from (([kernel], []) for kernel in one)
            yield from (([], [kernel]) for kernel in two)


def _without_common(kernels: list[_Kernel], others: list[_Kernel]) -> list[_Kernel]:
    there = Counter(normal_name(name) for name, _ in others)
    left = []
    for name, ns in kernels:
        spelled = normal_name(name)
        if there[spelled]:
            there[spelled] -= 1
        else:
            left.append((name, ns))
    return left


def _kind(before: tuple[str, ...], after: tuple[str, ...]) -> ChangeKind:
    if not before:
        return ChangeKind.APPEARED
    if not after:
        return ChangeKind.VANISHED
    if len(before) > len(after) == 1:
        return ChangeKind.FUSED
    if len(after) > len(before) == 1:
        return ChangeKind.SPLIT
    same = [base_name(name) for name in before] == [base_name(name) for name in after]
    return ChangeKind.RENAMED if same else ChangeKind.REPLACED


def model_rows(one: Side, two: Side, assumed: Assumed, *, on_device: bool) -> list[Row]:
    described = {"latency": (one.model, two.model)}
    if on_device:
        described["device_time"] = (one.device_time(), two.device_time())
    beside = (one.kernels, two.kernels) if on_device else (one.layers, two.layers)
    model = []
    for name, (before, after) in described.items():
        rows, _ = rows_of("model", before, after, [(name, name)], lambda a, _: {"name": a}, assumed, beside)
        p = rows[0].p_value
        model.append(conclude(rows[0], is_discovery=p is not None and p <= FALSE_DISCOVERY_RATE))
    return model


def layer_rows(one: Side, two: Side, pairs: Pairs, assumed: Assumed) -> tuple[list[Row], Judged]:
    sides = [side.layers[0].labels.to_dicts() for side in (one, two)]
    keys = [
        (None if i is None else sides[0][i]["key"], None if j is None else sides[1][j]["key"]) for i, j in pairs.rows
    ]
    labels = [{label["key"]: label for label in side} for side in sides]

    def describe(a: Any, b: Any) -> dict[str, object]:  # noqa: ANN401 (keys, whatever they are)
        label = labels[0][a] if a is not None else labels[1][b]
        other = labels[1].get(b, label)["layer_name"]
        return {
            "name": label["layer_name"],
            "after_name": other if other != label["layer_name"] else None,
            **{c: label[c] for c in ("layer_type", "path")},
            "layer_index": label["key"],
        }

    same = layers_under_first(one), layers_under_first(two)
    return rows_of("layer", *same, keys, describe, assumed)


def layers_under_first(side: Side) -> list[Measured]:
    """The side's captures with the layers' keys of its first one."""
    first, *others = side.layers
    out = [first]
    for other in others:
        pairs = pair_layers(first.labels, other.labels)
        to = {j: first.keys[i] for i, j in pairs.rows if i is not None and j is not None}
        keys = [to.get(row, -1 - row) for row in range(other.labels.height)]
        out.append(replace(other, labels=other.labels.with_columns(pl.Series("key", keys, dtype=pl.Int64))))
    return out


def layer_type_rows(
    one: Side, two: Side, assumed: Assumed, moved: Mapping[str, Move], *, same_framework: bool
) -> list[Row]:
    """Layers by type; between frameworks by the families that their types belong to."""
    sides = one.layer_types(by_family=not same_framework), two.layer_types(by_family=not same_framework)
    return rows_of("layer_type", *sides, _union(*sides), _describer_by_name(moved), assumed)[0]


def kernel_class_rows(one: Side, two: Side, assumed: Assumed) -> list[Row]:
    if not (one.has_kernels and two.has_kernels):
        return []
    sides = one.kernel_classes, two.kernel_classes
    return rows_of("kernel_class", *sides, _union(*sides), _describer_by_name({}), assumed)[0]


def operator_rows(one: Side, two: Side, assumed: Assumed, moved: Mapping[str, Move], *, on_device: bool) -> list[Row]:
    sides = one.operators(on_device=on_device), two.operators(on_device=on_device)
    return rows_of("operator", *sides, _union(*sides), _describer_by_name(moved), assumed)[0]


def _describer_by_name(moved: Mapping[str, Move]) -> Callable[[Any, Any], dict[str, object]]:
    """Describes rows whose keys are their names."""

    def describe(a: Any, b: Any) -> dict[str, object]:  # noqa: ANN401 (keys, whatever they are)
        name = b if a is None else a
        return {"name": name, **_where(moved.get(name), {})}

    return describe


def _where(move: Move | None, names: Mapping[str, str]) -> dict[str, object]:
    if move is None:
        return {}
    return {"moved_to" if move.is_to else "moved_from": tuple(names.get(other, other) for other in move.others)}


def kernel_partners(one: Side, two: Side, changed: Sequence[Change]) -> dict[str, str]:
    """Keys of kernels before, and the key of the one that took its place everywhere."""
    keys = [{str(key) for measured in side.kernels for key in measured.keys} for side in (one, two)]
    spelled = [{key.removeprefix(KERNEL) for key in side if key.startswith(KERNEL)} for side in keys]
    return {KERNEL + old: KERNEL + new for old, new in one_to_one(changed, *spelled).items()}


def kernel_rows(
    one: Side,
    two: Side,
    changed: Sequence[Change],
    partner: Mapping[str, str],
    assumed: Assumed,
    moved: Mapping[str, Move],
) -> list[Row]:
    """Kernels by name; one that took another's place everywhere shares its row."""
    if not (one.has_kernels and two.has_kernels):
        return []
    labels = [{str(k): str(v) for m in side.kernels for k, v in zip(m.keys, m.labels["name"], strict=True)}
              for side in (one, two)]  # fmt: skip
    became = {(normal_name(c.before[0]), normal_name(c.after[0])): str(c.kind)
              for c in changed if len(c.before) == len(c.after) == 1}  # fmt: skip
    taken, names = set(partner.values()), labels[0] | labels[1]
    keys = [(a, partner[a]) if a in partner else (a, b) for a, b in _union(one.kernels, two.kernels)
            if not (a is None and b in taken)]  # fmt: skip

    def describe(a: Any, b: Any) -> dict[str, object]:  # noqa: ANN401 (keys, whatever they are)
        name = labels[0].get(a) if a is not None else labels[1][b]
        other = labels[1].get(b) if b is not None else None
        where = _where(moved.get(b if a is None else a), names)
        return {"name": name, "after_name": other if a is not None and a != b else None, **where}

    rows = rows_of("kernel", one.kernels, two.kernels, keys, describe, assumed)[0]
    return [
        replace(r, change=became[normal_name(r.name), normal_name(r.after_name)]) if r.after_name else r for r in rows
    ]


def _union(before: Sequence[Measured], after: Sequence[Measured]) -> list[tuple[Any, Any]]:
    """Keys of either side, each with itself where the other side has it."""
    ours = dict.fromkeys(key for m in before for key in m.keys)
    theirs = dict.fromkeys(key for m in after for key in m.keys)
    return [(k, k if k in theirs else None) for k in ours] + [(None, k) for k in theirs if k not in ours]


# Rows of a comparison for repeated blocks: one position of a block in all its repetitions, on both sides.

_POSITION = ["block_index", "position"]


def block_rows(one: Side, two: Side, pairs: Pairs, assumed: Assumed) -> list[Row]:
    """A row a position that both sides have: all its layers that have a partner have it at one position of the other.

    Blocks of a single layer are left out, as their type's row says as much.
    """
    members = _members(one), _members(two)
    if members[0].is_empty() or members[1].is_empty():
        return []
    keys = _pair_keys(one, two, members, pairs)
    labels = [{row["key"]: row for row in _block_labels(side).iter_rows(named=True)} for side in members]

    def describe(a: Any, b: Any) -> dict[str, object]:  # noqa: ANN401 (keys, whatever they are)
        before, after = labels[0][a], labels[1][b]
        return {
            "name": before["name"],
            "after_name": after["name"] if after["name"] != before["name"] else None,
            "layer_type": before["layer_type"],
        }

    measured = _measure_positions(one, members[0]), _measure_positions(two, members[1])
    return rows_of("layer_block", *measured, keys, describe, assumed)[0]


def _members(side: Side) -> pl.DataFrame:
    """`repeated_blocks` of the side's first capture with a `key` a position, of blocks with several positions."""
    members = side.views[0].of_trace.once(repeated_blocks)
    several = pl.col("position").max().over("block_index") > 0
    key = pl.format("{} {}", *_POSITION).alias("key")
    return members.filter(several).with_columns(key)


def _block_labels(members: pl.DataFrame) -> pl.DataFrame:
    """One row a key: `Attention of 24 x layers.{0..23}`, and the type."""
    name = pl.format("{} of {} x {}", pl.col("position_name").first(), pl.len(), pl.col("block").first())
    return members.group_by("key", maintain_order=True).agg(
        name.alias("name"), pl.col("position_type").first().alias("layer_type")
    )


def _pair_keys(one: Side, two: Side, members: tuple[pl.DataFrame, pl.DataFrame], pairs: Pairs) -> list[tuple[str, str]]:
    """Keys of positions that are one and the same, by the pairs of their layers."""
    of_layer = [dict(m.select("layer_index", "key").iter_rows()) for m in members]
    layers = one.layers[0].keys, two.layers[0].keys
    joint = [(layers[0][i], layers[1][j]) for i, j in pairs.rows if i is not None and j is not None]
    there = {(of_layer[0].get(a), of_layer[1].get(b)) for a, b in joint}
    ours, theirs = _position_partners(there), _position_partners((b, a) for a, b in there)
    return [
        (key, other)
        for key in dict.fromkeys(members[0]["key"])
        if (other := ours.get(key)) is not None and theirs.get(other) == key
    ]


def _position_partners(joint: Any) -> Mapping[Any, Any]:  # noqa: ANN401 (pairs of keys or null)
    """For each key its one partner; None where it has several, or layers outside of blocks."""
    partners: dict[Any, Any] = {}
    for key, other in joint:
        partners[key] = other if key not in partners else None
    return partners


def _measure_positions(side: Side, members: pl.DataFrame) -> Sequence[Measured]:
    """The sums over the layers of each position in each capture."""
    at = dict(members.select("layer_index", "key").iter_rows())
    keys = members["key"].unique(maintain_order=True)
    sums = []
    for layers in layers_under_first(side):
        own = np.array([at.get(key) for key in layers.keys], dtype=object)
        of_key = (keys.to_numpy()[:, None] == own[None, :]).astype(np.float64)
        is_known = np.isfinite(layers.mean_ns)
        total = of_key @ np.where(is_known, layers.mean_ns, 0.0)
        mean = np.where((of_key * is_known).any(axis=1), total, np.nan)
        labels = pl.DataFrame({"key": keys})
        sums.append(Measured(labels, mean, of_key @ np.nan_to_num(layers.count), of_key @ layers.steps))
    return sums
