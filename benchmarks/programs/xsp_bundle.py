"""XSP in process: opens a bundle and answers A10."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.programs.stopwatch import print_times
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import bundle

with print_times("open and A10"):
    trace = bundle.read(Path(sys.argv[1]))
    result = run(find("A10"), StepView.of(trace, "all"))
print(result.table.height, "kernels by name")
