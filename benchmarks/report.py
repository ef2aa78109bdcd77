"""RESULTS.md: the goals, then a table an experiment, with spread, load, versions and commands."""

from __future__ import annotations

import os
import platform
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.goals import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.store import Measured, Sample

__all__ = ["report"]

_MB = 1_000_000
_INTEGERS, _TENTHS = 100, 10  # from here on, how figures are rounded
_INTRODUCTION = (
    "Each way ran in a fresh process, in turns with the others, each round starting with another; medians (smallest to"
    " largest) over rounds. CPU is user and system time of a process and all its children. Private memory is without"
    " pages of files (libraries, mapped tables), which processes share and the system can drop. Load is how many"
    " processes wanted a core, over the last minute: where it is above the number of cores, wall time says how busy the"
    " machine was; CPU time still says what the program used, though shared caches make it dearer than on an idle one."
)
_MEASURES: Sequence[tuple[str, Callable[[Sample], float]]] = (
    ("CPU, s", lambda sample: sample.cpu_s),
    ("wall, s", lambda sample: sample.wall_s),
    ("peak memory, MB", lambda sample: sample.peak_bytes / _MB),
    ("of it private, MB", lambda sample: sample.private_bytes / _MB),
    ("load", lambda sample: sample.load),
)
_COMPARED = 3  # the measures that make sense as ratios
_LABELS = {True: "met", False: "**not met**", None: "not measured"}


def report(store: Mapping[str, Measured], plot: str | None) -> str:
    """The whole text; `plot` is the name of the picture of memory over sizes."""
    lines = ["# What XSP costs", "", _INTRODUCTION, "", _machine(), "", "## Goals", ""]
    lines += ["| path | goal | measured | | command |", "|---|---|---|---|---|"]
    for row in verdicts(store):
        command = f"`{row.command}`" if row.command else ""
        lines.append(f"| {row.path} | {row.goal} | {row.measured} | {_LABELS[row.met]} | {command} |")
    sizes = {key: experiment for key, experiment in store.items() if key.startswith("size-")}
    if sizes:
        lines += ["", "## Memory over sizes", "", *_sizes(list(sizes.values()), plot)]
    for key, experiment in store.items():
        if key not in sizes:
            lines += ["", f"## {experiment.title}", "", *_experiment(experiment)]
    return "\n".join([*lines, ""])


def _machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = f"{os.cpu_count()} cores ({platform.machine()})"
    return f"Machine: {cores}, {memory:.0f} GiB of memory, {platform.system()}, Python {platform.python_version()}."


def _facts(experiment: Measured) -> Iterator[str]:
    yield f"- Input: {experiment.what}."
    yield f"- Command: `{experiment.command}`, {experiment.date}, commit {experiment.commit}."
    listed = [
        f"{owner}: {', '.join(f'{name} {version}' for name, version in each.items())}"
        for owner, each in experiment.versions.items()
    ]
    yield f"- Versions: {'; '.join(listed)}."
    for way, reason in experiment.skipped.items():
        yield f"- Not measured: {way}: {reason}"


def _experiment(experiment: Measured) -> Iterator[str]:
    yield from _facts(experiment)
    yield ""
    yield "| | " + " | ".join(title for title, _ in _MEASURES) + " | |"
    yield "|---|" + "---|" * (len(_MEASURES) + 1)
    for way, title in experiment.ways.items():
        if experiment.samples.get(way):
            cells = [_cell(experiment.values(way, take)) for _, take in _MEASURES]
            yield f"| {way} | {' | '.join(cells)} | {title} |"
    yield from _parts(experiment)
    yield from _ratios(experiment)


def _parts(experiment: Measured) -> Iterator[str]:
    """What programs told of parts of themselves."""
    rows = [
        (way, part, samples)
        for way, samples in experiment.samples.items()
        for part in samples[0].parts
        if not part.startswith("warm-up")
    ]
    if rows:
        yield from ("", "Of it, measured within the process:", "", "| | part | CPU, s | wall, s |", "|---|---|---|---|")
    for way, part, samples in rows:
        cells = [_cell([sample.parts[part][which] for sample in samples]) for which in (0, 1)]
        yield f"| {way} | {part} | {' | '.join(cells)} |"


def _ratios(experiment: Measured) -> Iterator[str]:
    """Everybody's cost over the first way's, which is ours or the baseline, round by round."""
    first, *others = [way for way in experiment.ways if experiment.samples.get(way)]
    compared = [way for way in others if len(experiment.samples[way]) == len(experiment.samples[first])]
    once = [way for way in others if way not in compared]
    if not others:
        return
    yield from ("", f"Times the cost of `{first}`:", "")
    yield "| | " + " | ".join(title.split(",")[0] for title, _ in _MEASURES[:_COMPARED]) + " |"
    yield "|---|" + "---|" * _COMPARED
    for way in compared:
        cells = [_cell(experiment.ratios(way, first, take)) for _, take in _MEASURES[:_COMPARED]]
        yield f"| {way} | {' | '.join(cells)} |"
    for way in once:  # over the median, as rounds do not pair
        base = [experiment.middle(first, take) or 1 for _, take in _MEASURES[:_COMPARED]]
        measures = zip(base, _MEASURES, strict=False)
        cells = [_cell([value / of for value in experiment.values(way, take)]) for of, (_, take) in measures]
        yield f"| {way} | {' | '.join(cells)} |"


def _sizes(experiments: Sequence[Measured], plot: str | None) -> Iterator[str]:
    if plot:
        yield from (f"![Peak memory over the size of the trace, ours and peers', both axes logarithmic]({plot})", "")
    yield f"- Command: `{experiments[-1].command}`, {experiments[-1].date}, commit {experiments[-1].commit}."
    yield "- A peer is run once, up to the size where it would take minutes."
    yield ""
    yield "| trace, MB | events | | CPU, s | us per event | wall, s | peak memory, MB | of it private, MB | load |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for each in experiments:
        size, events = each.facts["bytes"] / _MB, each.facts["events"]
        for way in each.ways:
            if not each.samples.get(way):
                yield f"| {size:.0f} | {events:.0f} | {way} | not measured: {each.skipped.get(way, '')} | | | | | |"
                continue
            cells = [_cell(each.values(way, take)) for _, take in _MEASURES]
            per_event = _cell([sample.cpu_s * 1e6 / events for sample in each.samples[way]])
            cells.insert(1, per_event)
            yield f"| {size:.0f} | {events:.0f} | {way} | {' | '.join(cells)} |"


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return _text(values[0])
    return f"{_text(median(values))} ({_text(min(values))} to {_text(max(values))})"


def _text(value: float) -> str:
    return f"{value:.0f}" if value >= _INTEGERS else f"{value:.1f}" if value >= _TENTHS else f"{value:.2f}"
