"""Runs trials in a process of its own and reports them as JSON lines: the parent sees who died, hung or grew."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

from fuzz.trial import Failure, Outcome, compiled_readers, outcome_of, prepare

__all__ = ["MAX_BYTES", "MAX_SECONDS", "run"]

MAX_BYTES = 1_000_000_000
"""No trial may make the process larger."""

MAX_SECONDS = 60
"""No trial may take longer."""

_EXIT_TOO_LARGE = 77
_PAGE_BYTES = resource.getpagesize()


def run(format_name: str, first: int, count: int, until: float, answers_every: int) -> None:
    """Trials from the first one on, until there were `count` or the clock (time.time) says so.

    Of trials whose numbers `answers_every` divides, everything is asked of the trace; 0: of none.
    """
    threading.Thread(target=_watch_memory, daemon=True).start()
    warnings.simplefilter("error")
    folder = Path(tempfile.mkdtemp(prefix="xsp-fuzz-"))
    try:
        for number in range(first, first + count):
            if time.time() > until:
                break
            _say({"number": number})
            faulthandler.dump_traceback_later(MAX_SECONDS, exit=True)
            is_asked = answers_every and not number % answers_every
            outcome = _trial(format_name, number, folder, number if is_asked else None)
            faulthandler.cancel_dump_traceback_later()
            _say({"number": number, "kind": outcome.kind, "peak": _peak_bytes(), **_failure_record(outcome.failure)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trial(format_name: str, number: int, folder: Path, answers_seed: int | None) -> Outcome:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    paths, reader = prepare(format_name, number, folder)
    with compiled_readers(number):
        return outcome_of(paths, reader, answers_seed=answers_seed)


def _failure_record(failure: Failure | None) -> dict[str, str]:
    return {} if failure is None else {"cause": failure.cause, "detail": failure.detail}


def _say(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _peak_bytes() -> int:
    """Not `ru_maxrss`: that of a process begins at what its parent held when it started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _watch_memory() -> None:
    """Ends the process once it is too large, before the machine is."""
    with Path("/proc/self/statm").open("rb", buffering=0) as own:
        while True:
            own.seek(0)
            if int(own.read(200).split()[1]) * _PAGE_BYTES > MAX_BYTES:
                with contextlib.suppress(Exception):
                    faulthandler.dump_traceback(all_threads=True)
                os._exit(_EXIT_TOO_LARGE)
            time.sleep(0.02)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
