"""What people write themselves: one SQL statement over the file, kernels by name (sum, count, mean, extremes)."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

from benchmarks.programs.stopwatch import print_times

_QUERY = (
    'SELECT s.value, count(*), sum(k."end" - k.start), avg(k."end" - k.start), min(k."end" - k.start),'
    ' max(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName'
    " GROUP BY k.demangledName ORDER BY 3 DESC"
)

with (
    print_times("kernels by name"),
    closing(sqlite3.connect(f"file:{sys.argv[1]}?immutable=1", uri=True)) as connection,
):
    for row in connection.execute(_QUERY):
        print(*row, sep=",")
