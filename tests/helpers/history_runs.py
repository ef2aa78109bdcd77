"""Runs of a history for tests: facts as a trace gives them, of given step times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from xsp.history.store import file_of_run
from xsp_analyze.history.facts import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["START", "file_of", "run_facts", "write_store"]

START = datetime(2026, 1, 1, 2, tzinfo=UTC)
_BY_KERNEL = {"gemm": 0.6, "softmax": 0.3}


def run_facts(
    latency_ns: float,
    *,
    parts: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    model: str = "net",
) -> pl.DataFrame:
    """A run of that step time; `parts`: kernels and their shares of it."""
    rows = [("run", "model", model, None), ("run", "branch", "main", None), ("measure", "latency_ns", None, latency_ns)]
    rows += [("label", name, text, None) for name, text in (labels or {}).items()]
    shares = parts or _BY_KERNEL
    rows += [("measure", "device_time_ns", None, latency_ns * sum(shares.values()))]
    rows += [("kernel", name, None, latency_ns * share) for name, share in shares.items()]
    frame = pl.DataFrame(rows, schema=["section", "name", "text", "value"], orient="row")
    missing = [pl.lit(None, COLUMNS[name]).alias(name) for name in ("low", "high")]
    return frame.with_columns(*missing, pl.lit(1.0).alias("count")).select(
        pl.col(n).cast(t) for n, t in COLUMNS.items()
    )


def file_of(folder: Path, number: int, facts: pl.DataFrame, *, version: int = 1, time: datetime | None = None) -> Path:
    """The file that a store has of the run; numbers are days."""
    name, content = file_of_run(facts, f"{number:016x}", time or START + timedelta(days=number))
    path = folder / name.replace(".v1.", f".v{version}.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_store(folder: Path, latencies_ns: Sequence[float], model: str = "net") -> Path:
    """A store with a run a day, each with a commit of its own."""
    for number, latency in enumerate(latencies_ns):
        commit = {"commit": f"c{number:03}"}
        shares = {"gemm": 6e6 / latency, "softmax": (latency - 7e6) / latency}
        facts = run_facts(latency, parts=shares, labels=commit, model=model)
        file_of(folder, (sum(model.encode()) << 32) + number, facts, time=START + timedelta(days=number))
    return folder
