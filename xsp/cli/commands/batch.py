"""`xsp batch`: many traces, run sets and ranks converted and reported at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xsp.cli.options import reads_input
from xsp.cli.output import check_output, note, print_text
from xsp.cli.progress import ended_politely
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp.batch.discover import Discovered
    from xsp.batch.unit import Settings, Unit, UnitOutcome

__all__ = ["batch"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_LOCK = ".lock"
_UNFINISHED = ".unfinished-"
_SOME_FAILED = 1


class BatchFormats(StrEnum):
    """How the summary is printed."""

    TABLE = "table"
    JSON = "json"


@reads_input(without=("time_range", "process_ids", "device_ids"))
def batch(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Traces, run sets, bundles, folders of them (looked into at any depth), quoted patterns, or URLs"
            " (s3://, gs://, https://, ...).",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[str, typer.Option("-o", "--output", metavar="DIR|URL", help="The folder for all results.")],
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes on this machine; one a core unless said.", show_default=False),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Dask scheduler (tcp://host:8786) whose workers do it instead; inputs and output must be reachable"
            " from them.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Most memory of one process on this machine, such as 4GB; beyond it the trace has failed. Unless said,"
            " an even part of 85 % of the machine's.",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        bool | None,
        typer.Option(
            "--ranks/--no-ranks",
            help="Whether a folder's traces are ranks of one job; unless said, where their names or heads say so.",
            show_default=False,
        ),
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports/--no-reports", help="Whether to write an HTML report each.")
    ] = True,
    redo: Annotated[bool, typer.Option("--redo", help="Do again what an earlier batch has done already.")] = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Add each trace to this history of runs (xsp history), a folder or URL that all workers reach.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="With --history, what to know these runs by, as commit=1a2b3c. May be given several times.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        BatchFormats, typer.Option("-f", "--output-format", help="How the summary is printed.")
    ] = BatchFormats.TABLE,
    reading: Reading,
) -> int:
    """Convert and report many traces at once, with an index page over all of them.

    What an earlier batch did is kept unless its input or xsp has changed, so an interrupted batch goes on where it
    was. A file that cannot be read does not stop the rest: the summary names it, and the exit status is 1.

    Examples: `xsp batch traces/ -o out`, `xsp batch 's3://bucket/run7/*.json.gz' -o s3://bucket/out --scheduler
    tcp://head:8786`.
    """
    from xsp.batch import summary  # noqa: PLC0415 (--help must not wait for polars)
    from xsp.batch.discover import discover  # noqa: PLC0415
    from xsp.batch.pages import note_faults  # noqa: PLC0415
    from xsp.batch.unit import Settings, own_version  # noqa: PLC0415
    from xsp.processes import begin, end  # noqa: PLC0415

    reading = replace(reading, device=_sound(reading.device), work_models=_sound_models(reading.work_models))
    _check_gpu(reading.gpu)
    _check_exclusive(scheduler, jobs, memory)
    began = time.perf_counter()
    with ExitStack() as stack:
        location, scratch = stack.enter_context(_open_output(output))
        if scheduler is None:
            begin()
            stack.callback(end)
        settings = Settings(location, reading, reports, redo, scratch, own_version(), *_history(history, label or ()))
        discovered = discover(inputs, location, ranks=ranks, format_name=reading.format)
        _check_kept_apart(discovered, location)
        outcomes = summary.in_order(_all(discovered, settings, scheduler, jobs, memory))
        traces, left_out = _split_unknown(discovered, outcomes)
        document = summary.summary(traces, left_out, discovered, settings)
        spent = summary.costs(traces, time.perf_counter() - began, scheduler or f"{_jobs(jobs)} processes")
        note_faults(document)
        summary.write(document, spent, traces, settings)
    _print(document, spent, output_format, output)
    return _SOME_FAILED if spent["counts"]["failed"] else 0


def _history(store: str | None, labels: Sequence[str]) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The store from the root, as workers may run elsewhere, and the labels; XspError where these, or it, are none."""
    from xsp.batch.locations import absolute  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if store is None:
        if labels:
            raise XspError("labels are for a history of runs", advice="Say which with --history STORE")
        return None, ()
    from xsp.history.adding import labels_of  # noqa: PLC0415 (only with --history)
    from xsp.history.store import Store  # noqa: PLC0415

    Store(store).runs()  # one that cannot be is said now, not once an input
    return absolute(store), tuple(labels_of(labels).items())


