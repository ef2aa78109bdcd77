"""A small profile as `xsp merge` makes it, put together by hand: three runs of two layers, and counters."""

from __future__ import annotations

import polars as pl

from tests.helpers.report_trace import HOSTILE
from xsp_model import Attribution, Kind, Level, Trace, TraceBuilder

__all__ = ["profile"]

_ROLES = ("model", "layers", "kernels", "counters")
_STEP_NS = {"model": 100_000, "layers": 110_000, "kernels": 140_000}
_LAYER_NS = {"layers": 45_000, "kernels": 55_000}
_KERNEL_NS = {"layers": 20_000, "kernels": 30_000}
_KERNELS = {"Linear_0": "gemm", "ReLU_0": HOSTILE}
_STEPS = 3
_US = 1_000


def profile(*, counters: bool = True, without: str | None = None) -> Trace:
    """Three steps of two layers, `Linear_0` and `ReLU_0`, one kernel of 30 us in each; ReLU's has a hostile name.

    `without` leaves out the run of that role. The layers run happens to hold the kernels too, at 20 us, which no
    number may be made of.

    A step takes 100 us in the model run, 110 in the layers run (layers 45 each), 140 in the kernels run (55 each).
    A kernel does 60 MFLOP and moves 3 MB, of which it reads 2, on a device of 10 TFLOP/s and 1 TB/s.
    """
    builder = TraceBuilder()
    builder.add("runs", _runs().filter(pl.col("role") != (without or "")))
    builder.add("step_times", _step_times() if without != "model" else _step_times().clear())
    rows = [row for role in ("layers", "kernels") if role != without for row in _spans(role)]
    numbered = [(number, *row) for number, row in enumerate(rows)]
    at = {row[-1]: number for number, *row in numbered}
    columns = {
        "span_id": [n for n, *_ in numbered],
        "parent_id": [at.get(row[2]) for row in numbered],
        "run_id": [row[1] for row in numbered],
        "level": [row[3] for row in numbered],
        "kind": [row[4] for row in numbered],
        "name": [row[5] for row in numbered],
        "start_ns": [row[6] for row in numbered],
        "duration_ns": [row[7] for row in numbered],
        "step": [row[8] for row in numbered],
        "layer_id": [at.get(row[2]) if row[3] == str(Level.KERNEL) else None for row in numbered],
        "attribution": [str(Attribution.LAYER) if row[3] == str(Level.KERNEL) else None for row in numbered],
        "phase": ["forward" if row[3] == str(Level.KERNEL) else None for row in numbered],
        "device_id": [0 if row[3] == str(Level.KERNEL) else None for row in numbered],
    }
    builder.add("spans", pl.DataFrame(columns, schema_overrides={"layer_id": pl.Int64, "device_id": pl.Int64}))
    builder.add("layers", _layers([(n, row[5]) for row in numbered for n in [row[0]] if row[4] == str(Kind.MODULE)]))
    kernels = [row[0] for row in numbered if row[3] == str(Level.KERNEL) and row[1] == _ROLES.index("kernels")]
    if counters:
        builder.add("metrics", _metrics(kernels))
        builder.add("devices", _devices())
    return builder.build()


def _runs() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run_id": [0, 1, 2, 3],
            "role": list(_ROLES),
            "source_path": ["run.json", "ml.json", "mlg.json", "ncu.csv"],
            "level_captured": ["M", "ML", "MLG", "MLG+metrics"],
            "model": ["net"] * 4,
            "batch_size": [8] * 4,
            "serialised": [True] * 4,
            "layer_source": [None, "module", "module", None],
            "clock_origin_ns": [0] * 4,
        }
    )


def _step_times() -> pl.DataFrame:
    steps = list(range(_STEPS))
    return pl.DataFrame({"run_id": [0] * _STEPS, "step": steps, "duration_ns": [_STEP_NS["model"]] * _STEPS})


def _spans(role: str) -> list[tuple[int, object, str, str, str, int, int, int, object]]:
    """Rows of a run: run, key of the parent, level, kind, name, start, duration, step, key."""
    run = _ROLES.index(role)
    out: list[tuple[int, object, str, str, str, int, int, int, object]] = []
    for step in range(_STEPS):
        start, time = step * 200_000, _STEP_NS[role]
        key = (role, step)
        out.append((run, None, str(Level.MODEL), str(Kind.STEP), f"step {step}", start, time, step, key))
        for index, name in enumerate(("Linear_0", "ReLU_0")):
            begin, layer = start + 5 * _US + index * 60 * _US, (role, step, name)
            out.append((run, key, str(Level.LAYER), str(Kind.MODULE), name, begin, _LAYER_NS[role], step, layer))
            labels = (str(Level.KERNEL), str(Kind.KERNEL), _KERNELS[name])
            out.append((run, layer, *labels, begin + 10 * _US, _KERNEL_NS[role], step, (*layer, "kernel")))
    return out


def _layers(calls: list[tuple[int, str]]) -> pl.DataFrame:
    names = [name for _, name in calls]
    return pl.DataFrame(
        {
            "span_id": [span for span, _ in calls],
            "layer_index": [("Linear_0", "ReLU_0").index(name) for name in names],
            "layer_name": names,
            "layer_type": [name.partition("_")[0] for name in names],
            "source": ["module"] * len(calls),
            "is_container": [False] * len(calls),
            "self_host_ns": pl.Series([None] * len(calls), dtype=pl.Int64),
        }
    )


def _metrics(kernels: list[int]) -> pl.DataFrame:
    values = {"flop_count_sp": 60e6, "dram_read_bytes": 2e6, "dram_write_bytes": 1e6, "achieved_occupancy": 0.5}
    units = {"flop_count_sp": "flop", "dram_read_bytes": "byte", "dram_write_bytes": "byte", "achieved_occupancy": ""}
    rows = [(span, name, value, units[name], "ncu") for span in kernels for name, value in values.items()]
    return pl.DataFrame(rows, schema=["span_id", "metric", "value", "unit", "source"], orient="row")


def _devices() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run_id": [2],
            "device_id": [0],
            "name": ["A device"],
            "dram_byte_per_s": [1e12],
            "fp32_flop_per_s": [10e12],
            "peak_source": ["its data sheet"],
        }
    )
