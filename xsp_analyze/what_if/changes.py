"""Changes of a program as values that compose: what each does to the times of host and device, and to what waits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.classification import class_of_operator, precision_of
from xsp_analyze.frames.host_calls import COMPILATIONS, INPUT_CALLS, STREAM, names_like
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, known_peaks
from xsp_analyze.frames.operators.operator_calls import call_of_work
from xsp_analyze.frames.operators.operator_work import roofed_calls
from xsp_analyze.what_if.replay import replay
from xsp_analyze.what_if.threads import is_busy
from xsp_analyze.what_if.waits import Edge
from xsp_model import Kind, Level, Phase, XspError
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import coverage_before, merge
from xsp_model.columns.tree import innermost
from xsp_model.devices import spec_called
from xsp_model.errors import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_analyze.what_if.graph import TaskGraph
    from xsp_analyze.what_if.replay import Replay
    from xsp_model.columns.arrays import Bools, Floats, Ints, Positions

__all__ = ["SCALED", "Change", "Program", "Scope", "changed_replay", "changes_by_name", "changes_of"]

SCALED = ("class", "layer", "operator", "kernel", "collective", "range")
"""What can be scaled by name."""
_COLUMNS = {"class": "kernel_class", "kernel": "name", "collective": "collective"}  # of device work
_COMPUTE = ("matrix product", "convolution", "attention", "mixture of experts")
_PAGEABLE, _PINNED = "pageable", "pinned"
_GRAPH_GAP_NS = 1_000  # between kernels that one call replays
_NEVER_BINDS = -(1 << 60)
_ROOF = "roof"
_MAX_FACTOR = 1_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `what` is done (a key of CHANGES), to which part, by which factor; 0: it is gone."""

    what: str
    part: str = ""
    factor: float = 0.0

    def __str__(self) -> str:
        """The option that the command has for it."""
        if self.what == _ROOF:
            return f"--scale {self.part}={_ROOF}"
        part = f" {self.part}" if self.part else ""
        factor = f"{'=' if self.part else ' '}{self.factor:g}" if self.what in _FACTORS else ""
        return f"--{self.what}{part}{factor}"

    @classmethod
    def scale(cls, text: str) -> Change:
        """Of `class:attention=0.5`; XspError where it is none."""
        match = re.fullmatch(r"(\w+):(.+)=([^=]+)", text, re.DOTALL)
        if match is None or match[1] not in SCALED:
            kinds = ", ".join(SCALED)
            raise XspError(f"{text!r} scales nothing", advice=f"Write KIND:NAME=FACTOR, where KIND is one of {kinds}")
        part = f"{match[1]}:{match[2]}"
        return cls(_ROOF, part) if match[3] == _ROOF else cls("scale", part, checked_factor(match[3], text))


def checked_factor(text: Any, where: str) -> float:  # noqa: ANN401 (whatever people give)
    """A factor of time from 0 on; XspError for others."""
    try:
        factor = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 <= factor <= _MAX_FACTOR:
        raise XspError(
            f"{where!r} has no factor from 0 to {_MAX_FACTOR:,}",
            advice="Give how much of the time is left, as 0.5 for half of it",
        )
    return factor


@dataclass(slots=True)
class _Times:
    """What is left of the times of stretches of the host and of device work, and which edges are gone or short.

    `source` is where each edge begins.
    """

    host: Floats
    work: Floats
    gone: Bools
    short: Bools
    source: Positions


@dataclass(frozen=True, slots=True)
class Scope:
    """When, of each run, the steps ran that are changed: begins and ends, disjoint and in order."""

    intervals: Mapping[int, tuple[Ints, Ints]]

    def holds(self, run: Ints, time: Ints) -> Bools:
        """Which of these times of runs are of such a step."""
        inside = np.zeros(len(time), dtype=np.bool_)
        for each, (begin, end) in self.intervals.items():
            rows = np.flatnonzero(run == each)
            at = np.searchsorted(begin, time[rows], side="right") - 1
            inside[rows] = (at >= 0) & (time[rows] < end[np.maximum(at, 0)]) if len(begin) else False
        return inside

    def share(self, run: Ints, start: Ints, end: Ints) -> Floats:
        """How much of each interval of runs lies in such steps; of an empty one all or nothing."""
        inside = np.zeros(len(start), dtype=np.int64)
        for each, union in self.intervals.items():
            rows = np.flatnonzero(run == each)
            inside[rows] = coverage_before(union, end[rows]) - coverage_before(union, start[rows])
        at = self.holds(run, end).astype(np.float64)
        return np.asarray(np.divide(inside, end - start, out=at, where=end > start))


