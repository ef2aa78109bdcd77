"""What changes would gain, each alone and together, with how far that may be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import mean_of
from xsp_analyze.frames.steps import StepMode
from xsp_analyze.what_if.changes import Program, weights_with
from xsp_analyze.what_if.graph import GUESSED
from xsp_analyze.what_if.path import recorded_replay
from xsp_analyze.what_if.replay import fit, path_edges, replay
from xsp_analyze.what_if.waits import Edge
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.what_if.changes import Change
    from xsp_analyze.what_if.graph import TaskGraph
    from xsp_analyze.what_if.replay import Replay
    from xsp_model.columns.arrays import Ints

__all__ = ["Confidence", "Gain", "Simulation", "simulation"]

_MAX_ERROR = 0.05  # of any step's period, by the law
_MAX_UNEXPLAINED = 0.2  # of the path
_MAX_QUIET = 0.2
_MAX_RANGE = 0.5  # of the gain
_QUIET_NS = 1_000_000
_LATE_NS = 100_000


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

    @property
    def graph(self) -> TaskGraph:
        """What waits for what."""
        return self.base.graph

    def _fit_without(self, without: tuple[Edge, ...]) -> tuple[Program, Ints]:
        """The program without some kinds of edges, and its weights."""
        if without not in self._fits:
            graph = self.graph.without(without)
            self._fits[without] = Program(self.view.of_trace, graph), fit(graph) if without else self.base.weight
        return self._fits[without]

    @property
    def step_ns(self) -> float:
        """The mean period of the steps chosen; of a trace taken whole how long its job takes."""
        return self.mean_period_ns(self.base)

    def mean_period_ns(self, replayed: Replay) -> float:
        """The same of a replay."""
        periods = replayed.periods
        if self.view.choice.mode is StepMode.ALL:
            return float(
                periods.group_by("run_id").agg(pl.col("period_ns").sum())["period_ns"].to_numpy().max(initial=0)
            )
        chosen = periods.join(self.view.steps, on=["run_id", "step"], how="semi")
        return mean_of((periods if chosen.is_empty() else chosen)["period_ns"]) or 0.0

    def gain_ns(self, changes: Sequence[Change]) -> float:
        """What a step is shorter by with these changes together."""
        return self._simulate(changes, ())[0]

    def gain(self, changes: Sequence[Change]) -> Gain:
        """What these changes come to, together."""
        main, new = self._simulate(changes, ())
        kinds = [kind for kind in GUESSED if (self.graph.kind == kind).any()]
        variants = [(kind,) for kind in kinds] + ([tuple(kinds)] if len(kinds) > 1 else [])
        gains = [main, *(self._simulate(changes, variant)[0] for variant in variants)]
        return Gain(changes, self.mean_period_ns(new), main, min(gains), max(gains), self.path(new))

    def _simulate(self, changes: Sequence[Change], without: tuple[Edge, ...]) -> tuple[float, Replay]:
        program, weight = self._fit_without(without)
        new = replay(program.graph, weights_with(program, weight, changes))
        return self.step_ns - self.mean_period_ns(new), new

    def path(self, replayed: Replay) -> dict[str, float]:
        """What the job waits for, by what it is, in ns of a step, most first; over all runs and steps."""
        graph = replayed.graph
        sums: dict[str, float] = {}
        classes = graph.work["kernel_class"].cast(pl.String).fill_null("other") if graph.work.height else None
        work_of = graph.work_of_edge
        for run in graph.ends:
            edges = path_edges(replayed, run)
            kind, time = graph.kind[edges], replayed.weight[edges]
            for each, name in _NAMES.items():
                sums[name] = sums.get(name, 0.0) + float(time[kind == each].sum())
            of_work = work_of[edges[kind == Edge.WORK]]
            if classes is not None:
                by_class = pl.DataFrame({"name": classes.gather(of_work), "ns": time[kind == Edge.WORK]})
                for name, total in by_class.group_by("name").agg(pl.col("ns").sum()).iter_rows():
                    sums[name] = sums.get(name, 0.0) + float(total)
        steps = max(graph.steps.height, 1)
        named = [(name, time / steps) for name, time in sums.items() if round(time)]
        return dict(sorted(named, key=lambda one: (-one[1], one[0])))

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
                f"For more than {_MAX_UNEXPLAINED:.0%} of the critical path device work has no launch, or begins late"
                " for no cause that the trace tells."
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
        """What of the path is long quiet of a thread, and what is device work without launch or late for no cause."""
        graph, program = self.graph, self._fit_without(())[0]
        on_path = np.zeros(len(graph.source), dtype=np.bool_)
        for run in graph.ends:
            on_path[path_edges(self.base, run)] = True
        weight, kind = self.base.weight, graph.kind
        total = max(int(weight[on_path].sum()), 1)
        lasted = graph.host.end - graph.host.start
        is_quiet = (lasted >= _QUIET_NS) & ~program.busy & ~program.input & (graph.host_edge >= 0)
        is_quiet[is_quiet] = on_path[graph.host_edge[is_quiet]]
        late = on_path & np.isin(kind, (Edge.LAUNCH, Edge.STREAM, Edge.EVENT, Edge.SHARED)) & (weight > _LATE_NS)
        unlaunched = graph.work["call_start_ns"].is_null().to_numpy() & (graph.work_edge >= 0)
        unlaunched[unlaunched] = on_path[graph.work_edge[unlaunched]]
        doubtful = int(weight[late].sum()) + int(weight[graph.work_edge[unlaunched]].sum())
        return float(lasted[is_quiet].sum() / total), doubtful / total

    def caveats(self, gain: Gain) -> Sequence[str]:
        """Why this gain should be doubted."""
        spread = gain.high_ns - gain.low_ns
        if spread <= _MAX_RANGE * abs(gain.gain_ns) or spread < 1:
            return self.confidence.warnings
        sentence = "Without what is guessed of who waits for whom the gain is another by more than half of it."
        return [*self.confidence.warnings, sentence]


_NAMES = {
    Edge.HOST: "host", Edge.LAUNCH: "launch latency", Edge.STREAM: "device gap", Edge.EVENT: "device gap",
    Edge.SHARED: "device gap", Edge.SYNC: "synchronisation", Edge.COPY: "synchronisation", Edge.FREE: "synchronisation",
    Edge.QUEUE: "synchronisation", Edge.HAND_OVER: "hand-over", Edge.BACKWARD: "hand-over",
}  # fmt: skip


def simulation(view: StepView) -> Simulation:
    """The trace to change, made once for a view; XspError where it has nothing that could be."""
    made = view.once(_make)
    if not made.graph.ends:
        raise XspError("the trace has no spans of host threads, which would tell what its work waited for")
    return made


def _make(view: StepView) -> Simulation:
    return Simulation(view, view.of_trace.once(recorded_replay))
