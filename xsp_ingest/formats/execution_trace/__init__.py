"""PyTorch execution traces: shapes and callers of the operators of a torch.profiler trace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.execution_trace.nodes import Nodes
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["EXECUTION_TRACE"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"\d+\.\d+[^"\n]*"\s*,\s*"(?:pid|time|nodes)"\s*:')
_ENOUGH = 0.5  # of the numbered operators of a run must be in its execution trace


class _ExecutionTrace(Ingester):
    name: str = "execution_trace"
    title: str = (
        "PyTorch execution trace (ExecutionTraceObserver), with its torch.profiler trace: shapes and callers;"
        " seen: schema 1.1.1"
    )
    is_supplement: bool = True

    def sniff(self, probe: Probe) -> Match:
        """A JSON object that starts with the schema and the process of an execution trace."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """Never: the file has no times."""
        from xsp_ingest.formats.execution_trace.nodes import read_nodes

        del options
        read_nodes(path)  # a file that is damaged says so first
        raise XspError(
            "a PyTorch execution trace says what ran and on what, but not when",
            path=path,
            advice="Give it together with the torch.profiler trace of the same run, or give the folder that holds both",
        )

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with shapes, types and callers in the one whose operators have the same record function ids."""
        from xsp_ingest.formats.execution_trace.nodes import read_nodes

        nodes = read_nodes(path)
        fits = [_fit(run, nodes) for run in runs]
        best = max(fits, default=0.0)
        fitting = [index for index, fit in enumerate(fits) if fit == best]
        if best < _ENOUGH:
            raise XspError(
                "the execution trace is of none of the runs given with it: their record function ids differ",
                path=path,
                advice="Pass the observer to the profiler (execution_trace_observer=...) so that both are of one run",
            )
        if len(fitting) > 1:
            raise XspError(
                f"the execution trace fits {len(fitting)} of the runs alike",
                path=path,
                advice="Convert each rank with its own execution trace",
            )
        return [_join_nodes(run, nodes) if index == fitting[0] else run for index, run in enumerate(runs)]


def _fit(run: RawTrace, nodes: Nodes) -> float:
    """Share of the run's numbered operators that the nodes have under the same name; of another process, half of it."""
    operators = _numbered_operators(run)
    if operators.is_empty():
        return 0.0
    same = operators.join(nodes.table, on=["record_function_id", "name"], how="semi").height
    own = nodes.process_id is None or nodes.process_id in run.tables["spans"]["process_id"]
    return same / operators.height * (1.0 if own else 0.999)


def _numbered_operators(run: RawTrace) -> pl.DataFrame:
    """Operators with a record function id: row, record_function_id, name."""
    operators = run.tables["operators"].drop_nulls("record_function_id").select("row", "record_function_id")
    names = run.tables["spans"].select("row", pl.col("name").cast(pl.String))
    return operators.join(names, on="row", how="inner", maintain_order="left")


def _join_nodes(run: RawTrace, nodes: Nodes) -> RawTrace:
    joined = _numbered_operators(run).join(
        nodes.table, on=["record_function_id", "name"], how="inner", maintain_order="left"
    )
    rows = joined.select(pl.col("record_function_id").alias("caller"), pl.col("row").alias("called_by_row"))
    facts = joined.join(rows.unique("caller", keep="none"), on="caller", how="left", maintain_order="left").select(
        "row", "called_by_row", "input_shapes", "input_dtypes"
    )
    operators = run.tables["operators"].with_columns(pl.col("input_shapes", "input_dtypes").cast(pl.String))
    better = operators.join(facts, on="row", how="left", maintain_order="left", suffix="_traced").with_columns(
        pl.coalesce(name, f"{name}_traced") for name in ("called_by_row", "input_shapes", "input_dtypes")
    )
    detail = "operators whose shapes, types and callers the execution trace tells"
    finding = Finding(LedgerKind.EXECUTION_TRACE_JOINED, detail, joined.height)
    left = operators.height - operators["record_function_id"].null_count() - joined.height
    missing = Finding(LedgerKind.EXECUTION_TRACE_LACKS, count=left)
    tables = {**run.tables, "operators": better.select(operators.columns)}
    return replace(run, tables=tables, findings=(*run.findings, finding, missing))


EXECUTION_TRACE = _ExecutionTrace()
