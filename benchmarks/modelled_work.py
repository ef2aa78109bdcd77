"""What B11 and B23 cost on a bundle of millions of kernels: `python -m benchmarks.modelled_work`.

A made bundle: steps of layers, in each an operator with an inner one, a launch and a kernel; a few hundred distinct
operators, shapes and layers, as models have them. Each analysis is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import bundle
from xsp_model.columns.arrow import conform, to_arrow
from xsp_model.schema import TABLES
from xsp_model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEVELS = 4  # spans a kernel: linear, addmm in it, the launch, the kernel
_KERNEL = 3  # the position of the kernel among them
_STEP_KERNELS = 2_000
_SHAPES = 200
_CYCLE_NS = 10_000
_GOAL_S, _GOAL_BYTES = 10.0, 1e9
_ANALYZE = "import sys; from pathlib import Path; from xsp_model import bundle; from xsp_analyze.catalog import find; \
from xsp_analyze.core import run; from xsp_analyze.trace.step_view import StepView; \
frames = StepView.of(bundle.read(Path(sys.argv[1])), sys.argv[2]); \
print([run(find(each), frames).table.height for each in sys.argv[3:]])"


def main() -> int:
    """Prints processor time and peak memory of B11, of B23 and of both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modelled_work", description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--steps", nargs="+", default=["all"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kernels in arguments.kernels:
            path = Path(folder) / f"{kernels}.xsp"
            # Apart: of a child the system counts its parent's memory too, as it was when the child began.
            writer = get_context("spawn").Process(target=_write, args=(kernels, path))
            writer.start()
            writer.join()
            for steps in arguments.steps:
                for analyses in (["B11"], ["B23"], ["B11", "B23"]):
                    print(_line(kernels, steps, analyses, *_cost(path, steps, analyses)), flush=True)
    return 0


def _line(kernels: int, steps: str, analyses: Sequence[str], cpu_s: float, peak_bytes: int) -> str:
    return (
        f"{kernels:>9,} kernels, {'+'.join(analyses)} --steps {steps}: {cpu_s:.2f} s of processor time, "
        f"{peak_bytes / 1e6:,.0f} MB (goal at 5 million: {_GOAL_S:.0f} s and {_GOAL_BYTES / 1e6:,.0f} MB)"
    )


def _cost(path: Path, steps: str, analyses: Sequence[str]) -> tuple[float, int]:
    """Processor time in s and peak memory in bytes of one process."""
    arguments = [sys.executable, "-c", _ANALYZE, str(path), steps, *analyses]
    process = os.posix_spawn(sys.executable, arguments, os.environ)
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"the analysis ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _write(kernels: int, path: Path) -> None:
    bundle.write(_trace(kernels), path)


def _trace(kernels: int) -> Trace:
    frames = {"runs": _runs(), "spans": _spans(kernels), "operators": _operators(kernels), "devices": _devices()}
    frames["layers"] = pl.DataFrame({"span_id": pl.Series([], dtype=pl.Int64)})
    frames["kernels"] = pl.DataFrame({"span_id": np.arange(kernels) * _LEVELS + 3}).with_columns(
        pl.lit(128).alias("grid_x"), pl.lit(256).alias("block_x")
    )
    empty = pl.DataFrame()
    tables = {
        name: to_arrow(conform(frames[name], spec) if name in frames else conform(empty, spec).clear(), spec)
        for name, spec in TABLES.items()
    }
    return Trace(tables)


def _runs() -> pl.DataFrame:
    return pl.DataFrame({"run_id": [0], "clock_origin_ns": [0], "source_bytes": [0]})


def _devices() -> pl.DataFrame:
    return pl.DataFrame({"run_id": [0], "device_id": [0], "dram_byte_per_s": [3.35e12], "fp32_flop_per_s": [67e12]})


def _spans(kernels: int) -> pl.DataFrame:
    """In order of start; ids count them."""
    position = np.tile(np.arange(_LEVELS), kernels)
    number = np.repeat(np.arange(kernels), _LEVELS)
    first = number * _LEVELS
    parents = np.where(position == 0, -1, np.where(position == _KERNEL, first + 2, first + position - 1))
    labels = {
        "level": ["operator", "operator", "runtime", "kernel"],
        "kind": ["operator", "operator", "call", "kernel"],
    }
    shape = number % _SHAPES
    names = [f"gemm_bf16_{n}" for n in range(_SHAPES)] + ["aten::linear", "aten::addmm", "cudaLaunchKernel"]
    named = np.where(position == _KERNEL, shape, _SHAPES + np.minimum(position, 2))
    spans = pl.DataFrame(
        {
            "span_id": np.arange(kernels * _LEVELS),
            "parent_id": pl.Series(parents).set(pl.Series(parents < 0), None),
            "start_ns": number * _CYCLE_NS + position * 1_000,
            "duration_ns": np.array([9_000, 7_000, 500, 5_000])[position],
            "step": number // _STEP_KERNELS,
            "device": position == _KERNEL,
            **{c: pl.Series(values)[position].cast(pl.Categorical) for c, values in labels.items()},
            "name": pl.Series(names).cast(pl.Categorical)[named],
        }
    )
    on_host = pl.when(~pl.col("device"))
    on_device = pl.when("device")
    return spans.with_columns(
        pl.lit(0).alias("run_id"), pl.lit(1).alias("process_id"),
        on_host.then(1).alias("thread_id"), on_device.then(0).alias("device_id"), on_device.then(7).alias("stream_id"),
        pl.lit("forward").cast(pl.Categorical).alias("phase"),
        on_device.then(pl.lit("model_only")).cast(pl.Categorical).alias("attribution"),
    ).drop("device")  # fmt: skip


def _operators(kernels: int) -> pl.DataFrame:
    """Linear (tokens x 512 by n x 512) and addmm in it, of `_SHAPES` different widths."""
    widths = [64 * (n + 1) for n in range(_SHAPES)]
    linear = [json.dumps([[1024, 512], [width, 512], [width]]) for width in widths]
    addmm = [json.dumps([[width], [1024, 512], [512, width], [], []]) for width in widths]
    shape = np.arange(kernels) % _SHAPES
    of = np.stack([shape, shape + _SHAPES], axis=1).ravel()
    types = pl.Series(['["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]',
                       '["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]'])  # fmt: skip
    return pl.DataFrame(
        {
            "span_id": (np.arange(kernels)[:, None] * _LEVELS + np.arange(2)).ravel(),
            "input_shapes": pl.Series([*linear, *addmm])[of],
            "input_dtypes": types[np.tile(np.arange(2), kernels)],
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