def _check_gpu(name: str | None) -> None:
    """XspError now, not once an input, where no such device is known."""
    from xsp_model.devices import spec_called  # noqa: PLC0415

    if name is not None:
        spec_called(name)


def _sound(device: Path | None) -> Path | None:
    """The device file from the root, as workers may run elsewhere; XspError where it is none: not once a trace."""
    if device is None:
        return None
    from xsp_model.devices import read_device_file  # noqa: PLC0415

    read_device_file(device)
    return device.absolute()


def _sound_models(files: Sequence[Path]) -> tuple[Path, ...]:
    """The files of work models from the root; XspError where one of them is not sound, likewise."""
    if files:
        from xsp_analyze.work_models.user_models import read_user_models  # noqa: PLC0415

        for file in files:
            read_user_models(file)
    return tuple(file.absolute() for file in files)


def _check_exclusive(scheduler: str | None, jobs: int | None, memory: str | None) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    if scheduler is not None and (jobs is not None or memory is not None):
        raise XspError(
            "--jobs and --memory concern processes on this machine, and --scheduler those of a cluster",
            advice="Give --nworkers and --memory-limit to `dask worker` there",
        )


def _jobs(jobs: int | None) -> int:
    from xsp.processes import cores  # noqa: PLC0415

    return jobs or cores()


def _bytes(text: str) -> int:
    """The size that the text says; XspError where it says none."""
    from xsp_model import XspError  # noqa: PLC0415

    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise XspError(f"{text!r} is no size of memory", advice="Write it as 4GB or 512MB")
    step = 1024 if match[3] else 1000
    return int(float(match[1]) * step ** " KMGT".index(match[2].upper() or " "))


@contextmanager
def _open_output(output: str) -> Iterator[tuple[str, str | None]]:
    """The output's place, held against other batches, and a folder inside it for what is unfinished, gone at the end.

    Nothing is held at a URL, and unfinished work is then kept where the system keeps temporary files.
    """
    from xsp.batch.locations import absolute, is_url  # noqa: PLC0415
    from xsp.batch.work import UNIT  # noqa: PLC0415
    from xsp_model import XspError, bundle  # noqa: PLC0415

    bundle.check_name(absolute(output))
    if is_url(output):
        yield output.rstrip("/"), None
        return
    check_output(Path(output) / "any", ())
    folder = Path(output).absolute()
    if folder.exists() and (not folder.is_dir() or bundle.is_bundle(folder)):
        raise XspError("this exists and is no folder for results", path=folder, advice="Choose another one with -o")
    _check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(folder):
        for stale in folder.glob(f"{_UNFINISHED}*"):
            # What holds anything else is somebody else's.
            if stale.is_dir() and all(inside.name.startswith(UNIT) for inside in stale.iterdir()):
                shutil.rmtree(stale, ignore_errors=True)
        scratch = tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder)
        try:
            yield str(folder), scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _check_kept_apart(discovered: Discovered, location: str) -> None:
    """XspError where an input lies where the batch puts its results: it would be replaced by them."""
    from xsp.batch.locations import is_url  # noqa: PLC0415
    from xsp.batch.summary import COSTS, INDEX, SUMMARY  # noqa: PLC0415
    from xsp.batch.work import JOBS, TRACES  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if is_url(location):
        return
    folder = Path(os.path.realpath(location))
    ours = {folder / name for name in (COSTS, INDEX, SUMMARY, JOBS, TRACES)}
    for name in (each for unit in discovered.units for each in unit.inputs if not is_url(each)):
        path = Path(os.path.realpath(name))
        if not ours.isdisjoint({path, *path.parents}):
            raise XspError(
                f"lies where the results of a batch in {location} go", path=name, advice="Choose another folder with -o"
            )


