"""Captures of a region, stored ones as a baseline, and what the rules of `xsp compare` say of both."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from xsp.comparing import Request, of_traces
from xsp.opening import load
from xsp.reading import Reading
from xsp_analyze.compare.rules import Several, parse
from xsp_analyze.pages.compare.files import terminal
from xsp_model import Trace

__all__ = [
    "DEFAULT_RULE",
    "Judgement",
    "Verdict",
    "folder_of",
    "judge_by_history",
    "judge_captures",
    "keep",
    "open_captures",
    "record",
    "stored_captures",
]

# Captures of a region held against those of a baseline, by the rules of `xsp compare`.

DEFAULT_RULE = "model.latency > +3%"
_ROWS = 5
_SIDES = ("baseline", "now")


class Verdict(StrEnum):
    """What a gate says of a change."""

    PASSED = "passed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and the comparison as a terminal shows it."""

    verdict: Verdict
    text: str
    ratio: float | None  # latency after over before; null: unknown


def open_captures(captures: Sequence[Path]) -> list[Trace]:
    """The trace of each capture; XspError where one cannot be read."""
    return [load([str(path)], Reading(), lambda _: None) for path in captures]


def judge_captures(
    before: Sequence[Trace], after: Sequence[Trace], rules: Sequence[str] = (DEFAULT_RULE,)
) -> Judgement:
    """What the rules say of these captures; XspError where they cannot be held against each other."""
    compared = of_traces(before, after, _SIDES, Request(rules=[parse(rule) for rule in rules]))
    several = Several([compared])
    verdict = Verdict.PASSED
    if several.any_violated or several.any_undecided:
        verdict = Verdict.REGRESSED if several.any_violated else Verdict.INCONCLUSIVE
    comparison = compared.comparison
    return Judgement(verdict, terminal(comparison, compared.outcomes, rows=_ROWS), comparison.latency.ratio)


def judge_by_history(
    store: str, captures: Sequence[Path], test: str, rules: Sequence[str] = (DEFAULT_RULE,), *, adds: bool
) -> Judgement:
    """What the rules say of these captures by the history of the test, its series; `adds` them where none is broken."""
    from xsp.history.adding import add_rows, facts_with_identity  # noqa: PLC0415 (only with a history)
    from xsp.history.judging import judge, parse_rule  # noqa: PLC0415
    from xsp.history.store import Store  # noqa: PLC0415
    from xsp_analyze.history.facts import Described  # noqa: PLC0415

    described = Described({"model": test})
    runs = [facts_with_identity(trace, described) for trace in open_captures(captures)]
    judged = judge(Store(store), runs, [parse_rule(rule) for rule in rules])
    verdict = Verdict(str(judged.verdict))
    if adds and verdict is not Verdict.REGRESSED:
        add_rows(Store(store), runs)
    ratio = judged.held.latency.ratio if judged.held else None
    return Judgement(verdict, judged.text, ratio)


# Captures of a region of PyTorch code on the CPU, several runs of it; torch is the user's.

_WARM_UP = 2


def record(region: Callable[[], object], folder: Path, *, captures: int, steps: int) -> list[Path]:
    """So many files, each of so many calls of the region as the steps of one torch.profiler session.

    ImportError: there is no torch.
    """
    from torch.profiler import ProfilerActivity, profile, schedule  # noqa: PLC0415 (the user's, and seconds to import)

    files = []
    for number in range(1, captures + 1):
        plan = schedule(wait=0, warmup=_WARM_UP, active=steps, repeat=1)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
            for _ in range(_WARM_UP + steps):
                region()
                profiler.step()
        files.append(folder / f"capture{number}.json.gz")
        profiler.export_chrome_trace(str(files[-1]))
    return files


# Where captures of a baseline are kept: a folder a test, which a repository or a CI's cache can hold.

_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAMES = "capture*"
_MAX_LENGTH = 80


def folder_of(baselines: Path, test: str) -> Path:
    """The folder of a test, by its id: readable, and no two tests have the same."""
    digest = hashlib.sha256(test.encode(errors="surrogateescape")).hexdigest()[:8]
    return baselines / f"{_UNNAMEABLE.sub('-', test).strip('-.')[-_MAX_LENGTH:]}-{digest}"


def stored_captures(folder: Path) -> list[Path]:
    """The captures of a baseline; none where there is none."""
    return sorted(folder.glob(_NAMES))


def keep(captures: Sequence[Path], folder: Path) -> None:
    """Puts these in place of what the folder holds, whole or not at all."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for number, capture in enumerate(captures, 1):
        shutil.copyfile(capture, new / f"capture{number:02}{''.join(capture.suffixes)}")
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
