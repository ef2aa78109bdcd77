"""XSP in process: every analysis of our own over one view of a bundle, each timed, in the catalog's order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.programs.stopwatch import print_times
from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError, bundle

_GROUPS = {"A01 to A15 and B01 to B06": r"A\d\d|B0[1-6]", "B07 to B14": r"B0[7-9]|B1\d"}

with print_times("open"):
    view = StepView.of(bundle.read(Path(sys.argv[1])))
for title, ids in _GROUPS.items():
    with print_times(title):
        for analysis in all_analyses():
            if not re.fullmatch(ids, analysis.id):
                continue
            try:
                with print_times(analysis.id):
                    rows = run(analysis, view).table.height
            except XspError as error:
                print(error.what)
            else:
                print(analysis.id, rows, "rows")
