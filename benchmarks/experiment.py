"""Runs the ways of an experiment in turns, and drops those that cannot be had or fail, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environments import Unavailable, versions
from benchmarks.measure import Failed, as_installed, run
from benchmarks.programs.stopwatch import parts_in
from benchmarks.store import Measured, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.environments import Environment

    Commands = Callable[[Path], Sequence[Sequence[str]]]

__all__ = ["REPO", "XSP", "Experiment", "Way", "measure", "program"]

REPO = Path(__file__).resolve().parents[1]
XSP = (sys.executable, "-c", "from xsp.cli.main import main; raise SystemExit(main())")
_OURS = ("polars", "pyarrow", "numpy", "numba", "msgspec", "isal", "adbc-driver-sqlite")
_MB = 1_000_000


def program(name: str, *arguments: str, python: Path | str = sys.executable) -> tuple[str, ...]:
    """The command that runs one of `benchmarks.programs`."""
    return (str(python), "-m", f"benchmarks.programs.{name}", *arguments)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the answer: commands for a scratch folder, run one after the other; `prepare` is not measured.

    Both raise Unavailable where a peer cannot be had. `max_runs` limits how often it is run: slow peers once or twice.
    """

    name: str
    title: str
    commands: Commands
    prepare: Commands | None = None
    max_runs: int | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """Ways to compare; `what` says of which input."""

    key: str
    title: str
    what: str
    ways: Sequence[Way]
    warm_up: bool = True
    peers: Sequence[Environment] = ()
    facts: Mapping[str, float] = field(default_factory=dict)


def measure(experiment: Experiment, rounds: int, command: str, cache: Path, limit_s: float) -> Iterator[Measured]:
    """The ways in turns, each round starting with another: a slow minute of the machine hits all of them.

    A first round, which fills caches and finds out what fails, is not kept (unless the experiment has no warm-up).
    What is known so far comes after each round, so that an interrupted measurement keeps its whole rounds.
    """
    samples: dict[str, list[Sample]] = {}
    skipped: dict[str, str] = {}
    titles = {way.name: way.title for way in experiment.ways}
    extra = int(experiment.warm_up)
    for turn in range(rounds + extra):
        first = turn % len(experiment.ways)
        for way in (*experiment.ways[first:], *experiment.ways[:first]):
            is_done = len(samples.get(way.name, ())) >= (way.max_runs or rounds)
            if way.name in skipped or is_done or (turn < extra and way.max_runs):  # too slow to be run for nothing
                continue
            try:
                sample = _sample(way, limit_s)
            except (Unavailable, Failed) as error:
                skipped[way.name] = str(error)
                samples.pop(way.name, None)
                print(f"{experiment.key}: {way.name}: skipped: {error}", flush=True)
                continue
            _tell(experiment.key, turn, way.name, sample)
            if turn >= extra:
                samples.setdefault(way.name, []).append(sample)
        if turn >= extra:
            head = (
                experiment.key,
                experiment.title,
                experiment.what,
                command,
                _commit(),
                datetime.now(UTC).date().isoformat(),
            )
            yield Measured(*head, titles, samples, skipped, _versions(experiment, cache), experiment.facts)


def _versions(experiment: Experiment, cache: Path) -> dict[str, dict[str, str]]:
    """Of us and of the peers that were made."""
    by_peer = {peer.name: peer.versions(cache) for peer in experiment.peers}
    return {"xsp": versions(sys.executable, _OURS)} | {name: each for name, each in by_peer.items() if each}


def _sample(way: Way, limit_s: float) -> Sample:
    with tempfile.TemporaryDirectory(prefix="xsp-benchmark-") as scratch:
        environment = as_installed(os.environ | {"PYTHONPATH": str(REPO), "XDG_CACHE_HOME": scratch}, REPO)
        output = Path(scratch) / "output"
        for command in way.prepare(Path(scratch)) if way.prepare else ():
            run(command, environment, output, limit_s=limit_s)
        parts: dict[str, tuple[float, float]] = {}
        costs = []
        for command in way.commands(Path(scratch)):
            costs.append(run(command, environment, output, limit_s=limit_s))
            parts |= parts_in(output.read_text(encoding="utf-8", errors="replace").splitlines())
        cost = reduce(add, costs)
    return Sample(cost.cpu_s, cost.wall_s, cost.peak_bytes, cost.private_bytes, os.getloadavg()[0], parts)


def _tell(key: str, turn: int, name: str, sample: Sample) -> None:
    parts = ", ".join(f"{part} {cpu:.2f} s" for part, (cpu, _) in sample.parts.items())
    memory = f"{sample.peak_bytes / _MB:.0f} MB, private {sample.private_bytes / _MB:.0f} MB"
    print(
        f"{key} {turn} {name}: CPU {sample.cpu_s:.2f} s, wall {sample.wall_s:.2f} s, {memory}, load {sample.load:.0f}"
        + (f" ({parts})" if parts else ""),
        flush=True,
    )


def _commit() -> str:
    result = subprocess.run(
        ["git", "-C", str(REPO), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or "unknown"
