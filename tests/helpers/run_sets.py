"""Run sets written from literals: descriptions, and tables of counters as Nsight Compute prints them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from xsp_analyze.merge.merge import merge
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.helpers.synth import KinetoTrace
    from xsp_model import Trace

__all__ = ["DRAM", "FLOPS", "OCCUPANCY", "merged", "write_counters", "write_run"]

FLOPS = tuple(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma"))
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
OCCUPANCY = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
_UNITS = {**dict.fromkeys(FLOPS, "inst"), **dict.fromkeys(DRAM, "byte"), **dict.fromkeys(OCCUPANCY, "%")}
_FACTS = ("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
_SLOW_NS = 1_000_000  # what a replayed kernel is said to take: never to be used


def write_run(folder: Path, level: str, trace: KinetoTrace | None = None, **described: object) -> None:
    """A run of the set, with its trace where it has one; `described` are further keys of run.json."""
    folder.mkdir(parents=True)
    files = []
    if trace is not None:
        trace.write(folder / "trace.json.gz")
        files = [{"path": "trace.json.gz", "format": "torch_profiler"}]
    _describe(folder, level, files, described)


def write_counters(
    folder: Path,
    counters: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[tuple[str, int, Sequence[float]]],
    **described: object,
) -> None:
    """A counter run: `ncu --csv --page raw` of kernels, each a name, a grid's x (of blocks of 128) and its values."""
    folder.mkdir(parents=True)
    time = "gpu__time_duration.sum"
    lines = ["==PROF== Connected to process 7", _line([*_FACTS, *columns, time])]
    lines.append(_line([""] * len(_FACTS) + [*(_UNITS[c] for c in columns), "ns"]))
    for number, (name, grid, values) in enumerate(rows):
        facts = [number, 7, name, 1, 7, "(128, 1, 1)", f"({grid}, 1, 1)", 0, "7.0"]
        lines.append(_line([*facts, *(f"{value:,}" for value in values), f"{_SLOW_NS:,}"]))
    (folder / "ncu.csv").write_text("\n".join(lines) + "\n")
    _describe(folder, "MLG", [{"path": "ncu.csv", "format": "ncu_csv"}], {"counters": list(counters), **described})


def _line(cells: Sequence[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def _describe(folder: Path, level: str, files: Sequence[object], described: Mapping[str, object]) -> None:
    durations = described.get("step_durations_ns", [])
    assert isinstance(durations, list)
    content = {
        "schema_version": 1,
        "level": level,
        "model": {"name": "by hand", "task": "test"},
        "framework": {"name": "pytorch", "version": "2.11.0"},
        "steps": len(durations),
        "files": files,
        **described,
    }
    (folder / "run.json").write_text(json.dumps(content))


def merged(folder: Path) -> Trace:
    """The profile of the run set."""
    return merge(read_run_set(folder, Options()))
