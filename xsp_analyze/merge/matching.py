"""Ties layers and kernels of one run to the same of another: by name, type, shapes, grid, block and order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.labels import base_name, normal_name
from xsp_analyze.frames.kernels.activities import AXES, device_activities, shapes_of, with_shapes
from xsp_analyze.frames.kernels.kernel_means import align_steps
from xsp_analyze.frames.steps import steps_of
from xsp_model import Finding, LedgerKind, Severity, XspError
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "Alignment",
    "Matched",
    "Resolved",
    "align",
    "kernel_work",
    "layer_sequence",
    "match_kernels",
    "match_layers",
    "resolve_parents",
    "template",
    "with_identities",
]

# Aligns two sequences by a longest common subsequence: exact, but for long ones that differ much.

_MAX_EDITS = 128  # where a stretch differs more, a table over a window of it costs less than following the edits
_WINDOW = 4096


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs of positions that match, in order, and what share of the longer sequence they make up."""

    pairs: Sequence[tuple[int, int]]
    rate: float
    first_count: int
    second_count: int

    def mismatches(self) -> list[tuple[list[int], list[int]]]:
        """Stretches between matches: positions of the first and of the second sequence that have no partner."""
        gaps = []
        a = b = 0
        for i, j in [*self.pairs, (self.first_count, self.second_count)]:
            if i > a or j > b:
                gaps.append((list(range(a, i)), list(range(b, j))))
            a, b = i + 1, j + 1
        return gaps


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """The alignment of two sequences of keys; two empty sequences match at 1.

    The method is E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986, whose time is linear in the length
    and in the number of differences; where these are many, the table of R. Wagner and M. Fischer, 1974, over windows.
    Exact while edits are few or the rest fits in one window.
    """
    item_ids: dict[Hashable, int] = {}
    a = [item_ids.setdefault(key, len(item_ids)) for key in first]
    b = [item_ids.setdefault(key, len(item_ids)) for key in second]
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        matched, i, j = _advance(a, b, i, j)
        pairs += matched
    longest = max(len(a), len(b))
    return Alignment(pairs, len(pairs) / longest if longest else 1.0, len(a), len(b))


