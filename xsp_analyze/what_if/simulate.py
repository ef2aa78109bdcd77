"""What changes would gain, each alone and together, with how far that may be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import mean_of
from xsp_analyze.frames.steps import StepMode
from xsp_analyze.what_if.changes import Program, Scope, changed_replay
from xsp_analyze.what_if.graph import GUESSED
from xsp_analyze.what_if.path import recorded_replay
from xsp_analyze.what_if.replay import fit, path_edges, replay
from xsp_analyze.what_if.waits import Edge
from xsp_model import XspError
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import coverage_before, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.what_if.changes import Change
    from xsp_analyze.what_if.graph import TaskGraph
    from xsp_analyze.what_if.replay import Replay
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["Confidence", "Gain", "Simulation", "simulation"]

_MAX_ERROR = 0.05  # of any step's period, by the law
_MAX_UNEXPLAINED = 0.2  # of the path
_MAX_QUIET = 0.2
_MAX_RANGE = 0.5  # of the gain
_QUIET_NS = 1_000_000
_LATE_NS = 100_000
_QUEUED_NS = 10_000


@dataclass(frozen=True, slots=True)
class Gain:
    """What changes together come to: the step then, what it is shorter by, and the least and most of that.

    The range is over graphs without edges that are guessed. `path` is what the job then waits for, in ns of a step.
    """

    changes: Sequence[Change]
    step_ns: float
    gain_ns: float
    low_ns: float
    high_ns: float
    path: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Confidence:
    """How well the replay by the law agrees with the trace, and what of the path nothing explains.

    `refusals` say why no gain can be told, `warnings` why it should be doubted.
    """

    mean_error: float
    worst_error: float
    quiet_share: float
    unexplained_share: float
    refusals: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass
class Simulation:
    """A trace to change: the replay that gives what was recorded, and the steps that gains are of."""

    view: StepView
    base: Replay
    _fits: dict[tuple[Edge, ...], tuple[Program, Ints]] = field(default_factory=dict)
    _gains: dict[tuple[Change, ...], float] = field(default_factory=dict)

    @property
    def graph(self) -> TaskGraph:
        """What waits for what."""
        return self.base.graph

    @property
    def program(self) -> Program:
        """What changes are applied to."""
        return self._fit_without(())[0]

    def _fit_without(self, without: tuple[Edge, ...]) -> tuple[Program, Ints]:
        """The program without some kinds of edges, and its weights."""
        if without not in self._fits:
            graph = self.graph.without(without)
            program = Program(self.view.of_trace, graph, self.scope)
            self._fits[without] = program, fit(graph) if without else self.base.weight
        return self._fits[without]

    @cached_property
    def _periods(self) -> pl.DataFrame:
        """The periods of the steps that gains are of, as they were: run_id, step, period_ns, start_ns."""
        periods = self.base.periods.with_columns(start_ns=self.graph.time_ns[self.graph.steps["node"].to_numpy()])
        chosen = periods.join(self.view.steps, on=["run_id", "step"], how="semi")
        return periods if self._is_whole or chosen.is_empty() else chosen

    @property
    def _is_whole(self) -> bool:
        return self.view.choice.mode is StepMode.ALL

    @cached_property
    def scope(self) -> Scope:
        """When the steps ran that changes are made in: of a mean those without ramp-up."""
        ends = pl.col("start_ns") + pl.col("period_ns")
        intervals = {}
        for run in self.graph.ends:
            rows = self._periods.filter(pl.col("run_id") == run).select("start_ns", ends.alias("end_ns"))
            intervals[run] = merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        return Scope(intervals)

    @cached_property
    def step_ns(self) -> float:
        """The mean period of the steps chosen; of a trace taken whole how long its job takes."""
        periods = self._periods
        if self._is_whole:
            periods = periods.group_by("run_id").agg(pl.col("period_ns").sum())
            return float(periods["period_ns"].to_numpy().max(initial=0))
        return mean_of(periods["period_ns"]) or 0.0

    def _shorter_ns(self, new: Replay) -> float:
        """By how much jobs end earlier, shared out among the steps changed; of a trace taken whole the longest job.

        Not by how much the steps begin earlier: where the host ceases to wait it only runs ahead.
        """
        if not self._is_whole:
            earlier = sum(int(self.base.time_ns[end] - new.time_ns[end]) for end in self.graph.ends.values())
            return earlier / max(self._periods.height, 1)
        begins = self._periods.group_by("run_id").agg(pl.col("start_ns").min())
        lasts = [float(new.time_ns[self.graph.ends[run]] - begin) for run, begin in begins.iter_rows()]
        return self.step_ns - max(lasts, default=0.0)

    def gain_ns(self, changes: Sequence[Change]) -> float:
        """What a step is shorter by with these changes together."""
        together = tuple(changes)
        if together not in self._gains:
            self._gains[together] = self._simulate(changes, ())[0]
        return self._gains[together]

    def gain(self, changes: Sequence[Change]) -> Gain:
        """What these changes come to, together."""
        main, new = self._simulate(changes, ())
        kinds = [kind for kind in GUESSED if (self.graph.kind == kind).any()]
        variants = [(kind,) for kind in kinds] + ([tuple(kinds)] if len(kinds) > 1 else [])
        gains = [main, *(self._simulate(changes, variant)[0] for variant in variants)]
        return Gain(changes, self.step_ns - main, main, min(gains), max(gains), self.path(new))

    def _simulate(self, changes: Sequence[Change], without: tuple[Edge, ...]) -> tuple[float, Replay]:
        program, weight = self._fit_without(without)
        new = changed_replay(program, weight, changes)
        return self._shorter_ns(new), new

    def path(self, replayed: Replay) -> dict[str, float]:
        """What the job waits for in the steps chosen, by what it is, in ns of a step, most first; over all runs."""
        graph = replayed.graph
        classes = graph.work["kernel_class"].cast(pl.String).fill_null("other")
        names = pl.Series([_NAMES.get(each, "") for each in Edge], dtype=pl.String)
        work_of = graph.work_of_edge
        parts = []
        for run in graph.ends:
            edges, before_ns = self._path_edges(replayed, run)
            source, target = graph.source[edges], graph.target[edges]
            share = self.scope.share(graph.run[target], graph.time_ns[source], graph.time_ns[target])
            share[graph.run[source] != graph.run[target]] = 0.0  # from rank to rank only clocks differ
            name = classes.gather(nullable_index(work_of[edges])).fill_null(names.gather(graph.kind[edges]))
            parts += [
                pl.DataFrame({"name": name, "ns": replayed.weight[edges] * share}),
                pl.DataFrame({"name": ["not recorded"], "ns": [float(before_ns)]}),
            ]
        sums = pl.concat(parts).group_by("name").agg(pl.col("ns").sum() / self._step_count)
        return dict(sums.filter(pl.col("ns").round() != 0).sort("ns", "name", descending=[True, False]).iter_rows())

    @property
    def _step_count(self) -> int:
        return max(len(self.graph.ends) if self._is_whole else self._periods.height, 1)

    def _path_edges(self, replayed: Replay, run: int) -> tuple[Positions, int]:
        """The path's edges in order, and how much of the time of the steps chosen is before the first of them."""
        graph = replayed.graph
        edges = path_edges(replayed, run)
        first = graph.source[edges[:1]] if len(edges) else np.array([graph.ends[run]])
        before = coverage_before(self.scope.intervals[int(graph.run[first[0]])], graph.time_ns[first])
        return edges, int(before[0])

    @cached_property
    def confidence(self) -> Confidence:
        """How far gains may be trusted."""
        law = replay(self.graph, self.graph.weight).periods["period_ns"].to_numpy()
        measured = self.base.periods["period_ns"].to_numpy()
        error = np.abs(law - measured) / np.maximum(measured, 1)
        quiet, unexplained = self._doubtful_shares()
        worst = float(error.max(initial=0.0))
        refusals, warnings = [], []
        if worst > _MAX_ERROR:
            refusals.append(
                f"The replay of what was recorded is off by more than {_MAX_ERROR:.0%} of a step: something is waited"
                " for that the trace does not tell."
            )
        if unexplained > _MAX_UNEXPLAINED:
            refusals.append(
                f"For more than {_MAX_UNEXPLAINED:.0%} of the critical path the trace does not tell what was waited"
                " for: device work has no launch or begins late for no cause, or the path begins within a step."
            )
        if self.graph.work.height and self.graph.work["call_start_ns"].null_count() == self.graph.work.height:
            refusals.append("The trace has no launches: what device work waited for is not known.")
        if quiet > _MAX_QUIET:
            warnings.append(
                f"On more than {_MAX_QUIET:.0%} of the critical path no span was open for a millisecond: what was"
                " waited for then is taken for work of the host."
            )
        return Confidence(float(error.mean()) if len(error) else 0.0, worst, quiet, unexplained, refusals, warnings)

    def _doubtful_shares(self) -> tuple[float, float]:
        """What of the path is long quiet of a thread, and what nothing explains.

        That is before anything known, or device work without launch or late for no cause.
        """
        graph, program = self.graph, self.program
        on_path = np.zeros(len(graph.source), dtype=np.bool_)
        doubtful = 0
        for run in graph.ends:
            edges, before_ns = self._path_edges(self.base, run)
            on_path[edges] = True
            doubtful += before_ns
        weight, kind = self.base.weight, graph.kind
        total = max(int(weight[on_path].sum()) + doubtful, 1)
        lasted = graph.host.end - graph.host.start
        is_quiet = (lasted >= _QUIET_NS) & ~program.busy & ~program.input & (graph.host_edge >= 0)
        is_quiet[is_quiet] = on_path[graph.host_edge[is_quiet]]
        late = on_path & np.isin(kind, (Edge.LAUNCH, Edge.STREAM, Edge.EVENT, Edge.SHARED)) & (weight > _LATE_NS)
        unlaunched = graph.work["call_start_ns"].is_null().to_numpy() & (graph.work_edge >= 0)
        unlaunched &= ~self._is_queued()
        unlaunched[unlaunched] = on_path[graph.work_edge[unlaunched]]
        doubtful += int(weight[late].sum()) + int(weight[graph.work_edge[unlaunched]].sum())
        return float(lasted[is_quiet].sum() / total), doubtful / total

    def _is_queued(self) -> Bools:
        """Which work began as that before it on its stream ended: it had been launched, though nobody tells when."""
        graph, binding = self.graph, self.base.binding[self.graph.work_begin]
        is_behind = (binding >= 0) & (graph.kind[binding] == Edge.STREAM)
        return np.asarray(is_behind & (self.base.weight[binding] <= _QUEUED_NS))

    def caveats(self, gain: Gain) -> Sequence[str]:
        """Why this gain should be doubted, and which of its changes are none."""
        program = self.program
        caveats = [
            f"{each} changes nothing: the steps have none of what it is about."
            for each in gain.changes
            if program.is_unchanged_by(each)
        ]
        spread = gain.high_ns - gain.low_ns
        if spread > _MAX_RANGE * abs(gain.gain_ns) and spread >= 1:
            caveats.append("Without what is guessed of who waits for whom the gain is another by more than half of it.")
        return [*self.confidence.warnings, *caveats]


_NAMES = {
    Edge.HOST: "host", Edge.LAUNCH: "launch latency", Edge.STREAM: "device gap", Edge.EVENT: "device gap",
    Edge.SHARED: "device gap", Edge.SYNC: "synchronisation", Edge.COPY: "synchronisation", Edge.FREE: "synchronisation",
    Edge.QUEUE: "synchronisation", Edge.HAND_OVER: "hand-over", Edge.BACKWARD: "hand-over",
    Edge.RANKS: "other ranks", Edge.WORK: "other ranks",
}  # fmt: skip


def simulation(view: StepView) -> Simulation:
    """The trace to change, made once for a view; XspError where it has nothing that could be."""
    made = view.once(_make)
    if not made.graph.ends:
        raise XspError("the trace has no spans of host threads, which would tell what its work waited for")
    return made


def _make(view: StepView) -> Simulation:
    return Simulation(view, view.of_trace.once(recorded_replay))
