"""Device graphs whose capture was recorded: the launches between the calls that begin and end it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.forest import at_spans
from xsp_ingest.link.spans import innermost, matches
from xsp_model import Kind, Level
from xsp_model.columns.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Ints, Positions

__all__ = [
    "COPY",
    "FILL",
    "UNKNOWN",
    "CapturedGraph",
    "KernelNumbers",
    "capture_windows",
    "captured_graphs",
    "expected_tokens",
    "holds_capture",
    "is_of_the_process",
    "replay_tokens",
]

UNKNOWN, COPY, FILL = -1, -2, -3
"""Tokens of work that is no kernel of a known name: a kernel of an unknown one, a copy, a memset."""
_BEGIN = r"(?i)^(cuda|cu|hip)StreamBeginCapture"
_END = r"(?i)^(cuda|cu|hip)StreamEndCapture"
_KERNEL = r"(?i)^(cuda|cu|hip)(Ext)?(Module)?Launch(Cooperative)?Kernel"
_COPY_CALL = r"(?i)^(cuda|cu|hip)Memcpy"
_FILL_CALL = r"(?i)^(cuda|cu|hip)Memset"
_COPY_KERNEL = r"^__amd_rocclr_copyBuffer"  # as which ROCm runs the copies and memsets of a graph
_FILL_KERNEL = r"^__amd_rocclr_fillBuffer"


class KernelNumbers:
    """A number for each name of a kernel, the same in every run."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, names: pl.Series) -> Ints:
        """The numbers of these names, UNKNOWN for null; looks at each distinct one once."""
        distinct = names.unique().drop_nulls()
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in distinct.cast(pl.String)]
        table = pl.DataFrame({"name": distinct, "number": pl.Series(numbers, dtype=pl.Int64)})
        joined = names.to_frame("name").join(table, on="name", how="left", maintain_order="left")
        return joined["number"].fill_null(UNKNOWN).to_numpy()

    def names(self) -> Sequence[str]:
        """The names by their numbers."""
        return list(self._numbers)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """One graph of the run `run`: positions of its launches, in order, with what each was of."""

    run: int
    begin: int
    launches: Positions
    tokens: Ints

    @property
    def is_named(self) -> bool:
        """Whether the launches say of all kernels which they are."""
        return bool((self.tokens != UNKNOWN).all())


def holds_capture(raw: RawTrace) -> bool:
    """Whether a graph was captured while the run was recorded."""
    return bool(matches(raw.tables["spans"]["name"], _BEGIN).any())


def captured_graphs(run: int, raw: RawTrace, forest: Forest, numbers: KernelNumbers) -> list[CapturedGraph]:
    """The graphs captured in a run; those in which nothing was launched are none."""
    begins = matches(forest.spans["name"], _BEGIN)
    if not begins.any():
        return []
    at, tokens = _launches(raw, forest, numbers)
    start = forest.spans["start_ns"].to_numpy()
    thread, process = _threads(forest), forest.spans["process_id"].to_numpy()
    windows = capture_windows(forest)
    graphs = []
    for begin, end in windows:
        rows = np.arange(*np.searchsorted(start[at], (start[begin], start[end])))
        of_all = is_of_the_process(forest, (begin, end), windows)
        inside = rows[process[at[rows]] == process[begin] if of_all else thread[at[rows]] == thread[begin]]
        if len(inside):
            graphs.append(CapturedGraph(run, begin, at[inside], tokens[inside]))
    return graphs


def capture_windows(forest: Forest) -> list[tuple[int, int]]:
    """The calls that begin and end each capture, in order; one that never ended on its thread is none."""
    begins = matches(forest.spans["name"], _BEGIN)
    marks = np.flatnonzero(begins | matches(forest.spans["name"], _END))
    thread = _threads(forest)[marks]
    return sorted(
        (int(begin), int(end))
        for each in np.unique(thread)
        for begin, end in pairwise(marks[thread == each])
        if begins[begin] and not begins[end]
    )


def is_of_the_process(forest: Forest, window: tuple[int, int], windows: Sequence[tuple[int, int]]) -> bool:
    """Whether a capture holds what any thread of its process launches meanwhile, as a backward pass does from its own.

    Launches that are captured are told from others by having no work in the trace, so only where work is recorded, and
    only where no other thread of the process captures at the same time.
    """
    if not forest.is_level(Level.KERNEL).any():
        return False
    begin, end = window
    start, process = forest.spans["start_ns"].to_numpy(), forest.spans["process_id"].to_numpy()
    others, ends = np.array(windows).T
    beside = (start[others] < start[end]) & (start[begin] < start[ends]) & (process[others] == process[begin])
    return int(beside.sum()) == 1  # itself


def _threads(forest: Forest) -> NDArray[np.uint64]:
    """A number for each span's process and thread."""
    return forest.spans.select("process_id", "thread_id").hash_rows().to_numpy()


