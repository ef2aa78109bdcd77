"""`python -m benchmarks`: what XSP costs beside HTA on a large trace, as benchmarks/RESULTS.md."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import generate, measure, peers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measure import Cost
    from benchmarks.peers import Peer

_MB = 1_000_000
_WHOLE, _TENTHS = 100, 10  # from here on, how figures are rounded
_WHAT = (
    "Load a trace and answer A10 (kernels by name) and B03 (timeline breakdown), each in a fresh process; HTA answers"
    " its two nearest questions. Medians (smallest to largest) over rounds in which all took turns. Private memory is"
    " without pages of files (libraries), which processes share and the system can drop."
)
_OURS = ("xsp", "polars", "pyarrow", "numba", "isal")
_THEIRS = (peers.HTA, "pandas", "numpy")


def main() -> None:
    """Generates, measures, writes."""
    arguments = _arguments()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    trace = arguments.cache / f"grown_{arguments.size_mb}mb.json"
    events = generate.grow(trace, arguments.size_mb * _MB)
    hta, reason = peers.hta_python(arguments.cache) if arguments.hta else (None, "not asked for")
    ways = peers.peers(hta)
    print(f"{trace.stat().st_size / _MB:.0f} MB, {events} events; {', '.join(way.name for way in ways)} {reason}")
    rounds = _measured(ways, trace, arguments.rounds)
    facts = [
        f"Trace: {trace.stat().st_size / _MB:.0f} MB of JSON, {events} events, from `{_shown(generate.FIXTURE)}`.",
        f"Command: `{_command(arguments)}`, {datetime.now(UTC).date()}.",
        _machine(),
        f"Ours: Python {platform.python_version()}, {_listed(peers.versions(sys.executable, _OURS))}.",
        f"Theirs: {_listed(peers.versions(hta, _THEIRS))}." if hta else f"HTA was not measured: {reason}.",
    ]
    text = _report(ways, rounds, facts)
    arguments.output.write_text(text, encoding="utf-8")
    print(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--size-mb", type=int, default=200, help="size of the trace (default: 200)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default: 5)")
    default = Path(tempfile.gettempdir()) / "xsp-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder for the trace and HTA's environment")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("RESULTS.md"))
    parser.add_argument("--no-hta", dest="hta", action="store_false", help="measure XSP alone")
    return parser.parse_args()


def _measured(ways: Sequence[Peer], trace: Path, rounds: int) -> list[dict[str, Cost]]:
    """A cost of each way a round; the first round, which fills caches, is not kept.

    Ways take turns, each round starting with another: a slow minute of the machine hits all of them.
    """
    kept = []
    for turn in range(rounds + 1):
        first = turn % len(ways)
        costs = {way.name: _cost(way, trace) for way in (*ways[first:], *ways[:first])}
        print(turn, {name: f"{c.cpu_s:.2f} s, {c.peak_bytes / _MB:.0f} MB" for name, c in costs.items()}, flush=True)
        kept.append(costs)
    return kept[1:]


def _cost(way: Peer, trace: Path) -> Cost:
    with tempfile.TemporaryDirectory() as scratch:
        commands = way.commands(trace, Path(scratch))
        output = Path(scratch) / "output"
        return reduce(add, (measure.run(command, peers.environment(), output) for command in commands))


def _command(arguments: argparse.Namespace) -> str:
    return f"python -m benchmarks --size-mb {arguments.size_mb} --rounds {arguments.rounds}"


def _shown(path: Path) -> str:
    return str(path.relative_to(Path(__file__).parents[1]))


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}."


def _report(ways: Sequence[Peer], rounds: Sequence[dict[str, Cost]], facts: Sequence[str]) -> str:
    measures: list[tuple[str, Callable[[Cost], float]]] = [
        ("CPU, s", lambda cost: cost.cpu_s),
        ("wall, s", lambda cost: cost.wall_s),
        ("peak memory, MB", lambda cost: cost.peak_bytes / _MB),
        ("of it private, MB", lambda cost: cost.private_bytes / _MB),
    ]
    lines = [
        "# What XSP costs",
        "",
        _WHAT,
        "",
        *(f"- {fact}" for fact in facts),
        "",
        "| | " + " | ".join(title for title, _ in measures) + " |",
        "|---|" + "---|" * len(measures),
        *(_row(way.name, [[take(r[way.name]) for r in rounds] for _, take in measures]) for way in ways),
    ]
    if ways[-1].name == "HTA":
        lines += ["", "HTA's cost over ours, round by round:", "", *lines[-2 - len(ways) : -len(ways)]]
        lines += [
            _row(f"HTA / {way.name}", [[take(r["HTA"]) / take(r[way.name]) for r in rounds] for _, take in measures])
            for way in ways[:-1]
        ]
    return "\n".join([*lines, "", *(f"{way.name}: {way.title}." for way in ways), ""])


def _row(name: str, columns: Sequence[Sequence[float]]) -> str:
    cells = (f"{_text(median(c))} ({_text(min(c))} to {_text(max(c))})" for c in columns)
    return f"| {name} | " + " | ".join(cells) + " |"


def _text(value: float) -> str:
    return f"{value:.0f}" if value >= _WHOLE else f"{value:.1f}" if value >= _TENTHS else f"{value:.2f}"


if __name__ == "__main__":
    main()
