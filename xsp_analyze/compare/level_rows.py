"""The rows of each level: which of one side is which of the other, and what is known of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.compare.conclusions import conclude
from xsp_analyze.compare.device_levels import KERNEL
from xsp_analyze.compare.kernel_changes import one_to_one
from xsp_analyze.compare.layer_pairs import pair_layers
from xsp_analyze.compare.rows import Row, rows_of
from xsp_analyze.compare.significance import FALSE_DISCOVERY_RATE
from xsp_analyze.merge.kernel_names import normal_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.compare.kernel_changes import Change
    from xsp_analyze.compare.layer_pairs import Pairs
    from xsp_analyze.compare.levels import Measured
    from xsp_analyze.compare.moves import Move
    from xsp_analyze.compare.rows import Assumed
    from xsp_analyze.compare.side import Side
    from xsp_analyze.compare.significance import Judged

__all__ = [
    "kernel_class_rows",
    "kernel_partners",
    "kernel_rows",
    "layer_rows",
    "layer_type_rows",
    "layers_under_first",
    "model_rows",
    "operator_rows",
]


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
