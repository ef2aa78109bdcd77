"""XSP in process: what a load of HTA's gives: events in columns, the launch of each activity, the step of each event.

Beyond that it is the parent of each span; not made are layers, phases, the tables of a bundle, the file's digest.
`--plain`: with the JSON decoded by msgspec, nothing compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.programs.stopwatch import print_times
from xsp_ingest.formats.torch_profiler import TORCH_PROFILER
from xsp_ingest.ingester import Options
from xsp_ingest.link.forest import grow
from xsp_model.limits import override_limits

plain = {"compiled_min_bytes": 1 << 62} if "--plain" in sys.argv else {}
with override_limits(**plain), print_times("load"):
    forest, _ = grow(TORCH_PROFILER.read(Path(sys.argv[1]), Options()))
print(forest.spans.height, "spans,", forest.spans["step"].n_unique(), "steps,", (forest.parent >= 0).sum(), "links")
