"""`xsp ranks`: the ranks of one job side by side, from small tables that each leaves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cli.commands.analyze import Formats, screen_of
from xsp.cli.options import CsvRaw, reads_input
from xsp.cli.output import check_output, note, print_bytes, print_text, write_file
from xsp.cli.progress import ended_politely
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp.batch.unit import Unit, UnitOutcome
    from xsp_analyze.core import Result

__all__ = ["ranks"]

_SOME_FAILED = 1
_NAMED = 4  # warnings on a terminal


@reads_input(without=("time_range", "process_ids", "device_ids", "align_clocks"))
def ranks(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A folder of a job's ranks, their traces, or OUT/jobs/NAME that xsp batch wrote.",
            show_default=False,
        ),
    ],
    *,
    analyses: Annotated[
        list[str] | None,
        typer.Option("-a", "--analysis", metavar="ID", help="One of R01 to R07; may be given several times.",
                     show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="Write the job's page.",
                                  show_default=False)
    ] = None,
    output_format: Annotated[Formats, typer.Option("-f", "--output-format", help="How tables are written.")] = (
        Formats.TABLE
    ),
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes that read; one a core unless said.",
                                 show_default=False)
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=0, help="Most rows of a table; 0 for all.", show_default=False)
    ] = None,
    csv_raw: CsvRaw = False,
    reading: Reading,
) -> int:  # fmt: skip
    """Put the ranks of one job side by side: who is slow, who waits for whom, where a pipeline is empty.

    Each rank is read by itself and leaves small tables, so that a thousand of them need no more memory than one a
    process. Examples: `xsp ranks job/ -o job.html`, `xsp ranks job/rank*.json.gz -a R01 -f csv`.
    """
    if output is not None:
        check_output(output, [*inputs, *reading.files])
    with _tables_of_ranks(inputs, reading, jobs) as (folder, name, failed, in_part):
        from xsp_analyze.pages.ranks import findings, render  # noqa: PLC0415 (--help must not wait for polars)
        from xsp_analyze.ranks.job import open_job, tables  # noqa: PLC0415
        from xsp_analyze.render import render as render_tables  # noqa: PLC0415

        job = open_job(folder, name)
        if output is not None:
            write_file(output, render(job, failed, in_part).encode())
        else:
            results = _tables_called(tables(job), analyses or ())
            if output_format is Formats.TABLE and not analyses:
                print_text("\n".join(findings(job)) + "\n")
            content = render_tables(
                results, str(output_format), screen_of(rows), csv_raw=csv_raw, is_list=len(analyses or ()) != 1
            )
            print_bytes(content, styled=output_format is Formats.TABLE)
        for sentence in failed:
            note(f"error: {sentence}")
        for sentence in in_part[:_NAMED]:
            note(f"warning: {sentence}")
        if len(in_part) > _NAMED:
            note(f"warning: {len(in_part) - _NAMED} more of this kind, which the page (-o) has")
        return _SOME_FAILED if failed else 0


def _tables_called(results: Sequence[Result], ids: Sequence[str]) -> list[Result]:
    """Of the job's tables those asked for; XspError where one of them is none."""
    from xsp_model import XspError  # noqa: PLC0415

    have = {each.analysis.id: each for each in results}
    if unknown := [one for one in ids if one not in have]:
        raise XspError(f"this job has no table {', '.join(unknown)}", advice=f"It has {', '.join(have)}")
    return [have[one] for one in ids] if ids else list(results)


@contextmanager
def _tables_of_ranks(
    inputs: Sequence[str], reading: Reading, jobs: int | None
) -> Iterator[tuple[Path, str | None, list[str], list[str]]]:
    """Within `with`, a folder of the job, its name, and in sentences what failed and what ranks are without."""
    from xsp.batch.discover import discover  # noqa: PLC0415

    if len(inputs) == 1 and any(Path(inputs[0]).glob("ranks/*/facts.json")):
        yield Path(inputs[0]), None, [], []
        return
    with tempfile.TemporaryDirectory(prefix="xsp-ranks-") as scratch:
        discovered = discover(inputs, scratch, ranks=True, format_name=reading.format, as_one=True)
        units = _ranks_of_one_job(discovered.units)
        in_part = [f"{path}: left out ({reason})" for path, reason in discovered.left_out]
        outcomes = list(_outcomes(units, scratch, reading, jobs, in_part))
        failed = [o.reason for o in outcomes if o.facts is None]
        yield Path(scratch, "jobs", units[0].job or ""), units[0].job, failed, in_part


def _ranks_of_one_job(units: Sequence[Unit]) -> Sequence[Unit]:
    """The units; XspError where they are not ranks of one job."""
    from xsp_model import XspError  # noqa: PLC0415

    names = sorted({unit.job or unit.name for unit in units})
    if len(names) > 1 or units[0].job is None:
        listed = ", ".join(names[:3])
        raise XspError(f"these are not the ranks of one job ({listed})", advice="Give the ranks of one, or xsp batch")
    return units


def _sentences_on(outcome: UnitOutcome, folder: Path) -> list[str]:
    """What no answer is there for, and the first of its trace's warnings: such as that the file is cut."""
    facts = outcome.facts or {}
    sentences = [f"{outcome.unit.name}: {fault}" for fault in facts.get("faults", ())]
    if facts.get("warnings") and folder.is_dir():
        from xsp_model import bundle  # noqa: PLC0415

        ledger = bundle.read(folder, is_own=True).frame("ledger")
        severe = ledger.filter(ledger["severity"].cast(str) != "info")["detail"].to_list()
        more = f", and {len(severe) - 1} more" if len(severe) > 1 else ""
        sentences += [f"{outcome.unit.name}: {severe[0]}{more}"] if severe else []
    return sentences


def _outcomes(
    units: Sequence[Unit], scratch: str, reading: Reading, jobs: int | None, in_part: list[str]
) -> Iterator[UnitOutcome]:
    """What came of each rank, whose spans are not kept; to `in_part` is added what is to be known of it."""
    from xsp.batch.pool import default_limit_bytes, run_here  # noqa: PLC0415
    from xsp.batch.progress import BatchProgress  # noqa: PLC0415
    from xsp.batch.unit import Settings, own_version  # noqa: PLC0415
    from xsp.batch.work import BUNDLE, location_of  # noqa: PLC0415
    from xsp.processes import cores, end  # noqa: PLC0415

    count = jobs or cores()
    settings = Settings(scratch, reading, reports=False, scratch=scratch, version=own_version())
    with ended_politely(), BatchProgress(len(units)) as progress:
        stream = run_here(units, settings, jobs=count, limit_bytes=default_limit_bytes(count))
        try:
            for outcome in stream:
                bundle = Path(location_of(outcome.unit, scratch), BUNDLE)
                in_part += _sentences_on(outcome, bundle)
                shutil.rmtree(bundle, ignore_errors=True)
                progress.count(outcome)
                yield outcome
        finally:
            stream.close()
            end()
