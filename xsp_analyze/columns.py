"""Columns that several analyses share, so that one name means one thing."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from xsp_analyze.core import AMOUNT, TIME_NS, Column, Role

__all__ = [
    "ABOVE_ROOF",
    "ALLOCATED",
    "BATCH_SIZE",
    "BOUND_COLUMNS",
    "COUNT",
    "COUNTER_COLUMNS",
    "DURATION",
    "EXECUTION",
    "FILLED_COLUMNS",
    "KERNELS",
    "KERNEL_CLASS",
    "KERNEL_DURATION",
    "KERNEL_LABEL",
    "KERNEL_NAME",
    "KIND",
    "LATENCY",
    "LATENCY_BASIS",
    "LAYER_INDEX",
    "LAYER_LATENCY",
    "LAYER_NAME",
    "LAYER_TYPE",
    "MODEL_SHARE",
    "NON_KERNEL",
    "PRECISION",
    "ROOF_COLUMNS",
    "RUN",
    "STEP",
    "TYPE_KEY",
    "WORK_BASIS",
]

STEP = Column(
    "step", pl.Int64(), "Number of the step, where each is answered for itself.", role=Role.KEY, optional=True
)
RUN = Column("run_id", pl.Int64(), "The run (rank); there where a trace holds several.", role=Role.KEY, optional=True)
LAYER_INDEX = Column("layer_index", pl.Int64(), "The layer, in order of first own operator.", role=Role.KEY)
LAYER_NAME = Column("layer_name", pl.String(), "Name of the layer.", role=Role.LABEL)
LAYER_TYPE = Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL)
EXECUTION = Column("execution", pl.Int64(), "Number of the row, from 0.", role=Role.KEY)
KERNEL_NAME = Column("kernel_name", pl.String(), "Name of the kernel, copy or memset.", role=Role.KEY)
KIND = Column("kind", pl.String(), "kernel, memcpy, memset or graph (a whole replay).", role=Role.KEY)
KERNEL_LABEL = Column(
    "kernel_label", pl.String(), "Its name shortened for people: several kernels may share one.", role=Role.LABEL
)
KERNEL_CLASS = Column(
    "kernel_class",
    pl.String(),
    "What it does (matrix product, ...), by the operator that launched it, else by its name, else by its layer.",
    role=Role.LABEL,
)
COUNT = Column("count", AMOUNT, "How often it ran; in a mean step, per step on average.")
DURATION = Column(
    "duration_ns",
    TIME_NS,
    "Sum of the durations of the device work; each kernel is averaged over steps first where steps are averaged.",
    "ns",
)
MODEL_SHARE = Column(
    "model_share", pl.Float64(), "Its time over model latency, times the devices that its time is summed over."
)
BATCH_SIZE = Column("batch_size", pl.Int64(), "Inputs per step; null: unknown.", role=Role.KEY)
LATENCY_BASIS = Column(
    "latency_basis",
    pl.String(),
    "What latencies of steps are measured by: timed, device_period, device_end, host or load_test; of whole "
    "traces extent or sum.",
    role=Role.LABEL,
)
LAYER_LATENCY = Column(
    "layer_latency_ns",
    TIME_NS,
    "Time of the layer's calls outside the layers inside it: on the host in a serialised run, else on the device.",
    "ns",
)
LATENCY = Column(
    "latency_ns",
    TIME_NS,
    "Time outside the layers inside it: on the host in a serialised run, else on the device (see the provenance). Where"
    " no device worked, its backward operators count, too.",
    "ns",
)
ALLOCATED = Column(
    "allocated_bytes",
    AMOUNT,
    "Memory allocated in its calls outside the layers inside it; null: not recorded.",
    "byte",
)
TYPE_KEY = Column("layer_type", pl.String(), "What kind of layer.", role=Role.KEY)
KERNELS = Column("kernel_count", AMOUNT, "Device activities; in a mean step, per step on average.")
KERNEL_DURATION = Column(
    "kernel_duration_ns", TIME_NS, "Sum of the durations of its device work, backward work included.", "ns"
)
NON_KERNEL = Column(
    "non_kernel_ns", TIME_NS, "Latency less kernel duration, as it is: negative where kernels outlast it.", "ns"
)

COUNTER_COLUMNS = (
    Column("flop_count", pl.Float64(), "FP32 operations, measured; null: not measured.", "flop"),
    Column("dram_read_bytes", pl.Float64(), "Bytes read from device memory, measured; null: not measured.", "byte"),
    Column("dram_write_bytes", pl.Float64(), "Bytes written to device memory, measured; null: not measured.", "byte"),
    Column("achieved_occupancy", pl.Float64(), "Active warps over the most possible, weighted by duration, 0 to 1."),
    Column("arithmetic_intensity", pl.Float64(), "Flop per byte of device memory traffic.", "flop/byte"),
    Column("flop_per_s", pl.Float64(), "Arithmetic throughput over the time of the kernels measured.", "flop/s"),
    Column("memory_bound", pl.Boolean(), "Whether its intensity is below the device's peak flop/s over peak byte/s."),
)
"""The columns that hardware counters fill."""

BOUND_COLUMNS = (
    Column(
        "compute_utilization", pl.Float64(), "Busiest part of the multiprocessors over its peak, by counters, 0 to 1."
    ),
    Column("memory_utilization", pl.Float64(), "Busiest part of the memory path over its peak, likewise."),
    Column(
        "stall_reason", pl.String(), "What its warps wait for most, by counters; null: not measured.", role=Role.LABEL
    ),
    Column("stall_share", pl.Float64(), "Share of the cycles of its warps in which they wait for that."),
    Column(
        "occupancy_limiter",
        pl.String(),
        "What keeps more blocks from a multiprocessor: registers, shared memory, warps or blocks, by ncu.",
        role=Role.LABEL,
    ),
)
"""What bounds a kernel, by counters; of a layer means by time, and the limiter of its longest kernel."""

WORK_BASIS = Column(
    "work_basis",
    pl.String(),
    "Where flop and bytes are from: measured by counters, modelled from what operators took, or mixed; null: unknown.",
    role=Role.LABEL,
)
FILLED_COLUMNS = (
    replace(COUNTER_COLUMNS[0], doc="FP32 operations; null: neither measured nor modelled."),
    replace(COUNTER_COLUMNS[1], doc="Bytes read from device memory, measured; else what operators must read at least."),
    replace(COUNTER_COLUMNS[2], doc="Bytes written to it, likewise."),
    *COUNTER_COLUMNS[3:],
    WORK_BASIS,
)
"""COUNTER_COLUMNS where models fill in what was not measured."""

PRECISION = Column(
    "precision", pl.String(), "The precision of the work, and of the peak it is held against.", role=Role.KEY
)
ABOVE_ROOF = Column(
    "above_roof",
    pl.String(),
    "Why it took less than the least: fewer flop (kernels of Winograd or FFT, by name), caches (of what it reads and "
    "writes, the device's last cache can have held enough), switches (that add up for ranks), clock (of a GeForce "
    "card, above the one listed), rates (within 5 %); null: it did not.",
    role=Role.LABEL,
)
ROOF_COLUMNS = (
    Column("flop_count", pl.Float64(), "Operations in this precision, measured or else modelled.", "flop"),
    Column(
        "dram_read_bytes", pl.Float64(), "Bytes read from device memory, for work in every precision, likewise.", "byte"
    ),
    Column("dram_write_bytes", pl.Float64(), "Bytes written to device memory, likewise.", "byte"),
    Column("arithmetic_intensity", pl.Float64(), "Flop of this precision per byte of DRAM traffic.", "flop/byte"),
    Column("flop_per_s", pl.Float64(), "Throughput in this precision over the time of the kernels counted.", "flop/s"),
    Column(
        "ideal_intensity",
        pl.Float64(),
        "The roof's ridge: peak flop/s of this precision over peak byte/s; null: either is unknown.",
        "flop/byte",
    ),
    Column(
        "roof_flop_per_s",
        pl.Float64(),
        "The most possible at this intensity: the lesser of the peak and intensity x bandwidth.",
        "flop/s",
    ),
    Column(
        "roof_share",
        pl.Float64(),
        "Part of the roof that is reached; above 1 something is wrong. Of modelled work null there; B23 says why.",
    ),
    Column("bound", pl.String(), "memory below the ridge, compute from it on; null: unknown.", role=Role.LABEL),
    Column("roof", pl.String(), "Which roof that is and who says so, or what is unknown.", role=Role.LABEL),
    WORK_BASIS,
)
"""The columns that `roofline.under_roof` fills."""
