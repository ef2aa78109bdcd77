"""Traces of captures of device graphs, and of their replays, as PyTorch's profiler writes them on ROCm and on CUDA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__ = [
    "COPY",
    "FILL",
    "Piece",
    "add_capture",
    "add_eager",
    "add_replay",
    "captured",
    "paired",
    "replayed",
    "replayed_layers",
]

COPY, FILL = "copy", "fill"
"""In place of a kernel's name: a copy and a memset."""

_SLOT_NS = 20_000


@dataclass(frozen=True)
class Piece:
    """A launch in an operator in a call of a module; an empty `layer` or `operator` is left out."""

    kernel: str
    layer: str = "Net_0"
    operator: str = "aten::op"
    shapes: tuple[tuple[int, ...], ...] | None = None
    grid: tuple[int, int, int] = (1, 1, 1)

    def renamed(self, kernel: str) -> Piece:
        """The same launch of another kernel."""
        return replace(self, kernel=kernel)


def add_capture(
    kineto: KinetoTrace, pieces: Sequence[Piece], start_ns: int, *, form: str = "hip", annotation: str | None = None
) -> int:
    """A graph's capture from `start_ns` on; gives its end. `form`: hip (launches say their kernels) or cuda."""
    end = start_ns + (len(pieces) + 3) * _SLOT_NS
    if annotation is not None:
        kineto.annotation(annotation, start_ns, end - start_ns)
    kineto.runtime(f"{form}StreamBeginCapture", start_ns + 1_000, 2_000)
    for position, piece in enumerate(pieces, 1):
        _add_launch(kineto, piece, start_ns + position * _SLOT_NS, form)
    kineto.runtime(f"{form}StreamEndCapture", end - _SLOT_NS, 2_000)
    return end


def _add_launch(kineto: KinetoTrace, piece: Piece, at_ns: int, form: str) -> int:
    if piece.layer:
        kineto.module(piece.layer, at_ns, 18_000)
    if piece.operator:
        kineto.operator(piece.operator, at_ns + 1_000, 16_000, shapes=piece.shapes)
    if piece.kernel in (COPY, FILL):
        call = "MemcpyAsync" if piece.kernel == COPY else "MemsetAsync"
        return kineto.runtime(f"{form}{call}", at_ns + 2_000, 5_000)
    if form == "cuda":
        return kineto.runtime("cudaLaunchKernel", at_ns + 2_000, 5_000)
    correlation = kineto.runtime("hipModuleLaunchKernel", at_ns + 2_000, 5_000)
    args = kineto.events[-1]["args"]
    assert isinstance(args, dict)
    args |= {"kernel": piece.kernel, "grid": list(piece.grid), "block": [64, 1, 1], "shared memory": 0}
    return correlation


def add_eager(kineto: KinetoTrace, pieces: Sequence[Piece], start_ns: int, *, form: str = "hip") -> int:
    """The same launches without a graph, each with its kernel at once; gives the end."""
    for position, piece in enumerate(pieces):
        correlation = _add_launch(kineto, piece, start_ns + position * _SLOT_NS, form)
        _add_work(kineto, piece.kernel, start_ns + position * _SLOT_NS + 8_000, 1_000, correlation, 7)
    return start_ns + len(pieces) * _SLOT_NS


def add_replay(
    kineto: KinetoTrace,
    kernels: Sequence[str],
    start_ns: int,
    *,
    form: str = "hip",
    annotation: str | None = None,
    streams: Sequence[int] | None = None,
    launched_in: str = "",
) -> int:
    """One replay of a graph: kernel i takes i + 1 us, one after the other; gives the end."""
    lengths = [(position + 1) * 1_000 for position in range(len(kernels))]
    end = start_ns + 10_000 + sum(lengths) + _SLOT_NS
    if annotation is not None:
        kineto.annotation(annotation, start_ns, end - start_ns)
    if launched_in:
        kineto.module(launched_in, start_ns, 9_000)
    correlation = kineto.runtime(f"{form}GraphLaunch", start_ns + 1_000, 5_000)
    now = start_ns + 10_000
    for position, (kernel, length) in enumerate(zip(kernels, lengths, strict=True)):
        _add_work(kineto, kernel, now, length, correlation, 7 if streams is None else streams[position])
        now += length
    return end


def _add_work(kineto: KinetoTrace, kernel: str, start_ns: int, length: int, correlation: int, stream: int) -> None:
    if kernel == COPY:
        name = "Memcpy DtoD (Device -> Device)"
        kineto.device(
            "gpu_memcpy", name, start_ns, length, correlation=correlation, stream_id=stream, args={"bytes": 8}
        )
    elif kernel == FILL:
        name = "Memset (Device)"
        kineto.device(
            "gpu_memset", name, start_ns, length, correlation=correlation, stream_id=stream, args={"bytes": 8}
        )
    else:
        kineto.kernel(kernel, start_ns, length, correlation=correlation, stream_id=stream)


def captured(
    graphs: Sequence[Sequence[Piece]], *, form: str = "hip", annotations: Sequence[str | None] | None = None
) -> KinetoTrace:
    """A trace of the capture of these graphs, in this order, and of nothing else."""
    kineto = KinetoTrace()
    now = 5_000_000
    for number, pieces in enumerate(graphs):
        now = add_capture(kineto, pieces, now, form=form, annotation=annotations[number] if annotations else None)
    return kineto


def replayed(
    replays: Sequence[Sequence[str]],
    *,
    form: str = "hip",
    annotations: Sequence[str | None] | None = None,
    streams: Sequence[int] | None = None,
) -> KinetoTrace:
    """A trace of these replays one after the other; `streams`: of the kernels of each."""
    kineto = KinetoTrace()
    now = 900_000_000
    for number, kernels in enumerate(replays):
        annotation = annotations[number] if annotations else None
        now = add_replay(kineto, kernels, now, form=form, annotation=annotation, streams=streams)
    return kineto


def paired(replay: KinetoTrace, captures: Sequence[KinetoTrace], folder: Path) -> Trace:
    """The trace of a file of replays with files of captures given beside it."""
    folder.mkdir(exist_ok=True)
    files = [capture.write(folder / f"capture{n}.json") for n, capture in enumerate(captures)]
    return convert([replay.write(folder / "replay.json")], Options(graph_captures=files))


def replayed_layers(trace: Trace) -> list[tuple[str, str | None]]:
    """Replayed work in order of start: kernel and layer (None: it has none)."""
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    layers = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    launches = spans.filter(pl.col("name").str.contains("GraphLaunch"))["span_id"]
    work = spans.filter(pl.col("parent_id").is_in(launches.implode()), pl.col("level") == "kernel")
    rows = work.sort("start_ns").join(layers, on="layer_id", how="left", maintain_order="left")
    layer = pl.when(pl.col("attribution") == "layer").then("layer_name").alias("layer_name")
    return rows.select("name", layer).rows()
