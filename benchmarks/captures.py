"""Experiments on Nsight Systems SQLite files: reading rows, kernels by name, ranges projected onto the device."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from benchmarks.environments import NSYS_AI, PANDAS, RECIPE, nsys
from benchmarks.experiment import XSP, Experiment, Way, program
from benchmarks.generate_nsys import length_ns
from benchmarks.nsight import install_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.inputs import Inputs

__all__ = ["analyses", "convert", "kept_traces", "kernels", "ranges"]


def convert(inputs: Inputs, kernels: int) -> Experiment:
    """The whole file, linked, beside what reading its rows alone takes."""
    path, what = _input(inputs, kernels)
    ways = (
        Way("ADBC rows", "all rows of the three tables as Arrow, the columns needed",
            lambda _: [program("nsys_rows", "adbc", str(path))]),
        Way("sqlite3 kernel rows", "`fetchmany` of the kernel table",
            lambda _: [program("nsys_rows", "sqlite3", str(path))]),
        Way("xsp kernel rows", "our reader of the kernel table", lambda _: [program("nsys_rows", "xsp", str(path))]),
        Way("xsp rows", "our reader of the three tables", lambda _: [program("nsys_rows", "xsp-all", str(path))]),
        Way("xsp convert", "`xsp convert FILE.sqlite -o OUT.xsp`",
            lambda scratch: [(*XSP, "convert", str(path), "-o", str(scratch / "capture.xsp"))]),
    )  # fmt: skip
    return Experiment("nsys-rows", "An Nsight SQLite file: rows, and a linked bundle of them", what, ways)


def kernels(inputs: Inputs, kernels: int) -> Experiment:
    """`cuda_gpu_kern_sum`, or what others have nearest to it."""
    path, what = _input(inputs, kernels)
    python = PANDAS.python
    ways = (
        *_ours(inputs, path, "cuda_gpu_kern_sum"),
        *_nsys(inputs, path, kernels, "cuda_gpu_kern_sum"),
        Way("nsys-ai", "`nsys-ai skill run top_kernels` (by sqlite3: its DuckDB has no extension here)",
            lambda _: [_nsys_ai(inputs, path, "top_kernels")]),
        Way("pandas", "`read_sql`, `groupby` by name",
            lambda _: [program("nsys_pandas", str(path), python=python(inputs.folder))]),
        Way("sqlite3", "one SQL statement (no median, no deviation)", lambda _: [program("nsys_sql", str(path))]),
    )  # fmt: skip
    peers = (PANDAS, NSYS_AI, RECIPE)
    return Experiment("nsys-kernels", "An Nsight SQLite file: cuda_gpu_kern_sum", what, ways, peers=peers)


def ranges(inputs: Inputs, kernels: int) -> Experiment:
    """`nvtx_gpu_proj_sum`, or what others have nearest to it."""
    path, what = _input(inputs, kernels)
    ways = (
        *_ours(inputs, path, "nvtx_gpu_proj_sum"),
        *_nsys(inputs, path, kernels, "nvtx_gpu_proj_sum"),
        Way("nsys-ai", "`nsys-ai skill run nvtx_layer_breakdown` (likewise)",
            lambda _: [_nsys_ai(inputs, path, "nvtx_layer_breakdown")], max_runs=1),
    )  # fmt: skip
    peers = (NSYS_AI, RECIPE)
    return Experiment("nsys-ranges", "An Nsight SQLite file: nvtx_gpu_proj_sum", what, ways, peers=peers)


def kept_traces(inputs: Inputs, kernels: int) -> Experiment:
    """`xsp info` of a file for the first and for the second time, and of a tenth of it."""
    path, what = _input(inputs, kernels)
    length = length_ns(kernels)
    tenth = f"{length // 2}ns..{length * 6 // 10}ns"

    info = (*XSP, "info", str(path))
    ways = (  # each begins with an empty cache of its own
        Way("xsp info, first", "`xsp info FILE.sqlite`", lambda _: [info]),
        Way("xsp info, second", "the same again: from what the first one kept", lambda _: [info],
            prepare=lambda _: [info]),
        Way("xsp info of a tenth", "`xsp info FILE.sqlite --range FROM..TO`",
            lambda _: [(*info, "--no-cache", "--range", tenth)]),
    )  # fmt: skip
    return Experiment("nsys-kept", "An Nsight SQLite file: what is kept of it, and a part of it", what, ways)


def analyses(inputs: Inputs, kernels: int) -> Experiment:
    """Every analysis on the bundle of a file, and the page that shows them all."""
    path, what = _input(inputs, kernels)
    bundle = str(inputs.bundle(path))
    ways = (
        Way("analyses", "`bundle.read`, one `StepView`, `run` of each analysis: what several need is worked out once",
            lambda _: [program("xsp_analyses", bundle)]),
        Way("report", "`xsp report BUNDLE -o OUT.html`",
            lambda scratch: [(*XSP, "report", bundle, "-o", str(scratch / "report.html"))]),
    )  # fmt: skip
    return Experiment("analyses", "All analyses, and the report, on a bundle", f"the bundle of {what}", ways)


def _input(inputs: Inputs, kernels: int) -> tuple[Path, str]:
    path, rows = inputs.nsys(kernels)
    return (
        path,
        f"{path.stat().st_size / 1e6:.0f} MB, {rows} rows, {kernels} of them kernels, the others calls and ranges",
    )


def _ours(inputs: Inputs, path: Path, name: str) -> list[Way]:
    bundle = str(inputs.bundle(path))
    answer = ("-a", name, "-f", "csv")
    return [
        Way("xsp", f"`xsp analyze FILE.sqlite -a {name} --no-cache`",
            lambda _: [(*XSP, "analyze", str(path), *answer, "--no-cache")]),
        Way("xsp, from a bundle", f"`xsp analyze BUNDLE -a {name}`", lambda _: [(*XSP, "analyze", bundle, *answer)]),
    ]  # fmt: skip


def _nsys(inputs: Inputs, path: Path, kernels: int, name: str) -> list[Way]:
    def stats(_: Path) -> Sequence[Sequence[str]]:
        return [(nsys(), "stats", "-q", "-r", name, "--format", "csv", str(path))]

    def recipe(scratch: Path) -> Sequence[Sequence[str]]:
        report = scratch / "capture.nsys-rep"  # it asks for a report, and takes the exports that lie beside it
        report.write_text("the exports are younger", encoding="utf-8")
        shutil.copyfile(path, scratch / "capture.sqlite")
        (scratch / "capture_pqtdir").symlink_to(inputs.nsys_tables(kernels))
        folder = RECIPE.python(inputs.folder).parent
        search = f"PATH={folder}{os.pathsep}{os.environ['PATH']}"
        command = (
            str(install_whole(nsys(), scratch)),
            "recipe",
            name,
            "--mode",
            "none",
            "--input",
            str(report),
            "--output",
            str(scratch / "out"),
        )
        return [("env", search, *command), ("test", "-d", str(scratch / "out"))]  # it ends well without an answer

    slow = 1 if name.startswith("nvtx") else None
    return [
        Way("nsys stats", f"`nsys stats -r {name}`", stats, max_runs=slow),
        Way("nsys recipe", f"`nsys recipe {name}`, from Parquet files made before", recipe, max_runs=slow),
    ]


def _nsys_ai(inputs: Inputs, path: Path, skill: str) -> tuple[str, ...]:
    command = NSYS_AI.python(inputs.folder).with_name("nsys-ai")
    return (str(command), "skill", "run", skill, str(path))