def _check_own(folder: Path) -> None:
    """XspError where the folder has files by the names of ours and no batch wrote them."""
    from xsp.batch.summary import COSTS, INDEX, SUMMARY  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    there = [name for name in (COSTS, INDEX) if os.path.lexists(folder / name)]
    if there and not (folder / SUMMARY).is_file():  # which a batch writes before these
        raise XspError(
            f"has a file {there[0]} that no xsp batch wrote", path=folder, advice="Choose another folder with -o"
        )


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keeps a second batch out of the folder; XspError where one is at work in it."""
    from xsp_model import XspError  # noqa: PLC0415
    from xsp_model.output_files import lock_alone  # noqa: PLC0415

    lock = folder / _LOCK
    with lock.open("a") as file:
        if not lock_alone(file):
            raise XspError(
                "another xsp batch is writing into this folder", path=folder, advice="Wait for it, or choose another -o"
            )
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows deletes no file that is open
                lock.unlink(missing_ok=True)


def _all(
    discovered: Discovered, settings: Settings, scheduler: str | None, jobs: int | None, memory: str | None
) -> list[UnitOutcome]:
    """The outcomes of all units; on an interrupt what is done stays, and a line says how to go on."""
    from xsp.batch.progress import BatchProgress  # noqa: PLC0415

    outcomes: list[UnitOutcome] = []
    with ended_politely(), BatchProgress(len(discovered.units)) as progress:
        stream = _stream(discovered.units, settings, scheduler, jobs, memory)
        try:
            for outcome in stream:
                outcomes.append(outcome)
                progress.count(outcome)
        except KeyboardInterrupt:
            note(
                f"interrupted: {len(outcomes)} of {len(discovered.units)} are done; the same command goes on from there"
            )
            raise
        finally:
            stream.close()
    return outcomes


def _stream(
    units: Sequence[Unit], settings: Settings, scheduler: str | None, jobs: int | None, memory: str | None
) -> Generator[UnitOutcome]:
    if scheduler is not None:
        from xsp.batch.cluster import run_on_cluster  # noqa: PLC0415 (Dask only where asked for)

        return run_on_cluster(units, settings, scheduler=scheduler, say=note)
    from xsp.batch.pool import default_limit_bytes, run_here  # noqa: PLC0415

    count = _jobs(jobs)
    return run_here(units, settings, jobs=count, limit_bytes=_bytes(memory) if memory else default_limit_bytes(count))


def _split_unknown(
    discovered: Discovered, outcomes: Sequence[UnitOutcome]
) -> tuple[list[UnitOutcome], list[tuple[str, str]]]:
    """Outcomes of what is a trace, and the files that are none, with a sentence each."""
    traces = [o for o in outcomes if str(o.status) != "left out"]
    unknown = [
        (o.unit.inputs[0], o.reason.removeprefix(f"{o.unit.inputs[0]}: "))
        for o in outcomes
        if str(o.status) == "left out"
    ]
    return traces, sorted((*discovered.left_out, *unknown))


def _print(document: dict[str, Any], spent: dict[str, Any], output_format: str, output: str) -> None:
    if output_format == BatchFormats.JSON:
        print_text(json.dumps({**document, "costs": spent}, indent=1, ensure_ascii=False, allow_nan=False))
        return
    from xsp.batch.summary import summary_lines  # noqa: PLC0415

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    from xsp.batch.locations import join_path  # noqa: PLC0415

    print_text("\n".join((*summary_lines(document, spent, width), f"open {join_path(output, 'index.html')}")))
