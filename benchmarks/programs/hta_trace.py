"""HTA: loads a trace, then its answers nearest to A10 and B03."""

from __future__ import annotations

import sys

from hta.trace_analysis import TraceAnalysis

from benchmarks.programs.stopwatch import print_times

with print_times("load"):
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
with print_times("answers"):
    print(analysis.get_temporal_breakdown(visualize=False).to_csv())
    for table in analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10_000):
        print(table.to_csv())
