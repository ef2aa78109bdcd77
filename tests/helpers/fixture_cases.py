"""The fixtures as tests see them, and what XSP finds in one, in a form that a golden file can hold."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xsp_model import Trace

__all__ = ["DAMAGED", "RUN_SETS", "SOUND", "FixtureCase", "every", "facts", "golden_text", "trace_of"]

_ROOT = Path(__file__).resolve().parents[2] / "fixtures"
_OURS = {"case.toml", "expected.toml", "run.json"}


@dataclass(frozen=True)
class FixtureCase:
    """A folder of raw files."""

    name: str

    @property
    def folder(self) -> Path:
        return _ROOT / self.name

    @property
    def raw_files(self) -> list[Path]:
        """What a profiler wrote."""
        return sorted(file for file in self.folder.iterdir() if file.name not in _OURS)

    @property
    def about(self) -> Mapping[str, Any]:
        return tomllib.loads((self.folder / "case.toml").read_text(encoding="utf-8"))

    @property
    def expected(self) -> Mapping[str, Any]:
        return tomllib.loads((self.folder / "expected.toml").read_text(encoding="utf-8"))


def _all() -> list[FixtureCase]:
    return [FixtureCase(str(file.parent.relative_to(_ROOT))) for file in sorted(_ROOT.rglob("case.toml"))]


DAMAGED = [case for case in _all() if "/bad/" in case.name]
RUN_SETS = [case for case in _all() if case.name.startswith("run_set/")]
SOUND = [case for case in _all() if case not in DAMAGED and case not in RUN_SETS]


def every(cases: Iterable[FixtureCase]) -> pytest.MarkDecorator:
    """The cases as `case`, by name: the first of each format in the quick tier, the others in the slow one."""
    formats: set[str] = set()
    parameters = []
    for case in cases:
        format_name = case.name.partition("/")[0]
        marks = [pytest.mark.slow] if format_name in formats else []
        formats.add(format_name)
        parameters.append(pytest.param(case, id=case.name, marks=marks))
    return pytest.mark.parametrize("case", parameters)


@cache
def trace_of(case: FixtureCase) -> Trace:
    """The linked trace of the case's raw files."""
    return convert(case.raw_files, Options())


def facts(trace: Trace) -> dict[str, dict[str, object]]:
    """What a golden holds: rows by level, device time by attribution, the ledger, layers."""
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    device = spans.filter(pl.col("attribution").is_not_null())
    runs, layers = trace.frame("runs"), trace.frame("layers")
    return {
        "run": {"format": runs["format"][0], "layer_source": runs["layer_source"][0], "count": runs.height},
        "spans": dict(spans.group_by("level").len().sort("level").iter_rows()),
        "device_ns": dict(
            device.group_by("attribution").agg(pl.col("duration_ns").sum()).sort("attribution").iter_rows()
        ),
        "attribution": dict(device.group_by("attribution").len().sort("attribution").iter_rows()),
        "phase": dict(device.drop_nulls("phase").group_by("phase").len().sort("phase").iter_rows()),
        "device_steps": {str(step): count for step, count in device.group_by("step").len().sort("step").iter_rows()},
        "layers": {"rows": layers.height, "indexed": layers["layer_index"].n_unique() if layers.height else 0},
        "ledger": dict(trace.frame("ledger").group_by("kind").agg(pl.col("count").sum()).sort("kind").iter_rows()),
    }


def golden_text(facts_by_table: Mapping[str, Mapping[str, object]]) -> str:
    """The facts as the text of an expected.toml."""
    tables = (
        "\n".join([f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in rows.items() if value is not None)])
        for table, rows in facts_by_table.items()
        if rows
    )
    return "\n\n".join(tables) + "\n"
