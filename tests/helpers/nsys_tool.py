"""NVIDIA's own nsys as tests use it: its rules and its recipes on SQLite files that we have."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nsight import install_whole
from tests.helpers.nsys_answers import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["analyze", "find_nsys", "install_copy", "parquet_folder", "recipe", "recipe_python", "run_rule", "stats"]

_NEEDED = ("numpy", "pandas", "psutil", "pyarrow")
_RECIPE_TABLES: Mapping[str, tuple[str, ...]] = {  # what recipes ask for, which real exports have even when empty
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "deviceId", "correlationId", "globalPid", "shortName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "correlationId", "globalPid"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "correlationId", "globalPid"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "correlationId", "globalTid"),
    **dict.fromkeys(
        (
            "MPI_P2P_EVENTS",
            "MPI_START_WAIT_EVENTS",
            "MPI_OTHER_EVENTS",
            "MPI_COLLECTIVES_EVENTS",
            "UCP_SUBMIT_EVENTS",
            "UCP_PROGRESS_EVENTS",
            "UCP_EVENTS",
        ),
        ("start", "end", "globalTid", "textId"),
    ),
    "NVTX_EVENTS": ("text", "start", "end", "textId", "globalTid", "endGlobalTid", "domainId", "eventType"),
}


@cache
def find_nsys() -> str | None:
    """The nsys to test with."""
    return os.environ.get("XSP_NSYS") or shutil.which("nsys")


def nsys() -> str:
    """The nsys to test with; the test is skipped where there is none."""
    path = find_nsys()
    if path is None:
        pytest.skip("NVIDIA's nsys is not here: put it on PATH or set XSP_NSYS")
    return path


@cache
def _recipe_python() -> str | None:
    for python in (os.environ.get("XSP_NSYS_PYTHON"), sys.executable):
        if (
            python
            and not subprocess.run(
                [python, "-c", f"import {', '.join(_NEEDED)}"], capture_output=True, check=False
            ).returncode
        ):
            return python
    return None


def recipe_python() -> str:
    """A Python with what NVIDIA's recipes need; the test is skipped where there is none."""
    path = _recipe_python()
    if path is None:
        pytest.skip(f"no Python with {', '.join(_NEEDED)}: set XSP_NSYS_PYTHON")
    return path


def analyze(rule: str, path: Path) -> list[list[str]] | None:
    """What a rule of `nsys analyze` prints for the file, headings first; None where it refuses or finds nothing."""
    done = subprocess.run(
        [nsys(), "analyze", "--rule", f"{rule}:rows=-1", "--format", "csv", "--output", "-", "--quiet", str(path)],
        check=False,
        capture_output=True,
        text=True,
    )
    rows = [row for row in parse(done.stdout.strip()) or [] if row]
    heading = next((n for n, row in enumerate(rows) if "PID" in row), None)
    return None if heading is None else rows[heading:]


def stats(path: Path, reports: Sequence[str]) -> dict[str, list[list[str]]]:
    """What `nsys stats` prints of a SQLite file, by report, headings first; not those that it skips or has no rows of.

    nsys writes beside its input, so it gets a copy, which it leaves there.
    """
    # The trace last: where it finds no greenContextId, nsys 2023.4.4 skips every report after it too.
    last = sorted(reports, key=lambda name: name == "cuda_gpu_trace")
    last = [f"{name}:rows=100000" if name == "um_sum" else name for name in last]
    copy = shutil.copy(path, path.with_name("copy_for_nsys.sqlite"))
    done = subprocess.run(
        [nsys(), "stats", *(argument for name in last for argument in ("--report", name)), "--format", "csv",
         "--output", "-", str(copy)],
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    _, *parts = re.split(r"^Processing \[.*/(\w+)\.py\](?:\([\w=]+\))?\.\.\. *$", done.stdout, flags=re.MULTILINE)
    answers = {name: parse(text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return {name: rows for name, rows in answers.items() if rows is not None}


def run_rule(name: str, path: Path, *options: str) -> list[list[str]]:
    """What the script of a rule prints, headings first; rules that `nsys analyze` of Debian's package cannot load too.

    Hidden columns are left out, and tags of headings as `:dur_ns`.
    """
    target = Path(nsys()).resolve().parent
    done = subprocess.run(
        [sys.executable, str(target / "rules" / f"{name}.py"), str(path), "rows=-1", *options],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(target / "python" / "lib")},
    )
    rows = list(csv.reader(io.StringIO(done.stdout))) or [[]]
    shown = [n for n, heading in enumerate(rows[0]) if not heading.startswith("_")]
    return [[row[n].partition(":")[0] if row is rows[0] else row[n] for n in shown] for row in rows]


def install_copy(folder: Path) -> Path:
    """A whole installation of nsys in the folder; the path of its nsys."""
    return install_whole(nsys(), folder)


def parquet_folder(database: Path, folder: Path) -> None:
    """The tables of a SQLite file as Parquet files, a file a table, as `nsys export --type parquetdir` has them."""
    folder.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 (the file's own names)
            heads = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            _write(folder, name, {head: [row[n] for row in rows] for n, head in enumerate(heads)})
    for name, columns in _RECIPE_TABLES.items():
        if name not in names:
            _write(folder, name, dict.fromkeys(columns, ()))


def _write(folder: Path, name: str, cells: Mapping[str, Sequence[object]]) -> None:
    def array(values: Sequence[object], column: str) -> pa.Array:
        present = [value for value in values if value is not None]
        text = column in ("text", "value", "name", "label") if not present else isinstance(present[0], str)
        return pa.array(values, pa.string() if text else pa.int64())

    pq.write_table(pa.table({n: array(v, n) for n, v in cells.items()}), folder / f"{name}.parquet")


def recipe(name: str, files: Mapping[str, Path], folder: Path, *arguments: str) -> Mapping[str, pl.DataFrame]:
    """The Parquet files that a recipe writes for SQLite files by report name; empty where it finds no data."""
    python = recipe_python()
    program = folder / "nsight"
    executable = next(program.glob("*/nsys")) if program.exists() else install_copy(folder)
    reports = []
    for stem, database in files.items():
        report = folder / f"{stem}.nsys-rep"
        if not report.exists():
            report.write_bytes(b"stands for the report; the recipe finds its exports beside it")
            parquet_folder(database, folder / f"{stem}_pqtdir")
            shutil.copy(database, folder / f"{stem}.sqlite")
        reports.append(str(report))
    output = folder / f"output_{name}"
    shutil.rmtree(output, ignore_errors=True)
    packages = executable.parent / "python" / "packages"
    subprocess.run(
        [python, "-W", "ignore", "-m", "nsys_recipe", name, "--mode", "none", "--input", *reports, "--output",
         str(output), *arguments],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(packages), "NSYS_DIR": str(executable.parent.parent)},
    )  # fmt: skip
    return {file.stem: pl.read_parquet(file) for file in output.glob("*.parquet")}
