"""torch-tb-profiler: what it does with a worker's file before its first page, kernels by name among it."""

from __future__ import annotations

import sys
import tempfile

from torch_tb_profiler.profiler.data import RunProfileData

from benchmarks.programs.stopwatch import print_times

with tempfile.TemporaryDirectory() as cache:
    with print_times("load"):
        profile = RunProfileData.parse("worker", None, sys.argv[1], cache)
    with print_times("answers"):
        profile.process()
        profile.analyze()
    print(profile.kernel_stat.to_csv())
