"""Experiments on PyTorch traces: us and those who read them too; memory over sizes; packed; opening; starting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.environments import HTA, PANDAS, TENSORBOARD
from benchmarks.experiment import REPO, XSP, Experiment, Way, program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.environments import Environment
    from benchmarks.inputs import Inputs

__all__ = ["PEERS", "batch", "bundle", "kineto", "plain_and_gzip", "size", "start", "top"]

PEERS = (HTA, TENSORBOARD, PANDAS)
_COPY = (
    "import pathlib, shutil, sys\n"
    "for package in pathlib.Path(sys.argv[1]).glob('xsp_*'):\n"
    "    shutil.copytree(package, pathlib.Path(sys.argv[2]) / package.name,"
    " ignore=shutil.ignore_patterns('__pycache__', '*.native'))"
)
_ANSWERS = ("-a", "A10", "-a", "B03", "-f", "json", "--steps", "all")
_LARGEST_MB = {"HTA": 250, "torch-tb-profiler": 250, "pandas": 250}  # of peers; beyond they take minutes and memory


def kineto(inputs: Inputs, size_mb: int) -> Experiment:
    """A10 and B03, or what the peers have nearest to them."""
    trace = inputs.kineto(size_mb)
    path = str(trace.path)

    def through_bundle(scratch: Path) -> Sequence[Sequence[str]]:
        target = str(scratch / "trace.xsp")
        return [(*XSP, "convert", path, "-o", target), (*XSP, "analyze", target, *_ANSWERS)]

    analyze = (*XSP, "analyze", path, *_ANSWERS)
    ways = (
        Way("xsp", "`xsp analyze FILE -a A10 -a B03 --no-cache`", lambda _: [(*analyze, "--no-cache")]),
        Way("xsp, through a bundle", "`xsp convert`, then `xsp analyze` of the bundle", through_bundle),
        Way("xsp, the second time", "the same command again: what it keeps is used", lambda _: [analyze],
            prepare=lambda _: [analyze]),
        Way("xsp, links and steps", "in process, what HTA's load gives: columns, links, steps (and each span's parent)",
            lambda _: [program("xsp_links", path)]),
        Way("xsp, links and steps by the plain path", "likewise, with the JSON decoded by msgspec",
            lambda _: [program("xsp_links", path, "--plain")]),
        Way("xsp, load", "in process: the whole of `xsp convert` but its files: layers, phases and tables too",
            lambda _: [program("xsp_load", path)]),
        *_peers(inputs, trace.path),
    )  # fmt: skip
    what = f"{trace.path.stat().st_size / 1e6:.0f} MB of JSON, {trace.events} events"
    return Experiment("kineto", "A PyTorch trace: load, kernels by name, timeline breakdown", what, ways, peers=PEERS)


def _peers(inputs: Inputs, trace: Path, max_runs: int | None = None) -> list[Way]:
    def of(peer: Environment, name: str) -> Sequence[Sequence[str]]:
        return [program(name, str(trace), python=peer.python(inputs.folder))]

    return [
        Way("HTA", "`TraceAnalysis`, `get_temporal_breakdown`, `get_gpu_kernel_breakdown`",
            lambda _: of(HTA, "hta_trace"), max_runs=max_runs),
        Way("torch-tb-profiler", "`RunProfileData.parse`, `process`, `analyze`",
            lambda _: of(TENSORBOARD, "tensorboard_trace"), max_runs=max_runs),
        Way("pandas", "`json.load`, a DataFrame, `groupby` by name (no links, no timeline)",
            lambda _: of(PANDAS, "pandas_trace"), max_runs=max_runs),
    ]  # fmt: skip


def size(inputs: Inputs, size_mb: int) -> Experiment:
    """Conversion of one size; peers once, as far as they go."""
    trace = inputs.kineto(size_mb)

    def convert(scratch: Path) -> Sequence[Sequence[str]]:
        return [(*XSP, "convert", str(trace.path), "-o", str(scratch / "trace.xsp"))]

    peers = [way for way in _peers(inputs, trace.path, max_runs=1) if size_mb <= _LARGEST_MB[way.name]]
    max_runs = 1 if size_mb > 5_000 else None  # noqa: PLR2004
    ways = (Way("xsp convert", "`xsp convert FILE -o OUT.xsp`", convert, max_runs=max_runs), *peers)
    what = f"{trace.path.stat().st_size / 1e6:.1f} MB of JSON, {trace.events} events"
    facts = {"events": trace.events, "bytes": trace.path.stat().st_size}
    key, title = f"size-{size_mb:05d}", f"Memory: {size_mb} MB"
    return Experiment(key, title, what, ways, warm_up=False, peers=PEERS, facts=facts)


def plain_and_gzip(inputs: Inputs, size_mb: int) -> Experiment:
    """The same trace, plain and gzip."""
    plain, gz = inputs.kineto(size_mb), inputs.kineto_gzip(size_mb)

    def convert(source: Path, scratch: Path) -> Sequence[Sequence[str]]:
        return [(*XSP, "convert", str(source), "-o", str(scratch / "trace.xsp"))]

    ways = (
        Way("plain", "`xsp convert FILE.json`", lambda scratch: convert(plain.path, scratch)),
        Way("gzip", "`xsp convert FILE.json.gz`", lambda scratch: convert(gz, scratch)),
    )
    what = f"{plain.path.stat().st_size / 1e6:.0f} MB of JSON, {gz.stat().st_size / 1e6:.0f} MB packed"
    return Experiment("gzip", "A packed trace", what, ways, warm_up=False)


def bundle(inputs: Inputs, size_mb: int) -> Experiment:
    """A converted trace, opened and asked for A10."""
    path = str(inputs.bundle(inputs.kineto(size_mb).path))
    ways = (
        Way("in process", "`bundle.read`, `run(find('A10'), StepView.of(trace, 'all'))`",
            lambda _: [program("xsp_bundle", path)]),
        Way("command", "`xsp analyze BUNDLE -a A10 --steps all`",
            lambda _: [(*XSP, "analyze", path, "-a", "A10", "-f", "json", "--steps", "all")]),
    )  # fmt: skip
    what = f"the bundle of {size_mb} MB of JSON, {inputs.kineto(size_mb).events} events"
    return Experiment("bundle", "A bundle: open it and answer A10", what, ways)


def start(inputs: Inputs, large_mb: int) -> Experiment:
    """What is waited for before anything happens; and the first run after an installation."""
    small, large = (str(inputs.kineto(size).path.resolve()) for size in (1, large_mb))

    def report(path: str, scratch: Path) -> tuple[str, ...]:
        return (*XSP, "report", path, "-o", str(scratch / "report.html"), "--no-cache")

    def copy(scratch: Path) -> Sequence[Sequence[str]]:
        """Our packages anew: Python's byte code and our machine code are kept beside them, and are left behind."""
        return [(sys.executable, "-c", _COPY, str(REPO), str(scratch / "code"))]

    def fresh(path: str, scratch: Path) -> tuple[str, ...]:
        code = str(scratch / "code")
        return ("env", "-C", code, f"PYTHONPATH={code}", *report(path, scratch))

    ways = (
        Way("help", "`xsp --help`", lambda _: [(*XSP, "--help")]),
        Way("report, 1 MB", "`xsp report FILE` of 1 MB", lambda scratch: [report(small, scratch)]),
        Way("report, 1 MB, first run", "likewise, of a new copy of our packages: nothing of them compiled before",
            lambda scratch: [fresh(small, scratch)],
            prepare=copy),
        Way(f"report, {large_mb} MB", f"`xsp report FILE` of {large_mb} MB",
            lambda scratch: [report(large, scratch)]),
        Way(f"report, {large_mb} MB, first run", "likewise, of a new copy",
            lambda scratch: [fresh(large, scratch)],
            prepare=copy),
    )  # fmt: skip
    return Experiment("start", "Start-up", f"traces of 1 MB and {large_mb} MB", ways)


