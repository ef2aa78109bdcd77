"""The goals, each with what was measured for it: met, not met, or not measured and why.

Goals in seconds are judged by wall time; where the machine was busy with other work (a load of more than its cores) by
processor time, since wall time is then others'.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.store import Measured, Sample

__all__ = ["Verdict", "verdicts"]

_MB = 1_000_000
_EVEN = 1.2  # largest over smallest cost per event


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal's row; `met` is None where it was not measured, `measured` then says why."""

    path: str
    goal: str
    measured: str
    met: bool | None
    command: str = ""


def verdicts(store: Mapping[str, Measured]) -> list[Verdict]:
    """All goals in order."""
    return [*_traces(store), *_memory(store), *_captures(store), *_seconds(store), _batch(store)]


def _traces(store: Mapping[str, Measured]) -> Iterator[Verdict]:
    path = "Kineto load, links and steps, in process, CPU against HTA's load"
    ours = "xsp, links and steps"
    for way, min_ratio, title in ((ours, 30, "files over 100 MB"), (f"{ours} by the plain path", 6, "plain path")):
        yield _times(store, "kineto", "HTA", way, min_ratio, _part("load"), path, f"{min_ratio} times less ({title})")
    path = "the same with the answers, whole process from the shell"
    yield _times(store, "kineto", "HTA", "xsp", 10, _wall, path, "10 times less wall time")
    yield _times(store, "kineto", "HTA", "xsp", 10, _cpu, path, "10 times less, by CPU time")
    path = "peak memory against HTA"
    yield _times(store, "kineto", "HTA", "xsp", 4, _private, f"{path}, private", "a quarter")
    yield _times(store, "kineto", "HTA", "xsp", 4, _peak, f"{path}, resident", "a quarter")


def _memory(store: Mapping[str, Measured]) -> Iterator[Verdict]:
    for size_mb, max_mb in ((1_000, 300), (10_000, 1_000)):
        for take, kind in ((_private, "private"), (_peak, "resident")):
            key, path = f"size-{size_mb:05d}", f"converting {size_mb / 1_000:g} GB, peak {kind} memory"
            goal = f"under {max_mb} MB"
            experiment = store.get(key)
            peak = experiment.middle("xsp convert", take) if experiment else None
            if not experiment or peak is None:
                yield _missing(store, key, path, goal, "xsp convert")
                continue
            yield Verdict(path, goal, f"{peak / _MB:.0f} MB", peak < max_mb * _MB, experiment.command)
    yield _per_event(store)


def _per_event(store: Mapping[str, Measured]) -> Verdict:
    """What an event more costs: over that of the smallest trace, which is start-up but for a few thousand events."""
    path, goal = "CPU of an event, from 1 MB to 10 GB, start-up aside", "constant within 20 %"
    sizes = [experiment for key, experiment in sorted(store.items()) if key.startswith("size-")]
    costs = [(experiment, cpu) for experiment in sizes if (cpu := experiment.middle("xsp convert", _cpu)) is not None]
    if len(costs) < 3:  # noqa: PLR2004
        return Verdict(path, goal, "not measured: fewer than three sizes were", None)
    (smallest, start_s), *larger = costs
    micros = [
        (cpu - start_s) * 1e6 / (experiment.facts["events"] - smallest.facts["events"]) for experiment, cpu in larger
    ]
    sizes_mb = [experiment.facts["bytes"] / _MB for experiment, _ in larger]
    listed = ", ".join(f"{size:.0f} MB {value:.2f} us" for size, value in zip(sizes_mb, micros, strict=True))
    text = f"{listed}; start-up is {start_s:.2f} s, with the {smallest.facts['events']:.0f} events of 1 MB"
    return Verdict(path, goal, text, 0 < max(micros) <= _EVEN * min(micros), sizes[-1].command)


def _captures(store: Mapping[str, Measured]) -> Iterator[Verdict]:
    yield _at_most(store)
    experiment = store.get("nsys-rows")
    peak = experiment.middle("xsp convert", _peak) if experiment else None
    path = "the same, peak memory"
    if experiment and peak is not None:
        yield Verdict(path, "under 4 GB", f"{peak / _MB:.0f} MB", peak < 4_000 * _MB, experiment.command)
    else:
        yield _missing(store, "nsys-rows", path, "under 4 GB", "xsp convert")
    ways = ("sqlite3 kernel rows", "xsp kernel rows")
    path = "kernel table against `sqlite3` row fetching, in process, CPU"
    yield _times(store, "nsys-rows", *ways, 10, _part("rows"), path, "10 times faster")
    for key, name, min_ratio in (("nsys-kernels", "cuda_gpu_kern_sum", 10), ("nsys-ranges", "nvtx_gpu_proj_sum", 12)):
        path = f"`{name}` against `nsys stats`, CPU"
        yield _times(store, key, "nsys stats", "xsp", min_ratio, _cpu, path, f"{min_ratio} times less from the SQLite")
        bundle = "100 times less from the bundle"
        yield _times(store, key, "nsys stats", "xsp, from a bundle", 100, _cpu, path, bundle)


def _at_most(store: Mapping[str, Measured]) -> Verdict:
    path, goal = "Nsight SQLite into a linked bundle, against its rows alone through ADBC", "at most 4 times the time"
    experiment = store.get("nsys-rows")
    ratios = experiment.ratios("xsp convert", "ADBC rows", _cpu) if experiment else []
    if not experiment or not ratios:
        return _missing(store, "nsys-rows", path, goal, "xsp convert")
    return Verdict(path, goal, f"{_spread(ratios)} times, by CPU time", median(ratios) <= 4, experiment.command)  # noqa: PLR2004


