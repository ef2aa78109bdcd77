"""`python -m benchmarks --guard`: whether hot paths stay so much cheaper than a loop of their definition.

Ratios, as seconds differ by machine. They are no tests, as a busy machine bends them all the same. The bounds are half
of what was measured, or less: they catch a path that fell back to Python per row, not a few percent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.experiment import REPO, XSP
from benchmarks.generate import grow
from benchmarks.generate_nsys import grow_nsys
from benchmarks.measure import as_installed
from benchmarks.programs.hot_paths import (
    correlations,
    kernels,
    nested_spans,
    plain_busy,
    plain_join,
    plain_parents,
    plain_rows,
)
from benchmarks.programs.stopwatch import cpu_s
from xsp.batch.unit import Settings, Unit
from xsp.batch.work import process
from xsp_ingest.files.sqlite import Database, table_names
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.link.nest import nest
from xsp_ingest.link.spans import pair_keys
from xsp_model.columns.arrays import lookup
from xsp_model.columns.intervals import union_length
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["GUARDS", "Guard", "Pair", "check"]

_TURNS = 3
_SPANS = 1_500_000  # as many as take the compiled way
_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
_COLUMNS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName")
_PRINTER = (sys.executable, "-c", "import typer, rich.console, rich.table, rich.panel")
_FLOOR = (sys.executable, "-c", "import numpy, polars, pyarrow")
_AGAIN = "again"  # behind a command whose answer is kept
_TRACE = REPO / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"


@dataclass(frozen=True, slots=True)
class Pair:
    """A path of ours, and what it is held against."""

    ours: Callable[[], object]
    reference: Callable[[], object]

    def times_cheaper(self, clock_s: Callable[[], float]) -> float:
        """The reference's time over ours, of each the cheapest turn: others on the machine change little."""
        self.ours()  # loads machine code, or compiles it
        turns = [(_cost_s(self.ours, clock_s), _cost_s(self.reference, clock_s)) for _ in range(_TURNS)]
        return min(reference for _, reference in turns) / min(ours for ours, _ in turns)


def _cost_s(path: Callable[[], object], clock_s: Callable[[], float]) -> float:
    start = clock_s()
    path()
    return clock_s() - start


@dataclass(frozen=True, slots=True)
class Guard:
    """A ratio that stays over its bound; `prepare` makes the input in a folder."""

    name: str
    bound: float
    prepare: Callable[[Path], Pair]


def check(guards: Sequence[Guard], clock_s: Callable[[], float] = cpu_s) -> list[str]:
    """Prints a table of the ratios, with a warning for each that is under its bound; the names of those."""
    print(f"{'times cheaper than its definition':<44}{'bound':>8}{'measured':>10}")
    low = []
    for guard in guards:
        with tempfile.TemporaryDirectory(prefix="xsp-guard-") as folder:
            ratio = guard.prepare(Path(folder)).times_cheaper(clock_s)
        print(f"{guard.name:<44}{guard.bound:>8.2f}{ratio:>10.2f}", flush=True)
        if ratio <= guard.bound:
            low.append(guard.name)
            print(f"WARNING: {guard.name}: {ratio:.2f} is not over {guard.bound:.2f}", flush=True)
    return low


def _nesting(_folder: Path) -> Pair:
    thread, start, end = nested_spans(_SPANS)
    rank = np.zeros(len(start), dtype=np.int8)
    return Pair(lambda: nest(thread, start, end, rank, threads=8), lambda: plain_parents(thread, start, end))


def _correlation(_folder: Path) -> Pair:
    calls, work = correlations(500_000, 700_000)
    return Pair(lambda: lookup(*pair_keys(calls, work)), lambda: plain_join(calls, work))


def _busy_time(_folder: Path) -> Pair:
    start, end = kernels(1_000_000)
    return Pair(lambda: union_length(start, end), lambda: plain_busy(start, end))


def _scanning(folder: Path) -> Pair:
    path = folder / "trace.json"
    grow(path, 34_000_000, lanes=2, replays=1)
    return Pair(
        lambda: sum(1 for _ in scanner.documents(path, limits().trace_piece_rows)),
        lambda: json.loads(path.read_bytes()),
    )


def _reading_kernels(folder: Path) -> Pair:
    path = folder / "capture.sqlite"
    grow_nsys(path, 200_000)
    database = Database(path, table_names(path))
    return Pair(lambda: database.integers(_TABLE, _COLUMNS), lambda: plain_rows(path, _TABLE, _COLUMNS))


def _batch_unit(folder: Path) -> Pair:
    """Converting and reporting a small trace is many small queries: each takes long beside the rows that it is over.

    Held against the file read ten times: what a script does that looks at one trace in ten ways.
    """
    path = folder / "trace.json"
    grow(path, 3_000_000, steps=2)
    settings = Settings(str(folder / "out"), redo=True)
    return Pair(
        lambda: process(Unit("trace", (str(path),)), settings),
        lambda: [json.loads(path.read_bytes()) for _ in range(10)],
    )


def _help(_folder: Path) -> Pair:
    """Held against the start of what it is printed with."""
    return Pair(lambda: _run((*XSP, "--help"), {}), lambda: _run(_PRINTER, {}))


def _small_trace(command: str, folder: Path) -> Pair:
    """Held against what no first answer does without."""
    arguments = [each for each in command.split() if each != _AGAIN]
    output = ("-o", str(folder / "out.html")) if command == "report" else ()
    kept = {"XDG_CACHE_HOME": str(folder)} if command.endswith(_AGAIN) else {"XSP_CACHE_SIZE": "0"}
    return Pair(lambda: _run((*XSP, *arguments, str(_TRACE), *output), kept), lambda: _run(_FLOOR, {}))


def _run(command: Sequence[str], changes: Mapping[str, str]) -> None:
    environment = as_installed({**os.environ, **changes}, REPO)
    subprocess.run(command, cwd=REPO, env=environment, stdout=subprocess.DEVNULL, check=True)


def _times_the_floor() -> Mapping[str, float]:
    """By command how many times the floor it may cost: of the product's budgets those that tests cannot hold."""
    budgets: Mapping[str, Mapping[str, float]] = tomllib.loads((REPO / "tests" / "budgets.toml").read_text("utf-8"))
    return budgets["times_the_floor"]


GUARDS = (
    Guard("nesting: a stack in Python", 1.4, _nesting),
    Guard("correlation: a dict", 8, _correlation),
    Guard("busy time: a loop", 3, _busy_time),
    Guard("scanning a PyTorch trace: the json module", 4, _scanning),
    Guard("reading kernels: rows of sqlite3", 1.2, _reading_kernels),
    Guard("a unit of a batch: its JSON ten times", 0.5, _batch_unit),
    Guard("xsp --help: start of typer and rich", 1 / 6, _help),
    *(
        Guard(f"xsp {command} of a small trace: the libraries' start", 1 / times, partial(_small_trace, command))
        for command, times in _times_the_floor().items()
    ),
)