class Program:
    """What changes are applied to: a graph, with the spans and work that each of them is about, in some steps of it."""

    def __init__(self, view: TraceView, graph: TaskGraph, scope: Scope) -> None:
        self.view, self.graph, self.scope = view, graph, scope

    def times(self, changes: Sequence[Change]) -> _Times:
        """Times with all the changes, in whichever order they are given; as they were outside of the steps changed."""
        graph = self.graph
        times = _Times(
            np.ones(len(graph.host.start)), np.ones(graph.work.height),
            np.zeros(len(graph.source), dtype=np.bool_), np.zeros(len(graph.source), dtype=np.bool_), graph.source,
        )  # fmt: skip
        for change in sorted(changes, key=lambda one: (one.what, one.part, one.factor)):
            CHANGES[change.what](self, change, times)
        host, work, edge = self._in_scope
        times.host[~host], times.work[~work] = 1.0, 1.0
        times.gone &= edge
        times.short &= edge
        if times.source is not graph.source:
            times.source = np.where(edge, times.source, graph.source)
        return times

    def is_unchanged_by(self, change: Change) -> bool:
        """Whether nothing of what it is about is in these steps."""
        times = self.times([change])
        is_otherwise = (times.host != 1).any() or (times.work != 1).any() or times.gone.any() or times.short.any()
        is_otherwise = is_otherwise or not np.array_equal(times.source, self.graph.source)
        return not is_otherwise and change.factor != 1

    @cached_property
    def _in_scope(self) -> tuple[Bools, Bools, Bools]:
        """Which stretches of the host, work (by its launch) and edges (by where they lead) are of the steps changed."""
        graph = self.graph
        host = self.scope.holds(self._run_of_host, graph.host.start)
        launch = graph.work["call_start_ns"].fill_null(graph.work["start_ns"]).to_numpy()
        work = self.scope.holds(graph.work["run_id"].to_numpy(), launch)
        node = self.scope.holds(graph.run, graph.time_ns - 1)  # what ends as the next step begins is of this one
        node[graph.work_begin] = work
        return host, work, node[graph.target]

    @cached_property
    def _parent(self) -> Ints:
        return self.view.trace.scan("spans").select("parent_id").collect().to_series().fill_null(-1).to_numpy()

    def _inside(self, spans: pl.DataFrame) -> tuple[Bools, Bools]:
        """Stretches of the host, and device work, below any of these spans (span_id)."""
        mask = np.zeros(len(self._parent), dtype=np.bool_)
        mask[spans["span_id"].to_numpy()] = True
        below = innermost(self._parent, mask) >= 0
        ids = self.graph.threads.spans["span_id"].to_numpy()
        owner = self.graph.host.owner
        host = (owner >= 0) & below[ids[owner]] if len(ids) else owner >= 0
        return host, below[self.graph.work["span_id"].to_numpy()]

    @cached_property
    def busy(self) -> Bools:
        """Of each stretch whether it is in an operator or call."""
        busy, owner = is_busy(self.graph.threads), self.graph.host.owner
        return (owner >= 0) & busy[owner] if len(busy) else owner >= 0

    @cached_property
    def input(self) -> Bools:
        """Of each stretch whether the next batch is awaited in it."""
        return self._in_spans_like(INPUT_CALLS)

    def _in_spans_like(self, pattern: str) -> Bools:
        """Of each stretch whether it is in a span of such a name."""
        names = names_like(self.view.span_names, lambda name: name.str.contains(pattern))
        spans = self.graph.threads.spans
        return self._inside(spans.filter(spans["name"].is_in(names.implode())).select("span_id"))[0]

    def scale(self, change: Change, times: _Times) -> None:
        """A class, layer, operator, kernel, collective or range: its device work; without devices its host time."""
        kind, _, name = change.part.partition(":")
        host, work = self._selection(kind, name)
        if not host.any() and not work.any():
            raise XspError(f"the trace has no {kind} {name!r}{self._did_you_mean(kind, name)}")
        times.host[host] *= change.factor
        times.work[work] *= change.factor

    def to_roof(self, change: Change, times: _Times) -> None:
        """Device work of a name takes what its operators' shapes ask of the device, where that is known."""
        kind, _, name = change.part.partition(":")
        _, work = self._selection(kind, name)
        if not work.any():
            raise XspError(f"the trace has no device work of {kind} {name!r}{self._did_you_mean(kind, name)}")
        rows, factor = self._roofs
        chosen = work[rows]
        if not chosen.any():
            raise XspError(
                f"no roof is known of {kind} {name!r}: that takes shapes of operators and peak rates of the device",
                advice="Record shapes, name the device with --gpu, or give a factor",
            )
        times.work[rows[chosen]] *= factor[chosen]

    @cached_property
    def _roofs(self) -> tuple[Ints, Floats]:
        """Device work of calls with a roof, and what would be left of its time there; what is faster stays as it is."""
        calls, work = self.view.once(roofed_calls), self.view.device_work
        call = self.view.once(call_of_work)
        at_roof = pl.col("roof_ns") * pl.col("times") / pl.col("spent_ns")
        factor = calls.cases.select(at_roof.clip(upper_bound=1.0)).to_series().gather(calls.case_of)
        of_work = work.select("span_id", factor=factor.gather(nullable_index(call))).drop_nulls().filter(
            pl.col("factor").is_finite()
        )  # fmt: skip
        held = self.graph.work.select("span_id").with_row_index("row").join(of_work, on="span_id")
        return held["row"].to_numpy().astype(np.int64), held["factor"].to_numpy()

    def _selection(self, kind: str, name: str) -> tuple[Bools, Bools]:
        """Stretches of the host, and device work, of this kind and name; of what has device work only that."""
        work, spans = self.graph.work, self.graph.threads.spans
        column = _COLUMNS.get(kind)
        if column is not None and (work.height or kind != "class"):
            return np.zeros(len(self.graph.host.start), np.bool_), _like(work[column], name).to_numpy()
        if kind == "layer":
            names = ("layer_name", "layer_type", "path")
            rows = self.view.trace.scan("layers").select("span_id", *names).collect()
            fits = pl.DataFrame([_like(rows[each], name) for each in names])
            layers = rows.filter(fits.select(pl.any_horizontal(pl.all())).to_series())
            host, _ = self._inside(layers)
            below = work["layer_id"].is_in(layers["span_id"].implode()).fill_null(value=False).to_numpy()
        elif kind == "class":
            host, below = self._inside(spans.filter(_is_operator_of(spans, name)).select("span_id"))
        else:
            spans = spans.filter(pl.col("level") == str(Level.OPERATOR)) if kind == "operator" else spans
            host, below = self._inside(spans.filter(_like(spans["name"], name)).select("span_id"))
        on_device = bool(work.height) and kind != "range"
        return host & (not on_device), below & on_device

    def _did_you_mean(self, kind: str, name: str) -> str:
        column = _COLUMNS.get(kind)
        names = self.graph.work[column].drop_nulls().unique().cast(pl.String).sort().to_list() if column else []
        near = closest(name, names) or (names[:10] if kind != "kernel" else [])
        return f"; it has {', '.join(near)}" if near else ""

    def host(self, change: Change, times: _Times) -> None:
        """All that threads do, but for input, which a thread of its own may fetch as slowly."""
        times.host[~self.input] *= change.factor

    def python(self, change: Change, times: _Times) -> None:
        """What threads do outside of operators and calls."""
        times.host[~self.busy & ~self.input] *= change.factor

    def input_time(self, change: Change, times: _Times) -> None:
        """What is spent until the next batch is there."""
        times.host[self.input] *= change.factor

    def compilation(self, change: Change, times: _Times) -> None:
        """What is spent to compile, capture or load code."""
        times.host[self._in_spans_like(COMPILATIONS)] *= change.factor

    def communication(self, change: Change, times: _Times) -> None:
        """Kernels that communicate."""
        work = self._of_class("communication")
        times.work[work] *= change.factor

    def _of_class(self, name: str) -> Bools:
        return (self.graph.work["kernel_class"].cast(pl.String) == name).fill_null(value=False).to_numpy()

    def overlap(self, _: Change, times: _Times) -> None:
        """Nothing on a device waits for communication but what communicates; hosts and ends of jobs still do.

        What was behind it on a stream is then behind the last before it that does not communicate.
        """
        talks, graph = self._of_class("communication"), self.graph
        if not talks.any():
            return
        times.gone |= self._work_edges(talks, ~talks, (Edge.EVENT, Edge.SHARED))
        behind = self._work_edges(talks, ~talks, (Edge.STREAM,))
        ends = graph.target[graph.work_edge]
        work_of_begin = np.full(len(graph.time_ns), -1)
        work_of_begin[graph.work_begin] = np.arange(graph.work.height)
        before = self._last_on_stream(~talks & (graph.work_edge >= 0))[work_of_begin[graph.target]]
        has_other = behind & (before >= 0)
        times.gone |= behind & ~has_other
        times.source = np.where(has_other, ends[before], times.source).astype(graph.source.dtype)

    def _last_on_stream(self, chosen: Bools) -> Ints:
        """For each device activity the last of those chosen before it on its stream, -1: none."""
        work = self.graph.work.with_row_index("row").with_columns(chosen=pl.Series(chosen))
        row = pl.when("chosen").then(pl.col("row").cast(pl.Int64))
        ordered = work.sort(*STREAM, "start_ns", nulls_last=True).select(
            "row", before=row.forward_fill().shift().over(STREAM)
        )  # fmt: skip
        return ordered.sort("row")["before"].fill_null(-1).to_numpy()

    def _work_edges(self, before: Bools, after: Bools, kinds: Sequence[Edge]) -> Bools:
        """Edges of these kinds from the end of some work to the begin of other work."""
        graph = self.graph
        begins, ends = np.zeros(len(graph.time_ns), np.bool_), np.zeros(len(graph.time_ns), np.bool_)
        edges = graph.work_edge
        ends[graph.target[edges[before & (edges >= 0)]]] = True
        begins[graph.work_begin[after]] = True
        return np.isin(graph.kind, kinds) & ends[graph.source] & begins[graph.target]

    def balance(self, _: Change, times: _Times) -> None:
        """No rank waits for another: in a collective each goes on at once."""
        ranks = self.graph.kind == Edge.RANKS
        if not ranks.any():
            raise XspError("no rank waits for another here", advice="Give the traces of all ranks of a job together")
        times.gone |= ranks

    def no_sync(self, _: Change, times: _Times) -> None:
        """Calls that synchronise return at once."""
        times.gone |= self.graph.kind == Edge.SYNC

    def copies(self, change: Change, times: _Times) -> None:
        """Copies of pageable memory do not hold the host (async), and take what pinned memory takes (pinned)."""
        times.gone |= self.graph.kind == Edge.COPY
        if change.part == _PINNED and change.factor:
            times.work[self._copies()["row"].to_numpy()] *= change.factor
        elif change.part == _PINNED:
            rows, factor = self._pinned_copies()
            times.work[rows] *= factor

    @property
    def pageable_work(self) -> pl.DataFrame:
        """Rows of the graph's work that are copies of pageable memory."""
        return self.graph.work[self._copies()["row"]]

    def _copies(self, memory: str = _PAGEABLE) -> pl.DataFrame:
        """Copies from or to memory of a kind: row (of the work), bytes, copy_kind, rate."""
        columns = ("span_id", "bytes", "copy_kind", "source_kind", "destination_kind")
        copies = self.view.trace.scan("copies").select(columns).collect()
        rows = self.graph.work.select("span_id", "duration_ns").with_row_index("row").join(copies, on="span_id")
        ends = pl.concat_str(pl.col("source_kind", "destination_kind").cast(pl.String), ignore_nulls=True)
        rows = rows.filter(pl.col("duration_ns") > 0, pl.col("bytes") > 0).with_columns(
            rate=pl.col("bytes") / pl.col("duration_ns"), kinds=ends.str.to_lowercase()
        )
        return rows.filter(pl.col("kinds").str.contains(memory))

    def _pinned_copies(self) -> tuple[Ints, Floats]:
        """Pageable copies, and what of each one's time pinned memory would take, by rates of this trace."""
        pinned = self._copies(_PINNED).group_by("copy_kind").agg(pl.col("rate").max().alias("fast"))
        slow = self._copies().join(pinned, on="copy_kind")
        if slow.is_empty():
            raise XspError(
                "the trace has no copies of pinned memory to take their rate from",
                advice="Give `--copies async`, or scale the copies: --scale 'kernel:Memcpy HtoD=0.5'",
            )
        factor = slow.select((pl.col("rate") / pl.col("fast")).clip(upper_bound=1.0)).to_series().to_numpy()
        return slow["row"].to_numpy(), factor

    def fuse(self, _: Change, times: _Times) -> None:
        """Of neighbouring elementwise kernels of a stream only the longest is left, and of their launches the first."""
        work = self.graph.work
        is_one = (work["kernel_class"].cast(pl.String) == "elementwise") & (work["kind"] == str(Kind.KERNEL))
        rows = work.with_row_index("row").with_columns(one=is_one.fill_null(value=False))
        lane = ("run_id", "process_id", "device_id", "stream_id", "step")
        rows = rows.sort(*lane, "start_ns", nulls_last=True).with_columns(chain=pl.struct(*lane, "one").rle_id())
        longest = pl.col("duration_ns").arg_max() == pl.int_range(pl.len())
        rest = rows.filter("one").filter(~longest.over("chain"))["row"].to_numpy()
        times.work[rest] = 0.0
        calls = work[rest.tolist()].select(span_id="parent_id").drop_nulls()
        times.host[self._inside(calls)[0]] = 0.0

    def recompute(self, _: Change, times: _Times) -> None:
        """Nothing is computed again in the backward pass."""
        again = (self.graph.work["phase"].cast(pl.String) == str(Phase.RECOMPUTE)).fill_null(value=False)
        if not again.any():
            raise XspError("nothing is recomputed in this trace")
        times.work[again.to_numpy()] = 0.0
        phase = self.view.kernel_runs.scan("spans").filter(pl.col("phase").cast(pl.String) == str(Phase.RECOMPUTE))
        times.host[self._inside(phase.select("span_id").collect())[0]] = 0.0

    def graph_replay(self, change: Change, times: _Times) -> None:
        """Steps or layers are replayed as graphs: of each one launch is left, and its kernels follow on each other."""
        graph, spans = self.graph, self._spans_of_graphs(change.part)
        if spans.is_empty():
            raise XspError(
                f"the trace has no {change.part!r} to make a graph of", advice="Name steps, layers, or a layer"
            )
        every, owner = graph.threads.spans, graph.host.owner
        at = _intervals_around(spans, self._run_of_host, graph.host.start, graph.host.end)
        inside = (at >= 0) & ~self.input
        launching = every["span_id"].is_in(graph.work["parent_id"].drop_nulls().unique().implode()).to_numpy()
        launches = np.flatnonzero(inside & (owner >= 0) & launching[owner])
        kept = launches[np.unique(at[launches], return_index=True)[1]]
        inside[kept] = False
        times.host[inside] = 0.0
        launch = graph.work["call_start_ns"].fill_null(-1).to_numpy()
        held = _intervals_around(spans, graph.work["run_id"].to_numpy(), launch, launch) >= 0
        times.short |= self._work_edges(held, held, (Edge.STREAM,))

    def _spans_of_graphs(self, part: str) -> pl.DataFrame:
        """Steps, layers, or layers of a name, as spans of the host."""
        spans = self.graph.threads.spans
        if part == "steps":
            return spans.filter(pl.col("kind") == str(Kind.STEP))
        if part == "layers":
            return spans.filter(pl.col("kind") == str(Kind.MODULE))
        return (
            spans.filter(_like(spans["name"], part) & (spans["level"] == str(Level.LAYER))) if part else spans.clear()
        )

    @cached_property
    def _run_of_host(self) -> Ints:
        """Whose each stretch of the host is."""
        run_of_thread = self.graph.threads.keys["run_id"].to_numpy()
        return run_of_thread[self.graph.host.thread] if len(run_of_thread) else self.graph.host.thread

    def device(self, change: Change, times: _Times) -> None:
        """Another device: each kernel by the ratio of the peak rates of what bounds it; communication as it is."""
        there = {quantity: peak.value for quantity, peak in spec_called(change.part).peaks.items()}
        here = self.view.once(known_peaks)
        work = self.graph.work.select("name", "kernel_class").with_row_index("row")
        for (name, kind), rows in work.group_by("name", "kernel_class", maintain_order=True):
            if str(kind) != "communication":
                times.work[rows["row"].to_numpy()] *= _roof_ratio(str(name), str(kind), here, there)


