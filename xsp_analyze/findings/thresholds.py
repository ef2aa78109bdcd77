"""From where on each finding speaks; each number says why it is this one.

Where the source is "our choice", the number says what is worth a reader's minute: a gain of a few percent of a step,
or a share that decides what to look at first. Findings are sorted by what is to be gained, so that a low threshold
adds lines at the end and hides nothing.
"""

from __future__ import annotations

from xsp_analyze.frames.idle import SHORT_GAP_NS

__all__ = [
    "AHEAD_STEPS",
    "ATTRIBUTED_SHARE",
    "AT_BANDWIDTH",
    "BATCH_GROWTH",
    "BELOW_ROOF",
    "BREAKS",
    "BUCKET_BYTES",
    "BUSY_SHARE",
    "CALL_SHARE",
    "CHAIN_SHARE",
    "CLASS_SHARE",
    "COMPILE_SHARE",
    "COPY_SHARE",
    "DATA_SHARE",
    "DOMINANT_SHARE",
    "EXCESS_BANDWIDTH",
    "EXCESS_RATIO",
    "EXCESS_SHARE",
    "EXPLAINED",
    "EXPOSED_SHARE",
    "FAR_FROM_PEAK",
    "FAR_SHARE",
    "FEW_STEPS",
    "FLOOR",
    "FP32_SHARE",
    "IDLE_REST",
    "IDLE_SHARE",
    "IMBALANCE",
    "LAUNCH_GAP_NS",
    "LAUNCH_IDLE_SHARE",
    "LAUNCH_SHARE",
    "LITTLE_NS",
    "LONG_SHARE",
    "LOW_OCCUPANCY",
    "MANY_COPIES",
    "MANY_KERNELS",
    "MAX_EVIDENCE",
    "MEMORY_BOUND_SHARE",
    "MUCH_OF_IT",
    "OPTIMIZER_KERNELS",
    "ORPHAN_SHARE",
    "OUTLIER_SHARE",
    "OUTSIDE_SHARE",
    "OVERHEAD_SHARE",
    "PAGEABLE_SHARE",
    "PIPELINE_BUBBLE",
    "QUEUED_NS",
    "RECOMPUTE_SHARE",
    "REPLAY_SHARE",
    "ROOF_TIME_SHARE",
    "RUN_SPREAD",
    "SHORT_GRID_NS",
    "SLOWER_WITHOUT",
    "SMALL_BYTES",
    "SMALL_CALLS",
    "SMALL_COPY_BYTES",
    "SMALL_COPY_NS",
    "SMALL_GRID_NS",
    "SMALL_GRID_SHARE",
    "SMALL_NS",
    "STAGE_IMBALANCE",
    "START_UP_SHARE",
    "STEP_GAIN",
    "STEP_SPREAD",
    "STRAGGLER_CALLS",
    "STRAGGLER_WAIT",
    "SYNC_SHARE",
    "TAIL_SHARE",
    "TAIL_WASTE_SHARE",
    "TYPE_SHARE",
    "WAIT_SHARE",
]

IDLE_SHARE = 0.2
"""Of a step. Our choice; the rule `gpu_time_util` of Nsight Systems speaks only below half use."""
LONG_SHARE = 0.8
"""Of a step. Our choice: what is open for so long on the host says nothing of one moment in it."""
IDLE_REST = 0.1
"""Of a step. Our choice, half of that: findings share idle time out, so no large part of it is left out."""

MANY_KERNELS = 50
"""A step. Our choice: below it, launches cost less than 0.5 ms at some 5 to 10 us each."""

LAUNCH_GAP_NS = SHORT_GAP_NS
"""See there."""

LAUNCH_SHARE = 0.02
"""Of a step, in such gaps. Our choice, as for SYNC_SHARE."""

LAUNCH_IDLE_SHARE = 0.1
"""Of idle time, in such gaps. Our choice: where they are less of it, something else keeps the device waiting."""

BREAKS = 0.5
"""A step: in every second, so that a branch that few steps take counts, and a first step alone does not. Our choice."""

REPLAY_SHARE = 0.05
"""Of device time. Our choice: what layers miss by less changes no ranking of them."""