def _advance(a: list[int], b: list[int], i: int, j: int) -> tuple[list[tuple[int, int]], int, int]:
    """Matches from (i, j) on, up to the ends or until the edits are too many; and where that is."""
    n, m = len(a) - i, len(b) - j
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(_MAX_EDITS + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[i + x] == b[j + y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _matches(history, k, x, i, j), len(a), len(b)
    return _align_in_windows(a, b, i, j)


def _align_in_windows(a: list[int], b: list[int], i: int, j: int) -> tuple[list[tuple[int, int]], int, int]:
    """Matches in a window from (i, j) on, and where it ends: the first half of it, as the rest may match beyond."""
    ours, theirs = a[i : i + _WINDOW], b[j : j + _WINDOW]
    pairs = [(i + x, j + y) for x, y in _by_table(np.array(ours), np.array(theirs))]
    if i + len(ours) == len(a) and j + len(theirs) == len(b):
        return pairs, len(a), len(b)
    half = _WINDOW // 2
    kept = [(x, y) for x, y in pairs if x < i + half and y < j + half]
    if not kept:
        return [], min(i + half, len(a)), min(j + half, len(b))
    return kept, kept[-1][0] + 1, kept[-1][1] + 1


def _by_table(a: Ints, b: Ints) -> list[tuple[int, int]]:
    """The longest common subsequence of two short sequences, exactly: row by row of the table of its lengths."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int16)
    for row, value in enumerate(a):
        above = table[row]
        best = np.maximum(above[1:], np.where(b == value, above[:-1] + 1, 0))
        np.maximum.accumulate(best, out=table[row + 1, 1:])
    pairs: list[tuple[int, int]] = []
    x, y = len(a), len(b)
    while x and y:
        if table[x - 1, y] == table[x, y]:
            x -= 1
        elif table[x, y - 1] == table[x, y]:
            y -= 1
        else:
            x, y = x - 1, y - 1
            pairs.append((x, y))
    pairs.reverse()
    return pairs


def _matches(history: list[dict[int, int]], k: int, x: int, i: int, j: int) -> list[tuple[int, int]]:
    """Walks the edits back to the start and collects the diagonal stretches."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        start = reach[before] if down else reach[before] + 1
        pairs.extend((i + p, j + p - k) for p in range(x - 1, start - 1, -1))
        k, x = before, reach[before]
    pairs.reverse()
    return pairs


_MAX_SHOWN = 3
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class Matched:
    """An alignment of `what` (layers or kernels), with the words for each side's items."""

    what: str
    alignment: Alignment
    first: Sequence[str]
    second: Sequence[str]

    def require(self, min_rate: float, first: str, second: str) -> None:
        """XspError with the match rate and the first mismatches where fewer than `least` match."""
        if self.alignment.rate < min_rate:
            raise XspError(
                f"{self.what} of {first} and {second} match at {self.alignment.rate:.3f}, less than {min_rate:g}: "
                + self.differences(),
                advice="Take both runs of the same work with autotuning off, or accept less with --min-match",
            )

    def differences(self) -> str:
        """The first mismatches, in one line."""
        gaps = self.alignment.mismatches()
        shown = [self._difference(a, b) for a, b in gaps[:_MAX_SHOWN]]
        more = f"; and {len(gaps) - _MAX_SHOWN} more places" if len(gaps) > _MAX_SHOWN else ""
        return "; ".join(shown) + more

    def _difference(self, first: Sequence[int], second: Sequence[int]) -> str:
        index = first[0] if first else second[0]
        return f"at {index}: {_list_labels(self.first, first)} against {_list_labels(self.second, second)}"

    def finding(self, first: str, second: str) -> Finding:
        """The ledger's row: the match rate, and the first mismatches where there are any."""
        pairs, rate = len(self.alignment.pairs), self.alignment.rate
        longest = max(self.alignment.first_count, self.alignment.second_count)
        detail = f"{self.what} of {first} and {second} match at {rate:.3f} ({pairs} of {longest})"
        if pairs == longest:
            return Finding(LedgerKind(f"match_{self.what}"), detail, max(pairs, 1), Severity.INFO)
        return Finding(
            LedgerKind(f"match_{self.what}"),
            f"{detail}; {self.differences()}",
            longest - pairs,
            Severity.WARNING,
            advice="What has no counterpart keeps its own run's numbers and has no others",
        )


def _list_labels(labels: Sequence[str], indices: Sequence[int]) -> str:
    if not indices:
        return "nothing"
    shown = ", ".join(_short(labels[p]) for p in indices[:_MAX_SHOWN])
    return shown + (f" and {len(indices) - _MAX_SHOWN} more" if len(indices) > _MAX_SHOWN else "")


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else label[: _LONGEST_NAME - 3] + "..."


# Gives the layers of one run the identity they have in another.
_INSTANCE = r"_\d+$"
_IDENTITY = ("layer_index", "layer_name", "layer_type")


def layer_sequence(trace: Trace) -> pl.DataFrame:
    """One row a layer with own work, in order: layer_index, layer_name, layer_type, kind, shapes (of its first call).

    `kind` is the type as runs are compared by: that of the range `Linear_3` is `Linear`, as the module's of this name.
    """
    return (
        trace.scan("layers")
        .filter(pl.col("layer_index").is_not_null())
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .group_by(_IDENTITY)
        .agg(pl.col("shapes").drop_nulls().first())
        .with_columns(pl.col("layer_type").str.replace(_INSTANCE, "").alias("kind"))
        .sort("layer_index")
        .collect()
    )


def match_layers(reference: Trace, other: Trace) -> tuple[Matched, pl.DataFrame]:
    """How well the layers match by name, type and shapes, and the new identity of each of the other's layers.

    The frame has layer_index and new_index, new_name, new_type; a layer without a counterpart comes after all others
    under its own name. Shapes count only where both runs recorded them.
    """
    ours, theirs = layer_sequence(reference), layer_sequence(other)
    with_shapes = ours["shapes"].is_not_null().any() and theirs["shapes"].is_not_null().any()
    columns = ["layer_name", "kind", *(["shapes"] if with_shapes else [])]
    alignment = align(ours.select(columns).rows(), theirs.select(columns).rows())
    labels = [
        [f"{name} ({kind})" for name, kind in t.select("layer_name", "layer_type").rows()] for t in (ours, theirs)
    ]
    partner = {j: i for i, j in alignment.pairs}
    beyond = int(ours["layer_index"].max() or 0) + 1 if ours.height else 0  # type: ignore[arg-type]
    rows = []
    for j, (index, name, kind) in enumerate(theirs.select(_IDENTITY).iter_rows()):
        identity = ours.row(partner[j])[:3] if j in partner else (beyond + j, name, kind)
        rows.append((index, *identity))
    mapping = pl.DataFrame(
        rows,
        schema={
            "layer_index": pl.Int64,
            "new_index": pl.Int64,
            "new_name": pl.Categorical,
            "new_type": pl.Categorical,
        },
        orient="row",
    )
    return Matched("layers", alignment, labels[0], labels[1]), mapping


def with_identities(layers: pl.DataFrame, mapping: pl.DataFrame) -> pl.DataFrame:
    """The table `layers` with the identities of the mapping; calls without own work keep theirs."""
    new = pl.col("new_index").is_not_null()
    return (
        layers.join(mapping, on="layer_index", how="left", maintain_order="left")
        .with_columns(
            pl.col("new_index").alias("layer_index"),
            pl.when(new).then("new_name").otherwise("layer_name").alias("layer_name"),
            pl.when(new).then("new_type").otherwise("layer_type").alias("layer_type"),
        )
        .drop("new_index", "new_name", "new_type")
    )


# One spelling for a kernel's name, whichever profiler wrote it.


# Ties the kernels of one run to the same kernels of another by name, grid, block and order.


def kernel_work(trace: Trace) -> pl.DataFrame:
    """The kernels in launch order with `execution`: the same number for the same kernel of every step."""
    activities = with_shapes(trace, device_activities(trace))
    steps = steps_of(trace)
    if steps.is_empty():
        ordered = activities.sort("launch_ns", "start_ns", "span_id").with_row_index("execution")
        rows = ordered.with_columns(pl.lit(0, pl.Int64).alias("step"))
    else:
        rows = align_steps(activities.with_columns(shapes_of(trace, activities)), steps)
    return rows.filter(pl.col("kind").cast(pl.String) == "kernel").sort("run_id", "step", "launch_ns", "span_id")


def template(work: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the first of the steps that hold the most, of the first run."""
    if work.is_empty():
        return work
    counts = (
        work.group_by("run_id", "step").len().sort("run_id", pl.col("len"), "step", descending=[False, True, False])
    )
    return work.filter(pl.col("run_id") == counts["run_id"][0], pl.col("step") == counts["step"][0])


def match_kernels(ours: pl.DataFrame, theirs: pl.DataFrame) -> tuple[Matched, pl.DataFrame]:
    """How well the kernels match, and pairs of rows: `first` of ours, `second` of theirs.

    Where theirs is a whole multiple of ours (a profiler that saw several steps) each of ours has several partners.
    Names are compared whole, or by the function alone where that finds more: some profilers write no more.
    """
    repeats = max(round(theirs.height / ours.height), 1) if ours.height else 1
    alignment = max((_align(ours, theirs, repeats, spell) for spell in (normal_name, base_name)), key=lambda a: a.rate)
    labels = [_labels(ours) * repeats, _labels(theirs)]
    pairs = pl.DataFrame(alignment.pairs, schema={"first": pl.Int64, "second": pl.Int64}, orient="row")
    pairs = pairs.with_columns(pl.col("first") % max(ours.height, 1))
    return Matched("kernels", alignment, labels[0], labels[1]), pairs


def _align(ours: pl.DataFrame, theirs: pl.DataFrame, repeats: int, spell: Callable[[str], str]) -> Alignment:
    spelling = {name: spell(name) for name in {*ours["name"].cast(pl.String), *theirs["name"].cast(pl.String)}}
    return align(_keys(ours, spelling) * repeats, _keys(theirs, spelling))


def _keys(kernels: pl.DataFrame, spelling: dict[str, str]) -> list[Hashable]:
    names = [spelling[name] for name in kernels["name"].cast(pl.String)]
    return list(zip(names, kernels.select(AXES).rows(), strict=True))


def _labels(kernels: pl.DataFrame) -> list[str]:
    shapes = kernels.select(AXES).rows()
    names = kernels["name"].cast(pl.String).to_list()
    return [f"{name} grid {_size(s[:3])} block {_size(s[3:])}" for name, s in zip(names, shapes, strict=True)]


def _size(axes: tuple[int | None, ...]) -> str:
    return "x".join("?" if axis is None else str(axis) for axis in axes)


# Resolves the ambiguous parents of an asynchronous run from a serialised run of the same work.


@dataclass(frozen=True, slots=True)
class Resolved:
    """The asynchronous run's spans with the layers that the serialised run gives, and how well the two match."""

    spans: pl.DataFrame
    matched: Matched
    findings: Sequence[Finding]


def resolve_parents(free: tuple[Trace, pl.DataFrame], serialised: tuple[Trace, pl.DataFrame]) -> Resolved:
    """Each run comes with its table `layers` under common identities.

    Kernels that started from a host span with two possible parents get the layer that the same kernel (by name, grid,
    block and order) has in the serialised run, in their own step.
    """
    work, sure = kernel_work(free[0]), template(kernel_work(serialised[0]))
    step = template(work)
    matched, pairs = match_kernels(step, sure)
    spans = free[0].frame("spans")
    doubtful = _in_doubt(spans)
    index = _layer_index(serialised, sure["span_id"].gather(pairs["second"]))
    right = pl.DataFrame({"execution": step["execution"].gather(pairs["first"]), "layer_index": index})
    targets = work.filter(pl.Series(doubtful[work["span_id"].to_numpy()])).select(
        "execution", "span_id", "run_id", "step"
    )
    layer_of_execution = targets.join(right, on="execution", how="inner").drop_nulls("layer_index")
    calls = _calls(free[1], spans).unique(["run_id", "step", "layer_index"], keep="first", maintain_order=True)
    moved = layer_of_execution.join(calls, on=["run_id", "step", "layer_index"], how="inner", nulls_equal=True).select(
        "span_id", pl.col("call_id").alias("right_id")
    )
    changed = spans.join(moved, on="span_id", how="left", maintain_order="left").with_columns(
        pl.coalesce("right_id", "layer_id").alias("layer_id"),
        pl.when(pl.col("right_id").is_not_null()).then(pl.lit("layer", pl.Categorical)).otherwise("attribution")
        .alias("attribution"),
    )  # fmt: skip
    differs = int((changed["right_id"].is_not_null() & changed["right_id"].ne_missing(spans["layer_id"])).sum())
    return Resolved(changed.drop("right_id"), matched, _findings(len(moved), differs, len(targets)))


def _in_doubt(spans: pl.DataFrame) -> Bools:
    """Which spans have themselves, or above them, a span with two possible parents."""
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    ambiguous = spans["ambiguous"].fill_null(value=False).to_numpy()
    return np.asarray(innermost(parent, ambiguous) >= 0)


def _layer_index(run: tuple[Trace, pl.DataFrame], span_ids: pl.Series) -> pl.Series:
    layer = run[0].frame("spans")["layer_id"].gather(span_ids)
    calls = run[1].select(pl.col("span_id").alias("layer_id"), "layer_index")
    return pl.DataFrame({"layer_id": layer}).join(calls, on="layer_id", how="left", maintain_order="left")[
        "layer_index"
    ]


def _calls(layers: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    where = spans.select("span_id", "run_id", "step", "start_ns")
    calls = layers.filter(pl.col("layer_index").is_not_null()).join(where, on="span_id").sort("start_ns", "span_id")
    return calls.select("run_id", "step", "layer_index", pl.col("span_id").alias("call_id"))


def _findings(resolved_count: int, differs: int, doubtful: int) -> list[Finding]:
    detail = f"kernels with two possible parents got theirs from the serialised run; {differs} of them another one"
    left = "kernels with two possible parents have no counterpart in the serialised run and keep the later parent"
    return [
        Finding(LedgerKind.PARENT_RESOLVED, detail, resolved_count),
        Finding(LedgerKind.PARENT_UNRESOLVED, left, doubtful - resolved_count),
    ]
