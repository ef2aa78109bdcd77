"""XSP in process: a trace into a linked one, by the scanner that its size chooses or (--plain) by the plain one."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.programs.stopwatch import measured
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.torch_profiler import scan_fast

if "--plain" in sys.argv:
    scan_fast.MIN_BYTES = 1 << 62
with measured("load"):
    trace = convert([Path(sys.argv[1])], Options())
print(trace.scan("spans").collect().height, "spans")