CLASS_SHARE = 0.05
"""Of device time, of a class that the verdict names. Our choice: what is less is not what a run is about."""

COMPILE_SHARE = 0.02
"""Of the steps after the first, idle while code is compiled. Our choice."""

SYNC_SHARE = 0.02
"""Of a step, idle after the host waited. Our choice."""

SMALL_COPY_BYTES = 65_536
"""A copy on average. CUDA copies up to 64 KiB from pageable memory at once, through a buffer of its commands."""

PAGEABLE_SHARE = 0.01
"""Of a step. Our choice: it is cheap to mend (CUDA C++ Best Practices Guide, "Pinned Memory")."""

SMALL_COPY_NS = 10_000
"""A copy on average. Our choice: of microseconds the start is most, which the host pays for too."""
MANY_COPIES = 1_000
"""Of a name in a file of sums. Our choice: fewer of that length take no time worth a word."""
COPY_SHARE = 0.05
"""Of a step. Our choice."""

EXPOSED_SHARE = 0.04
"""Of a step. Our choice."""

DOMINANT_SHARE = 0.25
"""Of device time (of latency, for a layer). Our choice: by Amdahl's law, half of it is what twice the speed saves."""

ROOF_TIME_SHARE = 0.1
"""Of device time, as for FP32_SHARE."""

EXCESS_RATIO = 2.0
"""Times the bytes that shapes ask for. Our choice: tuned kernels that read operands again stay below it."""

EXCESS_BANDWIDTH = 0.5
"""Of the memory's bandwidth in use: below it traffic is not what an operator waits for. Our choice."""

EXCESS_SHARE = 0.02
"""Of a step, saved without that traffic. Our choice."""

BELOW_ROOF = 0.5
"""Of the roof. Our choice; tuned matrix products reach 70 to 90 % of theirs."""

MEMORY_BOUND_SHARE = 0.5
"""Of device time: most of the model, so the model's own bound."""

FP32_SHARE = 0.1
"""Of the time of kernels, communication aside. Our choice."""

CHAIN_SHARE = 0.05
"""Of device time, saved by fusion. Our choice."""

TAIL_SHARE = 0.1
"""Of a kernel's time: at most five waves, half of the last one empty. Our choice; Nsight Compute speaks from 0.2 on."""

TAIL_WASTE_SHARE = 0.02
"""Of a step, lost to such tails as estimated. Our choice."""

SMALL_GRID_NS = 20_000
"""Our choice: shorter kernels mostly start and end, and more blocks would not make them shorter."""

SHORT_GRID_NS = 5_000
"""Our choice, of kernels that are most of what a device does: below it a kernel is little but its start and end."""

SMALL_GRID_SHARE = 0.02
"""Of a step, as estimated. Our choice, as for TAIL_WASTE_SHARE."""

LOW_OCCUPANCY = 0.4
"""Of the warps that a multiprocessor holds. Our choice."""

RECOMPUTE_SHARE = 0.1
"""Of device time. Our choice; full checkpointing costs about a quarter (one more forward in four forwards' work)."""

OPTIMIZER_KERNELS = 100
"""A step. Our choice: fused optimizers of PyTorch take a handful of kernels for all parameters."""

DATA_SHARE = 0.05
"""Of a step, idle while the next batch is awaited. Our choice."""

STEP_GAIN = 0.03
"""Of a step, that the mean is above the fastest. Our choice: one step off among others that agree is no pattern."""

STEP_SPREAD = 0.1
"""Between the slowest and the fastest tenth of at least FEW_STEPS, over the median. Our choice."""

IMBALANCE = 0.1
"""Of the longest compute time among devices. Our choice."""

STAGE_IMBALANCE = 0.05
"""Of the mean over stages. Our choice: smaller than IMBALANCE, as every micro-batch waits for it."""

PIPELINE_BUBBLE = 0.15
"""Of the time of a pipeline's stages. Our choice: 1F1B has it with under six micro-batches a stage."""

BATCH_GROWTH = 0.05
"""Throughput gained by the last doubling: XSP's own rule for the optimal batch size (A01)."""

