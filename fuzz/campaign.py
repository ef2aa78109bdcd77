"""A round of fuzzing of one format: workers one after the other, and what they found, once per cause."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FailureGroup", "Round", "fuzz_format"]

_TRIALS_PER_WORKER = 400  # so that what leaks or gathers does not add up
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class FailureGroup:
    """A failure: the first trial that showed it, how many did, and what was seen of it."""

    first: int
    count: int
    detail: str


@dataclass(slots=True)
class Round:
    """What a round did; `ended` counts trials by how they ended, `peak_bytes` is the largest worker's."""

    ended: Counter[str] = field(default_factory=Counter)
    failures: dict[str, FailureGroup] = field(default_factory=dict)
    peak_bytes: int = 0
    next: int = 0


def fuzz_format(name: str, *, first: int, seconds: float, trials: int = 1 << 40, answers_every: int = 0) -> Round:
    """Trials of a format until the time is over or there were enough; of some everything is asked (`worker.run`)."""
    result = Round(next=first)
    until, last = time.time() + seconds, first + trials
    while result.next < last and time.time() < until:
        _work(name, min(_TRIALS_PER_WORKER, last - result.next), until, result, answers_every)
    return result


def _work(name: str, count: int, until: float, result: Round, answers_every: int) -> None:
    command = [sys.executable, "-m", "fuzz.worker", name, str(result.next), str(count), str(until), str(answers_every)]
    started = result.next
    with subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as worker:
        records, errors = worker.communicate()
        code = worker.returncode
    reports = [json.loads(line) for line in records.splitlines()]
    for record in reports:
        if "kind" in record:
            _count(record, result)
    if code:
        at = reports[-1]["number"] if reports else started
        result.ended["failed"] += 1
        _add(result, f"the process died with {code}: {_where(errors)}", at, errors[-3000:])
        result.next = at + 1


def _count(record: dict[str, Any], result: Round) -> None:
    result.ended[record["kind"]] += 1
    result.peak_bytes = max(result.peak_bytes, record["peak"])
    result.next = record["number"] + 1
    if "cause" in record:
        _add(result, record["cause"], record["number"], record["detail"])


def _add(result: Round, cause: str, number: int, detail: str) -> None:
    if cause in result.failures:
        result.failures[cause].count += 1
    else:
        result.failures[cause] = FailureGroup(number, 1, detail)


def _where(errors: str) -> str:
    """Our innermost function in what the fault handler wrote, which lists it first."""
    ours = [line for line in errors.splitlines() if "/xsp_" in line]
    return ours[0].strip().rpartition("/")[2] if ours else errors.strip().rpartition("\n")[2][:200]