def _intervals_around(spans: pl.DataFrame, run: Ints, start: Ints, end: Ints) -> Ints:
    """Which of the outermost of these spans, of all runs, was open from start to end in the same run; -1: none."""
    at, count = np.full(len(start), -1), 0
    for (each,), of_run in spans.group_by("run_id", maintain_order=True):
        rows = np.flatnonzero(run == each)
        first, last = merge(of_run["start_ns"].to_numpy(), of_run["end_ns"].to_numpy() - 1)  # one may begin as one ends
        index = np.searchsorted(first, start[rows], side="right") - 1
        inside = (index >= 0) & (end[rows] <= last[np.maximum(index, 0)] + 1)
        at[rows[inside]] = index[inside] + count
        count += len(first)
    return at


def _is_operator_of(spans: pl.DataFrame, kernel_class: str) -> pl.Series:
    """Which spans are operators of this class of work."""
    names = spans.filter(pl.col("level") == str(Level.OPERATOR))["name"].unique()
    is_class = [str(class_of_operator(str(each))) == kernel_class for each in names]
    return spans["name"].is_in(names.filter(pl.Series(is_class, dtype=pl.Boolean)).implode())


def _like(names: pl.Series, pattern: str) -> pl.Series:
    """Which of the names are this one, or have it as a pattern at their begin; each is looked at once."""
    distinct = names.unique().drop_nulls()
    texts = distinct.cast(pl.String)
    try:
        begins = texts.str.contains(rf"^(?:{pattern})")
    except pl.exceptions.ComputeError:  # brackets that close nothing: no pattern, but perhaps a name
        begins = texts.str.starts_with(pattern)
    return names.is_in(distinct.filter((texts == pattern) | begins).implode()).fill_null(value=False)