MAX_EVIDENCE = 3
"""Rows that a finding quotes of what it counts: those of most time, to begin with; the analysis has all."""

FLOOR = 0.01
"""Of a step: what gains less is not told. Our choice: a finding takes a reader's minute."""

CAPTURING = 0.2
"""Part of the recording from which on it is of graphs being captured, where none is launched more often."""
EXPLAINED = 0.5
"""Of what a finding would gain: where another explains as much, it is not told. Most of it."""

MUCH_OF_IT = 0.25
"""Of the time that a finding of unknown gain is about: from there on one that knows its gain is told before it."""

AHEAD_STEPS = 0.5
"""Steps that the device is behind the host at the end of the last step. Our choice."""

STRAGGLER_WAIT = 0.5
"""Of the waiting, for one rank. Most of it."""

STRAGGLER_CALLS = 3
"""That one rank comes last to. To one or two somebody always does."""

OUTLIER_SHARE = 0.5
"""Of all communication of a device, in one call of several. Most of it."""

WAIT_SHARE = 0.02
"""Of a step, in which ranks wait for one. Our choice."""

SMALL_CALLS = 32
"""Collectives of one kind a step. Our choice; gradients of a billion parameters in FP32 are 160 buckets of 25 MiB, but
those are not small."""

SMALL_BYTES = 1 << 20
"""Mean size of a message that latency, not bandwidth, decides on: below some MiB (nccl-tests, curves of bandwidth)."""

SMALL_NS = 100_000
"""Mean time of a collective, where its size is not known. Our choice."""

BUCKET_BYTES = 25 << 20
"""PyTorch's DistributedDataParallel: bucket_cap_mb."""

BUSY_SHARE = 0.8
"""Of a step: a device that is busy. Our choice."""

FAR_FROM_PEAK = 0.4
"""Of the peak that products reach. Our choice; tuned ones reach 70 to 90 %."""

FAR_SHARE = 0.05
"""Of a step, between that and the peak's time. Our choice."""

TYPE_SHARE = 0.05
"""Of a step, saved by halving the traffic. Our choice."""

AT_BANDWIDTH = 0.5
"""Of the bandwidth of device memory, from which on an operator counts as bound by it. Our choice."""

QUEUED_NS = 1_000_000
"""Our choice: a launch takes microseconds to reach a device with nothing to do, never a millisecond."""

CALL_SHARE = 0.1
"""Of idle time: a call of the host that explains as much is named. Our choice."""

ORPHAN_SHARE = 0.01
"""Of device time without a launch in the trace. Our choice: more than rounding and the trace's edges."""

ATTRIBUTED_SHARE = 0.5
"""Of device time in a layer; below it most of the work stands in no table over layers."""

OVERHEAD_SHARE = 0.1
"""Of a step, added by profiling. Our choice; from there on kernel times are still good, gaps between them are not."""

LITTLE_NS = 1_000_000
"""Of device work without steps, in less than MANY_KERNELS: of that a verdict is on a program's first moments."""

OUTSIDE_SHARE = 0.05
"""Of device work, outside of steps. Our choice: what is less changes no ranking."""

START_UP_SHARE = 0.05
"""Of a trace without steps, what is told as start-up. Our choice."""
FEW_STEPS = 3
"""Steps that a mean needs before it has an interval (A01)."""

SLOWER_WITHOUT = 0.05
"""Of a step under a profiler, that one without takes longer. Our choice: what repeated runs differ by is less."""

RUN_SPREAD = 0.2
"""Of the median step without a profiler, between quartiles. Our choice: levels then differ by chance."""


HOST_SHARE = 0.1
"""Of the time on the host that operators of one kind take. Our choice."""

MANY_SHORT = 1_000
"""Operators of a step that do little each. Our choice."""

SHORT_NS = 10_000
"""Our choice: an operator that does so little on average is mostly its call."""

STALLED_SHARE = 0.4
"""Of the cycles of a layer's warps, waiting for one thing. Our choice: balanced kernels have several reasons."""

STALLED_DEVICE_SHARE = 0.05
"""Of device time, of a layer that is told for what its warps wait for. Our choice."""
