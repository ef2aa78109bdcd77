"""A folder with every file that the docs' commands name, made of fixtures."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import sqlite3
from typing import TYPE_CHECKING

import polars as pl

from tests.docs.commands import ROOT
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Kind, bundle

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fill"]

_FIXTURES = ROOT / "fixtures"
_TRACE = _FIXTURES / "torch_profiler/transformer_train_gpu_synthetic/trace.json.gz"
_COPIES = {
    "trace.json.gz": _TRACE,
    "before.json.gz": _TRACE,
    "after.json.gz": _TRACE,
    "rank0.json.gz": _FIXTURES / "torch_profiler/two_ranks/rank0.json.gz",
    "rank1.json.gz": _FIXTURES / "torch_profiler/two_ranks/rank1.json.gz",
    "job/rank0.json.gz": _FIXTURES / "torch_profiler/two_ranks/rank0.json.gz",
    "job/rank1.json.gz": _FIXTURES / "torch_profiler/two_ranks/rank1.json.gz",
    "run.sqlite": _FIXTURES / "nsys_sqlite/inference_2gpu_synthetic/trace.sqlite",
    "big.sqlite": _FIXTURES / "nsys_sqlite/inference_2gpu_synthetic/trace.sqlite",
    "big.json.gz": _TRACE,
    "runs/rocprof/trace_908_results.json": _FIXTURES / "rocprofv3/json_synthetic/7_results.json.gz",
    "runs/nsys/trace.sqlite": _FIXTURES / "nsys_sqlite/inference_2gpu_synthetic/trace.sqlite",
    "host.xplane.pb": _FIXTURES / "xplane/jax_train_cpu/steps.xplane.pb",
    "compiled/trace.json": _FIXTURES / "torch_trace_log/small_synthetic/trace.json",
    "compiled/compiler.log": _FIXTURES / "torch_trace_log/small_synthetic/compiler.log",
    "server/mlperf_log_detail.txt": _FIXTURES / "loadgen/server_cpu/mlperf_log_detail.txt",
    "offline/mlperf_log_detail.txt": _FIXTURES / "loadgen/offline_cpu/mlperf_log_detail.txt",
    "traces.json": _FIXTURES / "jaeger/mlmodelscope_leveled_synthetic/traces.json",
    "traces/one.json.gz": _TRACE,
    "traces/two.sqlite": _FIXTURES / "nsys_sqlite/nvtx_cpu/nvtx.sqlite",
}
_H100 = """[[device]]
name = "an H100 as its data sheet has it"
[device.peaks]
fp32 = 67e12
fp16_tensor = 989e12
dram = 3.35e12
"""
_WORK_MODELS = """[[model]]
operators = ["mylib::scale"]
operands = { x = 0 }
read = "bytes(x)"
"""
_BUNDLES = ("before.xsp", "after.xsp", "before1.xsp", "before2.xsp", "new.xsp")
_RUN_SETS = ("runs/convnet", "runs/r18", "fp32", "bf16")
_RANKS = 2


def fill(folder: Path) -> None:
    """Writes the files."""
    for name, source in _COPIES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    (folder / "fixtures").symlink_to(_FIXTURES)
    (folder / "h100.toml").write_text(_H100)
    (folder / "mine.toml").write_text(_WORK_MODELS)
    _stretch_sqlite(folder / "big.sqlite", 10_000)
    _stretch_json(folder / "big.json.gz", 1_000)
    trace = convert([_TRACE], Options())
    for number, name in enumerate(_BUNDLES):  # captures of one work: a nanosecond tells them apart
        spans = trace.frame("spans").with_columns(pl.col("duration_ns") + number * (pl.col("kind") == Kind.KERNEL))
        bundle.write(trace.with_tables({"spans": spans}), folder / name)
    for name in _RUN_SETS:
        _run_set(folder / name)
    for rank in range(_RANKS):
        _run_set(folder / f"runs/ddp/rank-{rank}", rank=rank, world_size=_RANKS)
    shutil.copyfile(folder / _RUN_SETS[0] / "m/run.json", folder / "m.json")
    for name in ("ml.json.gz", "mlg.json.gz"):
        shutil.copyfile(_TRACE, folder / name)


def _stretch_sqlite(path: Path, factor: int) -> None:
    """Makes all of it last longer, so that a part of seconds can be taken."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for _, column, *_ in list(database.execute(f"pragma table_info({table})")):
                if column in {"start", "end"}:
                    database.execute(f'update {table} set "{column}" = "{column}" * {factor}')  # noqa: S608 (our file)
        database.commit()


def _stretch_json(path: Path, factor: int) -> None:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    first = min(event["ts"] for event in trace["traceEvents"] if event.get("ph") == "X")
    for event in trace["traceEvents"]:
        event["ts"] = (event.get("ts", first) - first) * factor
        if "dur" in event:
            event["dur"] *= factor
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))


def _run_set(folder: Path, **more: int) -> None:
    """The same trace as layer run and kernel run, beside a run that only took times."""
    for level in ("M", "ML", "MLG"):
        run = folder / level.lower()
        run.mkdir(parents=True)
        files = [] if level == "M" else [{"path": "trace.json.gz"}]
        if files:
            shutil.copyfile(_TRACE, run / "trace.json.gz")
        described = {
            "schema_version": 1,
            "level": level,
            "model": {"name": "transformer"},
            "framework": {"name": "pytorch"},
            "batch_size": 8,
            "device": {"name": "NVIDIA H100 80GB HBM3 (synthetic)"},
            "counters": [],
            "serialized": False,
            "warmup_steps": 1,
            "steps": 4,
            "step_durations_ns": [900_000] * 4,
            "files": files,
            **more,
        }
        (run / "run.json").write_text(json.dumps(described))
