"""XSP in process: a trace into a linked one, with layers, phases and all tables, and the file's digest."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.programs.stopwatch import print_times
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

with print_times("load"):
    trace = convert([Path(sys.argv[1])], Options())
print(trace.scan("spans").collect().height, "spans")