def top(inputs: Inputs, size_mb: int) -> Experiment:
    """What one looks at first, of one size; peers once, with the answers they have nearest to it."""
    trace = inputs.kineto(size_mb)
    command = (*XSP, "top", str(trace.path))
    ways = (
        Way("xsp top", "`xsp top FILE --no-cache`", lambda _: [(*command, "--no-cache")]),
        Way("xsp top, the second time", "the same command again: what it keeps is used", lambda _: [command],
            prepare=lambda _: [command]),
        *(way for way in _peers(inputs, trace.path, max_runs=1) if size_mb <= _LARGEST_MB[way.name]),
    )  # fmt: skip
    what = f"{trace.path.stat().st_size / 1e6:.1f} MB of JSON, {trace.events} events"
    return Experiment(f"top-{size_mb:05d}", f"`xsp top`: {size_mb} MB", what, ways, peers=PEERS)


def batch(inputs: Inputs, count: int) -> Experiment:
    """Many small traces by one worker and by two."""
    folder = str(inputs.traces(count))

    def of(jobs: int, scratch: Path) -> Sequence[Sequence[str]]:
        return [(*XSP, "batch", folder, "-o", str(scratch / "out"), "--jobs", str(jobs), "--no-ranks")]

    ways = (
        Way("one worker", "`xsp batch DIR -o OUT --jobs 1`", lambda scratch: of(1, scratch)),
        Way("two workers", "`xsp batch DIR -o OUT --jobs 2`", lambda scratch: of(2, scratch)),
    )
    return Experiment("batch", "A batch", f"{count} traces of 2 to 5 MB", ways, warm_up=False)