def _launches(raw: RawTrace, forest: Forest, numbers: KernelNumbers) -> tuple[Positions, Ints]:
    """Calls that put work into a graph, in order: positions and tokens.

    A call with work of its own in the trace ran at once, and of calls in each other the outermost is the launch.
    """
    name = forest.spans["name"]
    kernel, copy, fill = (matches(name, pattern) for pattern in (_KERNEL, _COPY_CALL, _FILL_CALL))
    launch = (kernel | copy | fill) & forest.is_level(Level.RUNTIME) & forest.is_kind(Kind.CALL)
    outer = forest.parent[launch]
    launch[np.flatnonzero(launch)[(outer >= 0) & launch[outer]]] = False
    issuers = forest.parent[forest.is_level(Level.KERNEL)]
    launch[issuers[issuers >= 0]] = False
    at = np.flatnonzero(launch)
    facts = at_spans(forest.spans, raw.tables["launches"])
    fact = lookup(facts["at"].to_numpy(), at)
    has_fact = fact >= 0
    tokens = np.where(copy[at], COPY, np.where(fill[at], FILL, UNKNOWN)).astype(np.int64)
    if has_fact.any():
        named = numbers.of(facts["kernel_name"].gather(fact[has_fact]))
        tokens[has_fact] = np.where(kernel[at[has_fact]], named, tokens[has_fact])
    return at, tokens


def replay_tokens(forest: Forest, at: Positions, numbers: KernelNumbers) -> Ints:
    """The tokens of replayed device work."""
    name = forest.spans["name"].gather(at)
    tokens = numbers.of(name)
    copies = forest.is_kind(Kind.MEMCPY)[at] | matches(name, _COPY_KERNEL)
    fills = forest.is_kind(Kind.MEMSET)[at] | matches(name, _FILL_KERNEL)
    return np.where(copies, COPY, np.where(fills, FILL, tokens))


# Which kernels launches are of that do not say it: by what the same operator ran where it was not captured.

_KEY = ("operator", "shapes", "nth")
_GENERATED = "triton_"  # Inductor names the operator of a kernel after the kernel


def expected_tokens(
    graphs: Sequence[CapturedGraph], forests: Sequence[Forest], runs: Sequence[int], numbers: KernelNumbers
) -> list[Ints]:
    """The tokens of each graph, with those of unnamed launches where these runs show what the operator launches.

    The n-th launch of a call of an operator, with inputs of these shapes, is of one kernel wherever it was seen.
    """
    seen = pl.concat([_launched_kernels(forests[run], numbers) for run in runs])
    certain = seen.group_by(_KEY).agg(pl.col("token").first(), pl.col("token").n_unique().alias("tokens"))
    unique = certain.filter(pl.col("tokens") == 1).drop("tokens")
    return [_complete_tokens(graph, forests[graph.run], unique, numbers) for graph in graphs]


def _launched_kernels(forest: Forest, numbers: KernelNumbers) -> pl.DataFrame:
    """Kernels that were launched one by one, by operator: the columns of _KEY and the token."""
    at = np.flatnonzero(forest.is_kind(Kind.KERNEL) & ~forest.replayed & (forest.parent >= 0))
    launch = forest.parent[at]
    order = np.argsort(launch, kind="stable")
    tokens = numbers.of(forest.spans["name"].gather(at[order]))
    return _of_operators(forest, launch[order]).with_columns(pl.Series("token", tokens)).drop_nulls("operator")


def _of_operators(forest: Forest, launches: Positions) -> pl.DataFrame:
    """For launches in order: their operator, its shapes, and which of its launches each is."""
    operator = innermost(forest.parent, forest.is_level(Level.OPERATOR))[launches]
    fact = lookup(forest.operators["at"].to_numpy(), operator)
    return pl.DataFrame(
        {
            "at": operator,
            "operator": forest.spans["name"].gather(nullable_index(operator)).cast(pl.String),
            "shapes": forest.operators["input_shapes"].gather(nullable_index(fact)).cast(pl.String).fill_null(""),
        }
    ).select("operator", "shapes", pl.int_range(pl.len()).over("at").alias("nth"))


def _complete_tokens(graph: CapturedGraph, forest: Forest, launched: pl.DataFrame, numbers: KernelNumbers) -> Ints:
    if graph.is_named:
        return graph.tokens
    is_kernel = graph.tokens >= UNKNOWN
    of_operators = _of_operators(forest, graph.launches[is_kernel])
    joined = of_operators.join(launched, on=list(_KEY), how="left", maintain_order="left")
    generated = of_operators["operator"].str.starts_with(_GENERATED).fill_null(value=False)
    own = of_operators.select(pl.when(generated).then("operator")).to_series()
    tokens = np.where(generated.to_numpy(), numbers.of(own), joined["token"].fill_null(UNKNOWN).to_numpy())
    out = graph.tokens.copy()
    out[is_kernel] = np.where(out[is_kernel] == UNKNOWN, tokens, out[is_kernel])
    return out
