"""Every function that comes compiled: what `python -m xsp_ingest.machine.build` makes, in the order of the library."""

from __future__ import annotations

from xsp_ingest.formats.torch_profiler.compiled.columns import SCAN_EVENTS
from xsp_ingest.formats.xplane.scan import SCAN_LINES
from xsp_ingest.link.nest import NESTING
from xsp_ingest.link.spans import CLIMB
from xsp_ingest.machine.paths import LATEST_TIMES, LONGEST_PATHS, NODE_ORDER
from xsp_ingest.machine.sqlite.reader import READ_LEAVES

__all__ = ["FUNCTIONS"]

FUNCTIONS = (SCAN_EVENTS, READ_LEAVES, NESTING, CLIMB, SCAN_LINES, NODE_ORDER, LONGEST_PATHS, LATEST_TIMES)
