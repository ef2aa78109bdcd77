"""What stands in an answer beside its rows: what the numbers cover, what was lost, and the head of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from xsp.agents.paging import plain_sentences
from xsp_analyze.compare.comparison import Comparison
from xsp_analyze.core import Column, Result
from xsp_analyze.frames import coverage
from xsp_analyze.pages.compare.files import document
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.trace.step_view import StepView
from xsp_model import Severity, XspError
from xsp_model.errors import closest

__all__ = ["brief_contents", "comparison_head", "comparison_rows", "coverage_of", "select_columns", "units"]

_COVERS = ("steps", "step_count", "serving_phase", "layer_source", "layer_coverage", "model_latency_basis",
           "layer_latency_basis", "layer_latency_basis_observed", "over_runs", "taken_from")  # fmt: skip
_ABSENT_SAYS_NOTHING = ("serving_phase", "over_runs", "taken_from")
_ON_LAYERS = ("layer_coverage", "layer_latency_basis", "layer_latency_basis_observed")
_WHERE_TIME_WENT = tuple(str(kind) for kind in coverage.ATTRIBUTIONS.values())
_MAX_LEDGER = 10
_MAX_RUNS = 8
_MAX_PARTS = 8
_OF_RUN = ("run_id", "source_path", "source_bytes", "format", "profiler", "framework", "rank", "world_size",
           "layer_source")  # fmt: skip
_OF_COMPARISON = ("comparable", "same_content", "reasons", "per", "match", "statistics", "model")
_OF_ROW = ("level", "name", "change", "after_name", "before_ns", "after_ns", "difference_ns", "ratio", "low", "high",
           "significant", "conclusion", "before_count", "after_count", "layer_index", "path", "kernel")  # fmt: skip
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def coverage_of(frames: StepView, result: Result | None = None, *, notes: bool = False) -> dict[str, object]:
    """What the numbers are of, and the ledger, the worst first, to so many rows; of all layers without a result.

    Of what is only to note, device time by where it went is there, and the rest with `notes`.
    """
    provenance = coverage.provenance(frames) if result is None else result.provenance
    ledger = (coverage.ledger(frames) if result is None else result.ledger).to_dicts()
    ledger.sort(key=lambda row: _SEVERITIES.index(Severity(row["severity"])))
    shown = [row for row in ledger if notes or row["severity"] != Severity.INFO or row["kind"] in _WHERE_TIME_WENT]
    on_layers = result is None or result.analysis.about_layers
    covers = {key: provenance[key] for key in _COVERS if not _is_silent(key, provenance[key], on_layers=on_layers)}
    entries = [_entry(row) for row in shown[:_MAX_LEDGER]]
    left_out = len(ledger) - len(entries)
    beside: dict[str, object] = {"covers": covers, "ledger": entries}
    return {**beside, "ledger_left_out": left_out} if left_out else beside


def _is_silent(key: str, value: object, *, on_layers: bool) -> bool:
    """Whether that there is no value says nothing: a table that is not on layers does not ask how these were taken."""
    return value is None and (key in _ABSENT_SAYS_NOTHING or (not on_layers and key in _ON_LAYERS))


def _entry(row: Mapping[str, Any]) -> dict[str, object]:
    detail, advice = plain_sentences([str(row["detail"]), str(row["advice"] or "")])
    entry = {key: row[key] for key in ("severity", "kind", "count", "duration_ns")} | {"detail": detail}
    return {**entry, "advice": advice} if advice else entry


def select_columns(table: pl.DataFrame, columns: Sequence[str] | None) -> tuple[pl.DataFrame, dict[str, object]]:
    """The columns that were asked for; else all that are known, and the names of those that are null in every row."""
    if columns:
        lacking = [name for name in columns if name not in table.columns]
        if lacking:
            near = closest(lacking[0], table.columns)
            meant = f"Did you mean {' or '.join(near)}? " if near else ""
            raise XspError(f"there is no column {lacking[0]!r}", advice=f"{meant}Columns: {', '.join(table.columns)}")
        return table.select(list(dict.fromkeys(columns))), {}
    unknown = [name for name in table.columns if table.height and table[name].null_count() == table.height]
    return table.drop(unknown), {"unknown_columns": unknown} if unknown else {}


def units(names: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """The units of columns whose names do not end with theirs."""
    return {c.name: c.unit for c in columns if c.name in names and c.unit and not _says_unit(c.name, c.unit)}


def _says_unit(name: str, unit: str) -> bool:
    ending = {"1/s": "per_s"}.get(unit, unit.lower().replace("/", "_per_"))
    return any(name == each or name.endswith(f"_{each}") for each in (ending, f"{ending}s"))


def brief_contents(info: Mapping[str, Any]) -> dict[str, object]:
    """What `xsp info` says, with what an agent needs of each run, and steps as their count and ends."""
    steps, runs = info["steps"], info["runs"]
    return {
        "run_count": len(runs),
        "runs": [{key: run[key] for key in _OF_RUN if run.get(key) is not None} for run in runs[:_MAX_RUNS]],
        "steps": {"count": len(steps), "first": steps[0], "last": steps[-1]} if steps else {"count": 0},
        "captures": len(info["captures"]),
        **{key: value for key, value in info.items() if key not in {"runs", "steps", "captures", "findings"}},
    }


def comparison_head(comparison: Comparison) -> dict[str, object]:
    """What a comparison says before its rows, and what each side covers."""
    held: Mapping[str, Any] = document(comparison)
    sides = {
        name: coverage_of(side.views[0]) for name, side in (("before", comparison.before), ("after", comparison.after))
    }
    summary = {"summary": plain_sentences(sentences(comparison)), **{key: held[key] for key in _OF_COMPARISON}}
    falls = _largest_parts(held["waterfall"])
    return {**summary, "reasons": plain_sentences(comparison.reasons), "waterfall": falls, **sides}


def _largest_parts(falls: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the difference is made of, the largest parts first and the others as one: their sum stays the difference."""
    if falls is None or len(falls["parts"]) <= _MAX_PARTS:
        return falls
    parts = sorted(falls["parts"], key=lambda part: -abs(part["difference_ns"]))
    rest = parts[_MAX_PARTS:]
    others = {"name": f"{len(rest)} others", "difference_ns": sum(part["difference_ns"] for part in rest)}
    return {**falls, "parts": [*parts[:_MAX_PARTS], others]}


def comparison_rows(comparison: Comparison, level: str | None) -> Sequence[Mapping[str, object]]:
    """Rows by how much they differ, those of one level where asked."""
    rows = [row for row in comparison.rows if level in {None, row.level}]
    if not rows and level is not None:
        levels = dict.fromkeys(row.level for row in comparison.rows)
        raise XspError(f"the comparison has no rows of level {level!r}", advice=f"It has {', '.join(levels) or 'none'}")
    rows.sort(key=lambda row: -abs(row.difference_ns or 0.0))
    return [{name: getattr(row, name) for name in _OF_ROW if getattr(row, name) is not None} for row in rows]
