"""`python -m benchmarks.history`: which changes `xsp history` finds, in how many runs, how often wrongly, at what cost.

Without options: series of step times with planted changes, as the tables of docs/history.md. `--cost` makes a store of
10,000 runs and measures the command; `--real` captures 60 runs of CPU work with torch, slower from the middle on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.history.changes import Change, Kind, changes_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Floats

_NEAR = 3  # runs from where the change is: as close as it must be found
_OUTLIER = 0.15
_BURSTS = 0.15  # of the runs of a noisy machine
_STEP_NS = 1e7


@dataclass(frozen=True)
class Series:
    """Step times of runs: how noisy, how much each is like the one before, and what is planted in them."""

    label: str
    runs: int
    noise: float = 0.01
    correlation: float = 0.0
    bursts: float = 1.0  # how many times noisier runs are, of which a machine has a few
    drift: float = 0.0
    drifting: tuple[float, float] = (0.0, 1.0)  # in which part of the runs
    changes: Sequence[tuple[float, float]] = ()  # where, as a part of the runs, and by how much
    outliers: int = 0

    def draw(self, random: np.random.Generator) -> Floats:
        """One such series."""
        noise = random.normal(size=self.runs)
        for run in range(1, self.runs):
            noise[run] = self.correlation * noise[run - 1] + np.sqrt(1 - self.correlation**2) * noise[run]
        noise *= self.noise * np.where(random.random(self.runs) < _BURSTS, self.bursts, 1.0)
        begin, end = self.drifting
        noise += self.drift * np.clip((np.arange(self.runs) / self.runs - begin) / (end - begin), 0, 1)
        for run, size in self.planted_changes:
            noise[run:] += np.log1p(size)
        noise[random.choice(self.runs, self.outliers, replace=False)] += _OUTLIER
        values: Floats = _STEP_NS * np.exp(noise)
        return values

    @property
    def planted_changes(self) -> list[tuple[int, float]]:
        """The first run of each change, and by how much it is."""
        return [(round(self.runs * where), size) for where, size in self.changes]


def _is_same(change: Change, planted: tuple[int, float]) -> bool:
    run, size = planted
    return change.kind is Kind.STEP and abs(change.at - run) <= _NEAR and (change.ratio > 1) == (size > 0)


def _detection(series: Series, times: int) -> tuple[float, float]:
    """The share of planted changes that are found where they are, and others found a thousand runs."""
    random, hits, others = np.random.default_rng(36), 0, 0
    for _ in range(times):
        changes = changes_in(series.draw(random))
        hits += sum(any(_is_same(each, planted) for each in changes) for planted in series.planted_changes)
        others += sum(not any(_is_same(each, planted) for planted in series.planted_changes) for each in changes)
    share = hits / (times * len(series.planted_changes)) if series.planted_changes else float("nan")
    return share, 1000 * others / (times * series.runs)


def print_detection(times: int) -> None:
    """How often a change is found, by its size, the noise and the runs after it; 60 runs before."""
    after = (4, 8, 15, 30, 60)
    print(
        f"| change | noise of runs | {' | '.join(f'{n} runs after' for n in after)} |\n|---|---|{'---|' * len(after)}"
    )
    for size in (0.01, 0.02, 0.05):
        for noise in (0.005, 0.01, 0.02):
            each = [Series("", 60 + n, noise, changes=[(60 / (60 + n), size)]) for n in after]
            print(
                f"| {size:.0%} | {noise:.1%} | {' | '.join(f'{_detection(one, times)[0]:.0%}' for one in each)} |",
                flush=True,
            )


def print_shapes(times: int) -> None:
    """What is found in series of other shapes, and false changes a thousand runs."""
    plain = Series("no change", 100)
    shapes = [
        *(replace(plain, label=f"no change, {n} runs", runs=n) for n in (30, 100, 1000)),
        replace(plain, label="no change, runs alike (correlation 0.3)", correlation=0.3),
        replace(plain, label="no change, runs alike (correlation 0.6)", correlation=0.6),
        replace(plain, label="no change, 30 runs alike (correlation 0.6)", runs=30, correlation=0.6),
        replace(plain, label="no change, a noisy machine (15 % of runs four times as noisy)", bursts=4.0),
        replace(plain, label="no change, one outlier of 15 %", outliers=1),
        replace(plain, label="no change, five outliers of 15 %", outliers=5),
        replace(plain, label="5 % in the middle, a noisy machine", bursts=4.0, changes=[(0.5, 0.05)]),
        replace(plain, label="5 % in the middle, five outliers", outliers=5, changes=[(0.5, 0.05)]),
        replace(plain, label="5 % up, 5 % down 10 runs later", changes=[(0.5, 0.05), (0.6, -0.05)]),
        replace(plain, label="5 % up, 5 % up 10 runs later", changes=[(0.5, 0.05), (0.6, 0.05)]),
        replace(plain, label="3 % with a new driver, 2 % back 30 runs later", changes=[(0.4, 0.03), (0.7, -0.02)]),
    ]
    print("| series | planted changes found | other changes a thousand runs |\n|---|---|---|")
    for shape in shapes:
        share, others = _detection(shape, times if shape.runs <= 100 else times // 5)  # noqa: PLR2004
        print(f"| {shape.label} | {'' if np.isnan(share) else f'{share:.0%}'} | {others:.2f} |", flush=True)
    random = np.random.default_rng(36)
    all_runs, middle = (0.0, 1.0), (0.3, 0.7)
    for size, runs, part in ((0.05, 100, all_runs), (0.1, 100, all_runs), (0.1, 1000, all_runs), (0.1, 100, middle)):
        series = replace(plain, runs=runs, drift=size, drifting=part)
        drifts = [changes_in(series.draw(random)) for _ in range(times // 5)]
        named = sum(any(each.kind is Kind.DRIFT for each in changes) for changes in drifts) / len(drifts)
        steps = 1000 * sum(each.kind is Kind.STEP for changes in drifts for each in changes) / (len(drifts) * runs)
        print(
            f"| a drift of {size:.0%} over {round(runs * (part[1] - part[0]))} of {runs} runs (found: called a drift)"
            f" | {named:.0%} | {steps:.2f} |",
            flush=True,
        )


def print_nightly(nights: int, times: int) -> None:
    """False changes where the page is made each night: how many different ones a thousand nights show."""
    random, shown_count = np.random.default_rng(36), 0
    for _ in range(times):
        values, seen = Series("", nights).draw(random), set[int]()
        for night in range(8, nights + 1):
            for each in changes_in(values[:night]):
                if not any(abs(each.at - one) <= _NEAR for one in seen):
                    seen.add(each.at)
        shown_count += len(seen)
    print(
        f"\nLooked at each night, {nights} nights: {1000 * shown_count / (nights * times):.2f} false ones a thousand."
    )


def print_cost(runs: int) -> None:
    """What a store of so many runs costs: size, time and memory of reading it, and of the page."""
    from benchmarks.history_store import fill  # noqa: PLC0415 (opens a trace)
    from xsp.history.store import Store  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/store")
        for seed, model in enumerate(("transformer", "resnet50", "bert")):
            factors = 1 + np.random.default_rng(seed).normal(size=runs // 3) * 0.008
            factors[runs // 5 :] *= 1.04
            fill(store, model, factors.tolist(), seed)
        size = sum(file.stat().st_size for file in Path(store.location).iterdir())
        print(f"{len(store.runs())} runs, {size / 1e6:.1f} MB")
        read = f"import xsp.history as h; f = h.open({store.location!r}).facts(); print(f.shape)"
        show = ["-m", "xsp", "history", "show", store.location, "-o", f"{folder}/history.html"]
        for label, command in (("facts() in Python", ["-c", read]), ("xsp history show", show)):
            print(f"{label}: {_costs([sys.executable, *command])}")


def _costs(command: Sequence[str]) -> str:
    """Wall and processor time, and peak memory, of a command of its own."""
    code = (
        "import json,resource,subprocess,sys,time; t=time.time();"
        "subprocess.run(sys.argv[1:],check=True,capture_output=True);"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(json.dumps([time.time()-t,u.ru_utime+u.ru_stime,u.ru_maxrss/1000]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    wall, processor, peak = json.loads(done.stdout)
    return f"{wall:.1f} s, {processor:.1f} s of processor time, {peak:.0f} MB"


_WORK = """
import sys, pathlib, torch
from xsp.gating.gate import record
torch.manual_seed(0), torch.set_num_threads(1)
layers = torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.LayerNorm(256)
model, x, repeats = torch.nn.Sequential(*layers), torch.randn(64, 256), int(sys.argv[1])
def step():
    y = x
    for _ in range(20):
        y = model(y)
    for _ in range(repeats):
        torch.softmax(x @ x.T, dim=-1)