def _roof_ratio(name: str, kind: str, here: Mapping[str, float], there: Mapping[str, float]) -> float:
    """What is left of a kernel's time where the rate that bounds it is that of the other device."""
    precision = precision_of(name) or "fp32"
    rates = (f"{precision}_tensor", precision, "fp32", "fp16_tensor") if kind in _COMPUTE else (BANDWIDTH,)
    rate_of_both = next((rate for rate in rates if rate in here and rate in there), None)
    if rate_of_both is None:
        raise XspError(
            f"peak rates of both devices are needed: {rates[-1]} is not known of one of them",
            advice="Name the trace's own device with --gpu; `xsp devices` lists those that are known",
        )
    return here[rate_of_both] / there[rate_of_both]


CHANGES: Mapping[str, Callable[[Program, Change, _Times], None]] = {
    "scale": Program.scale,
    _ROOF: Program.to_roof,
    "graph": Program.graph_replay,
    "no-sync": Program.no_sync,
    "copies": Program.copies,
    "fuse": Program.fuse,
    "input": Program.input_time,
    "python": Program.python,
    "host": Program.host,
    "compilation": Program.compilation,
    "communication": Program.communication,
    "overlap": Program.overlap,
    "balance": Program.balance,
    "on": Program.device,
    "no-recompute": Program.recompute,
}
"""What can be changed, in the order in which the command lists it."""
_SWITCHES = ("no_sync", "fuse", "overlap", "balance", "no_recompute")
_FACTORS = ("scale", "input", "python", "host", "compilation", "communication")


