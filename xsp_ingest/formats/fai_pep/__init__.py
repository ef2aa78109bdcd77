"""Net and operator delays as Facebook's AI-PEP measures them."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.fai_pep.delays import Delays
    from xsp_ingest.ingester import Options

__all__ = ["FAI_PEP"]

_LINE = re.compile(rb'(?:Caffe2|PyTorch)Observer \{[^\n]*"type"\s*:\s*"(?:NET|ID_\d+_)')
_REPORT = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"(?:data|meta)"\s*:\s*\{')
_ENTRY = re.compile(rb'"(?:NET|ID_\d+_[^"\n]*) latency"\s*:\s*\{')


class _FaiPep(Ingester):
    name: str = "fai_pep"
    title: str = (
        "AI-PEP (FAI-PEP): net and operator delays, lines of its observers or a report; by its source, none seen"
    )

    def sniff(self, probe: Probe) -> Match:
        """A line of an observer with a type, or an object of data and meta with a latency by type."""
        report = _REPORT.match(probe.text) and _ENTRY.search(probe.text)
        return Match.exact_if(_LINE.search(probe.text) or report)

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's only run; XspError where it holds both net and operators."""
        return self.only_run(path, options)

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """A run of the net's delays, and one of the operators', which were taken in other iterations."""
        from xsp_ingest.formats.fai_pep.delays import read_delays

        del options
        (path,) = paths
        delays = read_delays(path)
        both = bool(delays.net_ns and delays.operators_ns)
        runs = [_net(delays, role="model" if both else None)] if delays.net_ns else []
        runs += [_operators(delays, role="layers" if both else None)] if delays.operators_ns else []
        noted = (
            Finding(LedgerKind.BAD_LINE, "entries that are no delays", delays.bad),
            Finding(LedgerKind.SUMMARY_LEFT_OUT, "metrics other than latency", delays.other_metrics),
            Finding(
                LedgerKind.SUMMARY_LEFT_OUT,
                "delays of a control side, which is a comparison's other input: run the harness once a side",
                delays.control,
            ),
        )
        return [RawTrace(runs[0].tables, runs[0].facts, (*runs[0].findings, *noted)), *runs[1:]]


def _facts(delays: Delays, role: str | None) -> RunFacts:
    waits = True if role == "layers" else None  # an operator's delay is taken around its call alone
    return RunFacts(profiler="AI-PEP", framework=delays.framework, model=delays.model, role=role, serialised=waits)


def _net(delays: Delays, role: str | None) -> RawTrace:
    """A step an iteration, end to end."""
    durations = delays.net_ns
    spans = {
        "row": list(range(len(durations))),
        "level": [str(Level.MODEL)] * len(durations),
        "kind": [str(Kind.STEP)] * len(durations),
        "name": [f"iteration#{n}" for n in range(len(durations))],
        "start_ns": list(accumulate(durations[:-1], initial=0)),
        "duration_ns": durations,
        "process_id": [0] * len(durations),  # the file names neither process nor thread
        "thread_id": [0] * len(durations),
    }
    tables = {name: frame_of(name) for name in RAW_TABLES} | {"spans": frame_of("spans", spans)}
    return RawTrace(tables, _facts(delays, role), (_invented_starts(len(durations)),))


def _operators(delays: Delays, role: str | None) -> RawTrace:
    """A step an iteration, in which the operators stand end to end in order of their numbers."""
    spans: dict[str, list[object]] = {name: [] for name in ("row", "level", "kind", "name", "start_ns", "duration_ns")}
    layers: dict[str, list[object]] = {name: [] for name in ("row", "sequence_index", "layer_type")}
    ordered = sorted(delays.operators_ns)
    at = row = 0
    for number in range(max(map(len, delays.operators_ns.values()))):
        taken = [(op, values[number]) for op in ordered if number < len(values := delays.operators_ns[op])]
        total = sum(ns for _, ns in taken)
        entries = [(Level.MODEL, Kind.STEP, f"iteration#{number}", at, total)]
        starts = accumulate((ns for _, ns in taken), initial=at)
        entries += [
            (Level.LAYER, Kind.MODULE, op.label, start, ns) for (op, ns), start in zip(taken, starts, strict=False)
        ]
        for level, kind, name, start, ns in entries:
            for key, value in zip(spans, (row, str(level), str(kind), name, start, ns), strict=True):
                spans[key].append(value)
            row += 1
        for layer_row, (op, _) in enumerate(taken, start=row - len(taken)):
            for key, value in zip(layers, (layer_row, op.index, op.kind), strict=True):
                layers[key].append(value)
        at += total
    spans |= {"process_id": [0] * row, "thread_id": [0] * row}
    filled = {"spans": frame_of("spans", spans), "layers": frame_of("layers", layers)}
    return RawTrace(
        {name: frame_of(name) for name in RAW_TABLES} | filled, _facts(delays, role), (_invented_starts(row),)
    )


def _invented_starts(count: int) -> Finding:
    return Finding(LedgerKind.NO_TIMESTAMPS, "durations without times of their own; their starts are made up", count)


FAI_PEP = _FaiPep()
