"""Facts and analyses of a trace are the same, to the last digit, with any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = """
from pathlib import Path
from xsp_analyze.cohort.facts import facts_of
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
for name in ("serving_synthetic", "transformer_train_cpu", "transformer_train_gpu_synthetic"):
    trace = convert([Path(f"fixtures/torch_profiler/{name}/trace.json.gz")], Options())
    print(facts_of(trace, name).to_json())
"""


_ALL = """
import xsp
for path in ("serving_synthetic", "transformer_train_gpu_synthetic"):
    trace = xsp.open(f"fixtures/torch_profiler/{path}/trace.json.gz")
    for name in trace.analyses().filter("answerable")["id"]:
        print(path, name, trace.analyze(name).to_polars().write_json())
"""


def _printed(code: str, threads: int) -> str:
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_facts_do_not_depend_on_the_number_of_threads() -> None:
    assert _printed(_CODE, 1) == _printed(_CODE, 4) != ""


@pytest.mark.slow
def test_analyses_do_not_depend_on_the_number_of_threads() -> None:
    one, *others = (_printed(_ALL, threads).splitlines() for threads in (1, 2, 4))
    assert len(one) > 100
    for other in others:
        assert [name for name, line in enumerate(one) if line != other[name]] == []