def _seconds(store: Mapping[str, Measured]) -> Iterator[Verdict]:
    rows = (
        ("hot-paths", "hot paths", "parents of 9.5 M spans, sort included, compiled", 1.0, "parents"),
        ("hot-paths", "hot paths", "correlation join of 4.9 M with 7 M", 0.5, "correlation"),
        ("hot-paths", "hot paths", "busy and idle of 4.9 M kernels", 0.3, "busy"),
        ("bundle", "in process", "open a bundle of a 1 GB trace and answer A10", 0.5, "open and A10"),
        ("analyses", "analyses", "A01 to A15 and B01 to B06 on 4.9 M kernels", 30.0, "A01 to A15 and B01 to B06"),
        ("analyses", "report", "`xsp report` on 4.9 M kernels", 20.0, None),
        ("start", "help", "`xsp --help`", 0.15, None),
        ("top-00001", "xsp top", "`xsp top` on a 1 MB trace", 0.6, None),
        ("top-00240", "xsp top", "`xsp top` on a 240 MB trace", 1.3, None),
        ("start", "report, 1 MB", "`xsp report` on a 1 MB trace", 1.5, None),
    )
    for key, way, path, max_s, part in rows:
        experiment = store.get(key)
        if not experiment or not experiment.samples.get(way):
            yield _missing(store, key, path, f"{max_s} s", way)
            continue
        value, basis = _time(experiment, way, part)
        yield Verdict(path, f"{max_s} s", f"{value:.2f} s of {basis}", value <= max_s, experiment.command)
        if way == "report":
            yield _report_memory(store)
        if part == "parents":
            why = "not measured: without compiled code these rows go through a loop in Python, as in the tests"
            yield Verdict("the same with numpy and polars alone", "4 s", why, None)


def _report_memory(store: Mapping[str, Measured]) -> Verdict:
    path, goal = "the same, peak memory", "under 3000 MB"
    experiment = store.get("analyses")
    peak = experiment.middle("report", _peak) if experiment else None
    if not experiment or peak is None:
        return _missing(store, "analyses", path, goal, "report")
    return Verdict(path, goal, f"{peak / _MB:.0f} MB", peak < 3_000 * _MB, experiment.command)


def _time(experiment: Measured, way: str, part: str | None) -> tuple[float, str]:
    """A time in s and of what kind: wall time, or processor time where others kept the machine busy."""
    is_busy = median(experiment.loads) > (os.cpu_count() or 1)
    wall, cpu = (_wall, _cpu) if part is None else (_part(part, 1), _part(part))
    value = experiment.middle(way, cpu if is_busy else wall)
    assert value is not None  # noqa: S101 (the caller looked)
    return value, f"CPU (load {median(experiment.loads):.0f})" if is_busy else "wall time"


def _batch(store: Mapping[str, Measured]) -> Verdict:
    path, goal = "batch of 64 traces, two workers against one", "1.8 times faster on 2 cores"
    experiment = store.get("batch")
    ratios = experiment.ratios("one worker", "two workers", _wall) if experiment else []
    if not experiment or not ratios:
        return _missing(store, "batch", path, goal, "two workers")
    load = median(experiment.loads)
    if load > (os.cpu_count() or 1) + 1:
        text = f"{_spread(ratios)} times at a load of {load:.0f}: others had the cores, so this says nothing"
        return Verdict(path, goal, text, None, experiment.command)
    return Verdict(path, goal, f"{_spread(ratios)} times", median(ratios) >= 1.8, experiment.command)  # noqa: PLR2004


def _times(
    store: Mapping[str, Measured],
    key: str,
    peer: str,
    way: str,
    min_ratio: float,
    take: Callable[[Sample], float],
    path: str,
    goal: str,
) -> Verdict:
    """How many times less `way` takes than `peer`."""
    experiment = store.get(key)
    ratios = _ratios(experiment, peer, way, take) if experiment else []
    if not experiment or not ratios:
        return _missing(store, key, path, goal, peer, way)
    load = f" (at a load of {median(experiment.loads):.0f})" if take is _wall else ""
    text = f"{_spread(ratios)} times less" if median(ratios) >= 1 else f"{_spread([1 / r for r in ratios])} times MORE"
    return Verdict(path, goal, text + load, median(ratios) >= min_ratio, experiment.command)


def _ratios(experiment: Measured, peer: str, way: str, take: Callable[[Sample], float]) -> list[float]:
    """Round by round; over our median where the peer, being slow, had fewer rounds."""
    theirs, ours = experiment.values(peer, take), experiment.values(way, take)
    if not theirs or not ours:
        return []
    if len(theirs) == len(ours):
        return [a / b for a, b in zip(theirs, ours, strict=True)]
    return [a / median(ours) for a in theirs]


def _missing(store: Mapping[str, Measured], key: str, path: str, goal: str, *ways: str) -> Verdict:
    experiment = store.get(key)
    reasons = [f"{way}: {experiment.skipped[way]}" for way in ways if way in experiment.skipped] if experiment else []
    why = "; ".join(reasons) or f"`{key}` was not run"
    return Verdict(path, goal, f"not measured: {why}", None, experiment.command if experiment else "")


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _part(name: str, which: int = 0) -> Callable[[Sample], float]:
    return lambda sample: sample.parts[name][which]


def _cpu(sample: Sample) -> float:
    return sample.cpu_s


def _wall(sample: Sample) -> float:
    return sample.wall_s


def _private(sample: Sample) -> float:
    return sample.private_bytes


def _peak(sample: Sample) -> float:
    return sample.peak_bytes
