"""What people write themselves: the json module, a DataFrame of the events, kernels by name. It links nothing."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pandas as pd

from benchmarks.programs.stopwatch import print_times

path = Path(sys.argv[1])
with print_times("load"):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        events = pd.DataFrame(json.load(file)["traceEvents"])
with print_times("answers"):
    kernels = events[events["cat"] == "kernel"].groupby("name")["dur"]
    print(kernels.agg(["count", "sum", "mean", "min", "max"]).sort_values("sum").to_csv())
