"""`python -m tests.helpers.files_run top trace.json`: which of our files run for a command, and how many are imported.

A file runs where a function of it is called; class bodies and what importing alone does are not counted. The last line
on stderr is JSON: `run`, the functions called of each file by its name, and `imported`, a count of modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["TRACE", "files_run"]

TRACE = "fixtures/torch_profiler/graph_replay_synthetic/trace.json.gz"
_REPO = Path(__file__).resolve().parents[2]
_PACKAGES = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze")
_IS_FUNCTION = 0x1  # CO_OPTIMIZED: locals of its own; bodies of modules and classes have none


def files_run(*command: str) -> tuple[dict[str, list[str]], int]:
    """Our files that run for the command in a process of its own, each with its functions that do; modules imported."""
    program = [sys.executable, "-m", "tests.helpers.files_run", *command, "--no-cache"]
    ended = subprocess.run(program, cwd=_REPO, capture_output=True, text=True, check=True)
    counted = json.loads(ended.stderr.splitlines()[-1])
    return counted["run"], counted["imported"]


def _main() -> None:
    seen: dict[str, set[str]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & _IS_FUNCTION:
            seen.setdefault(frame.f_code.co_filename, set()).add(frame.f_code.co_name)

    from xsp.cli.main import main  # noqa: PLC0415 (imported as the command does, before it is watched)

    threading.setprofile(note)
    sys.setprofile(note)
    main(sys.argv[1:])
    sys.setprofile(None)
    names = {Path(os.path.relpath(name, _REPO)): functions for name, functions in seen.items()}
    files = {str(name): sorted(names[name]) for name in sorted(names) if name.parts[0] in _PACKAGES}
    imported = sum(name.split(".")[0] in _PACKAGES for name in sys.modules)
    sys.stderr.write(json.dumps({"run": files, "imported": imported}) + "\n")


if __name__ == "__main__":
    _main()
