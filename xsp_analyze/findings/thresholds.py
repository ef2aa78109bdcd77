"""From where on each finding speaks; each number says why it is this one.

Where the source is "our choice", the number says what is worth a reader's minute: a gain of a few percent of a step,
or a share that decides what to look at first. Findings are sorted by what is to be gained, so that a low threshold
adds lines at the end and hides nothing.
"""

from __future__ import annotations

__all__ = [
    "ATTRIBUTED_SHARE",
    "BATCH_GROWTH",
    "BELOW_ROOF",
    "CHAIN_SHARE",
    "COPY_SHARE",
    "DATA_SHARE",
    "DOMINANT_SHARE",
    "EXPOSED_SHARE",
    "FEW_STEPS",
    "FP32_SHARE",
    "IDLE_SHARE",
    "IMBALANCE",
    "MANY_KERNELS",
    "MEMORY_BOUND_SHARE",
    "OPTIMIZER_KERNELS",
    "ORPHAN_SHARE",
    "OVERHEAD_SHARE",
    "PAGEABLE_SHARE",
    "RECOMPUTE_SHARE",
    "ROOF_TIME_SHARE",
    "SHORT_SHARE",
    "STEP_SPREAD",
    "SYNC_SHARE",
]

IDLE_SHARE = 0.2
"""Of a step. Our choice; the rule `gpu_time_util` of Nsight Systems speaks only below half use."""

MANY_KERNELS = 50
"""A step. Our choice: below it, launches cost less than 0.5 ms at some 5 to 10 us each."""

SHORT_SHARE = 0.5
"""Of the kernels. Our choice: half of them end before the host could launch the next one."""

SYNC_SHARE = 0.02
"""Of a step, idle after the host waited. Our choice."""

PAGEABLE_SHARE = 0.01
"""Of a step. Our choice: it is cheap to mend (CUDA C++ Best Practices Guide, "Pinned Memory")."""

COPY_SHARE = 0.05
"""Of a step. Our choice."""

EXPOSED_SHARE = 0.05
"""Of a step. Our choice."""

DOMINANT_SHARE = 0.25
"""Of device time (of latency, for a layer). Our choice: by Amdahl's law, half of it is what twice the speed saves."""

ROOF_TIME_SHARE = 0.1
"""Of device time, as for FP32_SHARE."""

BELOW_ROOF = 0.5
"""Of the roof. Our choice; tuned matrix products reach 70 to 90 % of theirs."""

MEMORY_BOUND_SHARE = 0.5
"""Of device time: most of the model, so the model's own bound."""

FP32_SHARE = 0.1
"""Of device time. Our choice."""

CHAIN_SHARE = 0.05
"""Of device time, saved by fusion. Our choice."""

RECOMPUTE_SHARE = 0.1
"""Of device time. Our choice; full checkpointing costs about a quarter (one more forward in four forwards' work)."""

OPTIMIZER_KERNELS = 100
"""A step. Our choice: fused optimizers of PyTorch take a handful of kernels for all parameters."""

DATA_SHARE = 0.05
"""Of a step, idle while the next batch is awaited. Our choice."""

STEP_SPREAD = 0.1
"""Slowest less fastest step over the median of at least FEW_STEPS. Our choice."""

IMBALANCE = 0.1
"""Of the longest compute time among devices. Our choice."""

BATCH_GROWTH = 0.05
"""Throughput gained by the last doubling: XSP's own rule for the optimal batch size (A01)."""

ORPHAN_SHARE = 0.01
"""Of device time without a launch in the trace. Our choice: more than rounding and the trace's edges."""

ATTRIBUTED_SHARE = 0.5
"""Of device time in a layer; below it most of the work stands in no table over layers."""

OVERHEAD_SHARE = 0.1
"""Of a step, added by profiling. Our choice; from there on kernel times are still good, gaps between them are not."""

FEW_STEPS = 3
"""Steps that a mean needs before it has an interval (A01)."""