def changed_replay(program: Program, fit: Ints, changes: Sequence[Change]) -> Replay:
    """The replay with these changes: what stretches of the host and work lose is taken off the edges that they are of.

    Of an edge that is shorter than its stretches (a wait, of which the rest is its work's) the part in proportion.
    """
    graph, times = program.graph, program.times(changes)
    weight = fit.copy()
    edge = graph.host_edge
    on_edge = np.flatnonzero(edge >= 0)
    lasted = (graph.host.end - graph.host.start)[on_edge].astype(np.float64)
    measured = np.bincount(edge[on_edge], weights=lasted, minlength=len(weight))
    saved = np.bincount(edge[on_edge], weights=lasted * (1.0 - times.host[on_edge]), minlength=len(weight))
    part = np.minimum(np.divide(fit, measured, out=np.zeros(len(weight)), where=measured > 0), 1.0)
    changed = saved != 0
    weight[changed] -= np.rint(saved * part)[changed].astype(np.int64)
    of_work = graph.work_edge[graph.work_edge >= 0]
    weight[of_work] = np.rint(fit[of_work] * times.work[graph.work_edge >= 0]).astype(np.int64)
    weight[times.short] = np.minimum(weight[times.short], _GRAPH_GAP_NS)
    target = graph.target
    left = np.bincount(target[~times.gone], minlength=len(graph.time_ns))
    weight[times.gone & (left[target] > 0)] = _NEVER_BINDS
    return replay(graph if times.source is graph.source else replace(graph, source=times.source), weight)


