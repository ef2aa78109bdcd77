"""What people write themselves: pandas over sqlite3, kernels by name."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

import pandas as pd

from benchmarks.programs.stopwatch import print_times

_QUERY = (
    'SELECT s.value AS name, k."end" - k.start AS duration FROM CUPTI_ACTIVITY_KIND_KERNEL k'
    " JOIN StringIds s ON s.id = k.demangledName"
)

with (
    print_times("kernels by name"),
    closing(sqlite3.connect(f"file:{sys.argv[1]}?immutable=1", uri=True)) as connection,
):
    durations = pd.read_sql(_QUERY, connection).groupby("name")["duration"]
    print(durations.agg(["count", "sum", "mean", "median", "min", "max", "std"]).to_csv())