with torch.no_grad():
    print(record(step, pathlib.Path(sys.argv[2]), captures=1, steps=30)[0])
"""


def print_real(captures: int) -> None:
    """Captures of CPU work in processes of their own, with more softmax from the middle on, through the command."""
    history = [sys.executable, "-m", "xsp", "history"]
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        for number in range(captures):
            repeats = "4" if number < captures // 2 else "16"
            work = [sys.executable, "-c", _WORK, repeats, folder]
            captured = subprocess.run(work, check=True, capture_output=True, text=True)
            trace = captured.stdout.splitlines()[-1]
            when = ["--time", f"{1_767_225_600 + 86_400 * number}"]
            shown_count = ["--label", f"commit=c{number:02}", "--label", "model=mlp", "--no-cache"]
            subprocess.run([*history, "add", store, trace, *when, *shown_count], check=True, capture_output=True)
        done = subprocess.run([*history, "show", store, "-f", "json"], check=True, capture_output=True, text=True)
        (series,) = json.loads(done.stdout)["series"]
        print(
            f"{series['run_count']} captures; noise of runs {series['run_noise']:.1%}; planted at c{captures // 2:02}"
        )
        for change in series["changes"]:
            causes = ", ".join(f"{each['name']} ({each['level']})" for each in change["causes"])
            labels = [each["after"] for each in change["differing"] if each["name"] == "commit"]
            reach = f"{change['low'] - 1:+.1%} to {change['high'] - 1:+.1%}"
            what = f"{change['measure']}: {change['kind']}, {change['ratio'] - 1:+.1%} ({reach})"
            print(f"{what}, at {' '.join(labels)}: {causes}")


def print_stored(folder: Path) -> None:
    """The same on captures that are there already, in order of their names, of which the second half is stretched."""
    from tests.helpers.stretched import stretched  # noqa: PLC0415 (with the tests' helpers)
    from xsp.history.adding import add_input  # noqa: PLC0415
    from xsp.history.store import Store  # noqa: PLC0415
    from xsp.reading import Reading  # noqa: PLC0415
    from xsp_analyze.history.facts import Described  # noqa: PLC0415
    from xsp_analyze.history.trends import trends  # noqa: PLC0415

    captures = sorted(folder.glob("*.json.gz"))
    for factor in (1.0, 1.01, 1.02, 1.05):
        with tempfile.TemporaryDirectory() as scratch:
            store = Store(f"{scratch}/store")
            for number, capture in enumerate(captures):
                by = factor if number >= len(captures) // 2 else 1.0
                copy = stretched(capture, by, Path(scratch) / capture.name)
                when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
                list(add_input(store, str(copy), Described({"model": "net"}), when, reading=Reading()))
            (series,) = trends(store.facts(), store.of)
            changes = [
                f"{each.change.kind} at {each.change.at}, {each.change.ratio - 1:+.1%}" for each in series.changes
            ]
            print(f"| {factor - 1:.0%} | {series.scatter or 0:.1%} | {'; '.join(changes) or 'none'} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=500, help="series a cell")
    parser.add_argument("--cost", type=int, metavar="RUNS", help="measure a store of so many runs")
    parser.add_argument("--real", type=int, metavar="CAPTURES", help="capture so many runs here")
    parser.add_argument("--stored", type=Path, metavar="DIR", help="captures that are there, half of them stretched")
    arguments = parser.parse_args()
    began = time.perf_counter()
    if arguments.cost:
        print_cost(arguments.cost)
    elif arguments.stored:
        print_stored(arguments.stored)
    elif arguments.real:
        print_real(arguments.real)
    else:
        print_detection(arguments.times)
        print()
        print_shapes(arguments.times)
        print_nightly(100, max(arguments.times // 10, 1))
    print(f"\n{time.perf_counter() - began:.0f} s")