def changes_of(
    *,
    scale: str | Sequence[str] | None = (),
    graph: str | Sequence[str] | None = (),
    no_sync: bool = False,
    copies: str | None = None,
    fuse: bool = False,
    input: float | None = None,  # noqa: A002 (as the option is called)
    python: float | None = None,
    host: float | None = None,
    compilation: float | None = None,
    communication: float | None = None,
    overlap: bool = False,
    balance: bool = False,
    on: str | None = None,
    no_recompute: bool = False,
) -> list[Change]:
    """The changes that options ask for; XspError where they ask for none, or for what cannot be told."""
    if on is not None and host is None:
        raise XspError(
            "another device stands beside another host, and how much faster that is the trace does not say",
            advice="Give --host too: 1 where the host stays as it is",
        )
    if copies not in (None, "async", _PINNED):
        raise XspError(f"copies cannot be made {copies!r}", advice="Say async, or pinned")
    factors = {"input": input, "python": python, "host": host, "compilation": compilation}
    factors["communication"] = communication
    switches = {"no-sync": no_sync, "fuse": fuse, "overlap": overlap, "balance": balance}
    changes = [
        *(Change.scale(each) for each in _texts("scale", scale)),
        *(Change("graph", each) for each in _texts("graph", graph)),
        *(Change(name) for name, is_on in switches.items() if is_on),
        *([Change("copies", copies)] if copies else []),
        *(Change(name, "", checked_factor(each, f"--{name}")) for name, each in factors.items() if each is not None),
        *([Change("on", on)] if on else []),
        *([Change("no-recompute")] if no_recompute else []),
    ]
    if not changes:
        raise XspError("nothing is changed", advice="Say what to change: --scale class:attention=0.5, --host 0.5, ...")
    return changes


def _texts(option: str, value: object) -> Sequence[str]:
    """One text, or several; XspError for anything else."""
    texts = (value,) if isinstance(value, str) else () if value is None else value
    if isinstance(texts, (list, tuple)) and all(isinstance(each, str) for each in texts):
        return texts
    raise XspError(f"{option} is {value!r}, which is no text", advice=f'Give {option}=["..."]')


def changes_by_name(options: Mapping[str, Any]) -> list[Change]:
    """The changes of options by name; XspError for a name that none has."""
    names = signature(changes_of).parameters
    strange = next((name for name in options if name not in names), None)
    if strange is not None:
        near = closest(strange, list(names)) or list(names)
        raise XspError(f"{strange!r} changes nothing", advice=f"Did you mean {' or '.join(near)}?")
    for name, value in options.items():
        is_odd = name in _SWITCHES and not isinstance(value, bool)
        if is_odd or (name == "on" and not isinstance(value, (str, NoneType))):
            raise XspError(f"{name} cannot be {value!r}", advice="See docs/what-if.md for what it takes")
    return changes_of(**options)
