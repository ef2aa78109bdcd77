"""The facts of a trace are the same, to the last digit, with any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

_CODE = """
from pathlib import Path
from xsp_analyze.cohort.facts import facts_of
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
for name in ("serving_synthetic", "transformer_train_cpu", "transformer_train_gpu_synthetic"):
    trace = convert([Path(f"fixtures/torch_profiler/{name}/trace.json.gz")], Options())
    print(facts_of(trace, name).to_json())
"""


def _facts(threads: int) -> str:
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads)}
    command = [sys.executable, "-c", _CODE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_facts_do_not_depend_on_the_number_of_threads() -> None:
    assert _facts(1) == _facts(4) != ""
