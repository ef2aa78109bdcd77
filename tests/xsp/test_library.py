"""What a library call leaves alone: the process of whoever makes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.report_trace import small_trace

_REPO = Path(__file__).resolve().parents[2]
_PROGRAM = """
import ctypes, json, os, resource, signal, sys
import polars, numba, pyarrow  # theirs is theirs

class Refusing(ctypes.CDLL):
    def __getattr__(self, name):
        assert name != "mallopt", "the allocator was set"
        return super().__getattr__(name)

ctypes.CDLL = Refusing

def process():
    return {
        "environment": dict(os.environ), "folder": os.getcwd(), "umask": os.umask(0o22),
        "signals": [str(signal.getsignal(one)) for one in signal.valid_signals()],
        "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)],
        "hooks": [str(one) for one in (sys.excepthook, sys.unraisablehook)],
        "recursion": sys.getrecursionlimit(),
    }

before = process()
import xsp
xsp.open(sys.argv[1], cache=False).analyze("A10")
after = process()
print(json.dumps({name: (before[name], after[name]) for name in before if before[name] != after[name]}))
"""


def test_opening_a_trace_changes_nothing_of_the_process(tmp_path: Path) -> None:
    small_trace(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "small.json")],
        cwd=_REPO, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(_REPO)},
    )  # fmt: skip
    assert json.loads(ran.stdout) == {}
