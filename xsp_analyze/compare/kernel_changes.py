"""Kernels that one side runs where the other runs others: appeared, vanished, renamed, replaced, fused or split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.merge.alignment import align
from xsp_analyze.merge.kernel_names import base_name, normal_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ["Change", "ChangeKind", "changes", "one_to_one", "regrouped_rows"]

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
