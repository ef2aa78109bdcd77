"""Traces built by hand, span by span, and the one whose answers the tests work out on paper."""

from __future__ import annotations

from typing import Any

import polars as pl

from xsp_model import Trace, TraceBuilder

__all__ = ["US", "Hand", "paper_run", "paper_trace", "total", "waiting_loop"]

US = 1_000


def total(column: pl.Series) -> float:
    """The sum; of integers an integer."""
    numbers: list[float] = column.to_list()
    return sum(numbers)


class Hand:
    """Collects spans and their details, then builds the trace."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"runs": [], "spans": [], "layers": [], "kernels": []}
        self.extra: dict[str, list[dict[str, Any]]] = {"metrics": [], "devices": []}

    def run(self, run_id: int = 0, **facts: Any) -> None:  # noqa: ANN401 (columns of the table, whatever they are)
        self.rows["runs"].append({"run_id": run_id, "clock_origin_ns": 0, **facts})

    def span(self, level: str, kind: str, name: str, start: int, duration: int, **columns: Any) -> int:  # noqa: ANN401
        span_id = len(self.rows["spans"])
        row = {"span_id": span_id, "run_id": 0, "process_id": 1, "level": level, "kind": kind, "name": name}
        self.rows["spans"].append({**row, "start_ns": start, "duration_ns": duration, **columns})
        return span_id

    def step(self, number: int, start: int, duration: int, **columns: Any) -> int:  # noqa: ANN401
        return self.span("model", "step", f"ProfilerStep#{number}", start, duration, step=number, **columns)

    def module(
        self,
        path: str,
        start: int,
        duration: int,
        index: int | None = None,
        *,
        self_host: int | None = None,
        **columns: Any,  # noqa: ANN401
    ) -> int:
        """A module call; a container is one with `self_host` given."""
        name = path.rsplit(".", maxsplit=1)[-1]
        memory = columns.pop("allocated_bytes", None)
        span_id = self.span("layer", "module", name, start, duration, **{"phase": "forward", **columns})
        self.rows["layers"].append(
            {
                "span_id": span_id,
                "layer_index": index,
                "layer_name": name,
                "layer_type": name.split("_", maxsplit=1)[0],
                "path": path,
                "source": "module",
                "is_container": self_host is not None,
                "self_host_ns": duration if self_host is None else self_host,
                "allocated_bytes": memory,
            }
        )
        return span_id

    def work(
        self,
        name: str,
        start: int,
        duration: int,
        *,
        launch: int | None = None,
        parent: int | None = None,
        layer: int | None = None,
        kind: str = "kernel",
        grid: int | None = None,
        **columns: Any,  # noqa: ANN401
    ) -> int:
        """Device work, with its launch (at time `launch`, inside `parent`) where one is given."""
        shared: dict[str, Any] = {key: columns[key] for key in ("run_id", "step", "phase") if key in columns}
        shared |= {"thread_id": columns.pop("thread_id")} if "thread_id" in columns else {}  # of the launch
        call = None
        if launch is not None:
            call = self.span("runtime", "call", "cudaLaunchKernel", launch, 5, parent_id=parent, **shared)
        attribution = columns.pop("attribution", "model_only" if layer is None else "layer")
        device = {"device_id": 0, "stream_id": 7, "attribution": attribution, "layer_id": layer, "parent_id": call}
        span_id = self.span("kernel", kind, name, start, duration, **{**device, **columns})
        if grid is not None:
            shape = {"grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1}
            self.rows["kernels"].append({"span_id": span_id, **shape})
        return span_id

    def metric(self, span_id: int, metric: str, value: float) -> None:
        row = {"span_id": span_id, "metric": metric, "value": value, "unit": "1", "source": "measured by a test"}
        self.extra["metrics"].append(row)

    def build(self, *, shuffle: int | None = None, shift: int = 0) -> Trace:
        """The trace; `shuffle` is a seed for another order of rows, `shift` moves all times."""
        builder = TraceBuilder()
        for table, rows in {**self.rows, **self.extra}.items():
            if not rows:
                continue
            frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
            if table == "spans":
                frame = frame.with_columns(pl.col("start_ns") + shift)
            builder.add(table, frame if shuffle is None else frame.sample(fraction=1, shuffle=True, seed=shuffle))
        return builder.build()


def waiting_loop(*, steps: int = 3, kernel_us: int = 400, host_us: int = 300, sync: bool = True) -> Hand:
    """Steps in which the host works, launches a kernel (10 us later it runs), and waits for it, or not.

    Input is fetched for 100 us, then an operator of `host_us` launches at its end; the call takes 5 us.
    """
    hand = Hand()
    hand.run(0)
    step_us = 100 + host_us + 5 + (kernel_us + 15 if sync else 0)
    for number in range(steps):
        at = number * step_us * US
        hand.step(number, at, step_us * US, thread_id=1)
        hand.span("operator", "operator", "DataLoader.__next__", at, 100 * US, thread_id=1, step=number)
        hand.span("operator", "operator", "aten::mm", at + 100 * US, host_us * US, thread_id=1, step=number)
        begin = at + (100 + host_us) * US
        call = hand.span("runtime", "call", "cudaLaunchKernel", begin, 5 * US, thread_id=1, step=number)
        hand.span(
            "kernel", "kernel", "sgemm_128", begin + 10 * US, kernel_us * US, parent_id=call, device_id=0,
            stream_id=7, attribution="model_only", step=number,
        )  # fmt: skip
        if sync:
            hand.span(
                "runtime", "call", "cudaDeviceSynchronize", begin + 5 * US, (kernel_us + 15) * US, thread_id=1,
                step=number,
            )  # fmt: skip
    return hand


def paper_run(hand: Hand, run_id: int = 0) -> None:
    """Two steps of one run: 1 at [0, 1000) and 2 at [1000, 2200), alike but for some durations.

    Net_0 (no own work) holds Linear_0 (index 0: 200 ns) and Block_0 (index 2: 370 ns, 170 of them its own), which
    holds Linear_1 (index 1: 200 ns). Device work, in step 1 and step 2:

        Linear_0  gemm 100, 120 and gemm 30, 30 (same grid); backward gemm_bw 60, 60, launched outside of modules
        Linear_1  gemm 50, 70 (another grid)
        Block_0   add 20, 20
        no layer  memcpy 10, 10
        replayed  only in step 2: replay 5 and 5, one launch
        orphan    early 7, before the window, in no step
    """
    at: dict[str, Any] = {"run_id": run_id}
    hand.work("early", 2, 7, attribution="orphan_before_window", **at)
    for number, start, length, first, second in ((1, 0, 1000, 100, 50), (2, 1000, 1200, 120, 70)):
        here = {**at, "step": number}
        step = hand.step(number, start, length, **at)
        hand.work("copy", start + 12, 10, launch=start + 5, parent=step, kind="memcpy", **here)
        net = hand.module("Net_0", start + 10, 790, self_host=220, parent_id=step, **here)
        linear = hand.module("Net_0.Linear_0", start + 20, 200, 0, parent_id=net, allocated_bytes=64, **here)
        block = hand.module("Net_0.Block_0", start + 230, 370, 2, self_host=170, parent_id=net, **here)
        inner = hand.module("Net_0.Block_0.Linear_1", start + 240, 200, 1, parent_id=block, allocated_bytes=32, **here)
        forward = {**here, "phase": "forward"}
        hand.work("gemm", start + 50, first, launch=start + 30, parent=linear, layer=linear, grid=4, **forward)
        hand.work("gemm", start + 180, 30, launch=start + 100, parent=linear, layer=linear, grid=4, **forward)
        hand.work("gemm", start + 250, second, launch=start + 245, parent=inner, layer=inner, grid=8, **forward)
        hand.work("add", start + 510, 20, launch=start + 500, parent=block, layer=block, grid=1, **forward)
        backward = {**here, "phase": "backward"}
        hand.work("gemm_bw", start + 830, 60, launch=start + 820, parent=step, layer=linear, grid=4, **backward)
    replay = hand.span("runtime", "call", "cudaGraphLaunch", 1900, 5, parent_id=step, **here)
    for offset in (10, 20):
        hand.work("replay", 1900 + offset, 5, attribution="graph_replay", grid=2, **here, parent_id=replay)


def paper_trace(**build: Any) -> Trace:  # noqa: ANN401
    """The trace of `paper_run`, alone."""
    hand = Hand()
    hand.run(0, batch_size=8, source_path="paper.json", layer_source="module")
    paper_run(hand)
    return hand.build(**build)
