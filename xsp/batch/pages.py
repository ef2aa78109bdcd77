"""The pages over a batch: its index, which is the page of a cohort, and one a job of ranks."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp.batch.locations import is_url, join_path, read_bytes
from xsp_analyze.cohort.cohort import Member, group_by_system
from xsp_analyze.cohort.facts import from_json
from xsp_analyze.faults import FaultError, note_fault
from xsp_analyze.pages import blocks
from xsp_analyze.pages.cohort import render
from xsp_analyze.render.findings import gain
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.pages.blocks import Block, Section

__all__ = ["index_page", "job_pages", "local_tables", "members", "note_faults"]

_FACTS = "facts.json"


@contextmanager
def local_tables(location: str, ranks: Sequence[str]) -> Iterator[Path]:
    """Within `with`, a folder of the job with the facts and tables of these ranks; bundles are not fetched."""
    from xsp_analyze.ranks.facts import RANK_TABLES  # noqa: PLC0415 (imports polars)

    if not is_url(location):
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="xsp-job-") as scratch:
        for rank in ranks:
            folder = Path(scratch, "ranks", rank)
            folder.mkdir(parents=True)
            for name in (_FACTS, *(f"{table}.parquet" for table in RANK_TABLES)):
                content = read_bytes(join_path(location, "ranks", rank, name))
                if content is not None:
                    (folder / name).write_bytes(content)
        yield Path(scratch)


_MAX_LISTED = 200


def members(document: Mapping[str, Any]) -> list[Member]:
    """The traces of a batch that went well, from its summary."""
    good = (row for row in document["traces"] if row["status"] == "ok")
    return [Member(row["name"], from_json(row["facts"]), row["report"]) for row in good]


def note_faults(document: Mapping[str, Any]) -> None:
    """Notes what traces and ranks of a batch are without because it failed, each with its name."""
    for sentence in _faults(document):
        note_fault(FaultError(sentence))


def _faults(document: Mapping[str, Any]) -> list[str]:
    return [sentence for row in _everything(document) for sentence in faults_of(row)]


def faults_of(row: Mapping[str, Any]) -> list[str]:
    """In sentences what a row of the summary is without."""
    return [f"{row['name']}: {fault}" for fault in row["faults"]]


def index_page(document: Mapping[str, Any]) -> str:
    """The index: what failed first, then jobs, then all models."""
    models = members(document)
    bad = [row for row in _everything(document) if row["status"] == "failed"]
    title = _title(len(models), len(document["jobs"]))
    doubts = [*_failures_section(bad), *blocks.faults_section(_faults(document)), *_same_ranks_section(document)]
    return render(
        group_by_system(models),
        title=title,
        before=[*doubts, *_jobs(document), *_glances(document)],
        after=[*_leftovers_section(document), *_read_once(document)],
    )


def job_pages(output: str, name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The job's page and its tables as JSON, by their names; only small tables of each rank are read for them.

    Of a job at a URL, those are fetched; the ranks' spans stay where they are.
    """
    from xsp_analyze.pages.ranks import render as render_job  # noqa: PLC0415
    from xsp_analyze.ranks.job import open_job, tables  # noqa: PLC0415 (only where there are ranks)
    from xsp_analyze.render import json_text  # noqa: PLC0415

    good = [row["name"] for row in rows if row["status"] == "ok"]
    in_part = [sentence for row in rows for sentence in faults_of(row)]
    failed = [row["reason"] or row["name"] for row in rows if row["status"] != "ok"]
    with local_tables(join_path(output, "jobs", name), good) as folder:
        job = open_job(folder, name, only=good)
        return {"index.html": render_job(job, failed, in_part), "ranks.json": json_text.render_many(tables(job))}


def _title(traces: int, jobs: int) -> str:
    parts = [count_of(many, noun, f"{noun}s") for many, noun in ((traces, "trace"), (jobs, "job")) if many]
    return f"Batch of {' and '.join(parts) or 'nothing that could be read'}"


def _everything(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*document["traces"], *(rank for job in document["jobs"] for rank in job["ranks"])]


def _failures_section(bad: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not bad:
        return []
    entries = [(row["name"], None, row["reason"] or "") for row in bad]
    means = "These could not be read; the rest of this page is without them."
    return [blocks.section("failed", "Failed", f"Failed: {count(len(bad))}", means, [_entries_block(entries)])]


def _same_ranks_section(document: Mapping[str, Any]) -> list[Section]:
    if not document["same_ranks"]:
        return []
    entries = [("ranks", None, sentence) for sentence in document["same_ranks"]]
    means = "Several traces say that they are one rank: of each rank of a job one capture is to be given."
    title = "Ranks that are there more than once"
    return [blocks.section("same-ranks", "Same ranks", title, means, [_entries_block(entries)])]


def _jobs(document: Mapping[str, Any]) -> list[Section]:
    if not document["jobs"]:
        return []
    entries = []
    for job in document["jobs"]:
        done = sum(rank["status"] == "ok" for rank in job["ranks"])
        page = job["page"] if done else None
        entries.append((job["name"], page, f"{count(done)} of {count(len(job['ranks']))} ranks"))
    means = "Each job's page compares its ranks: steps, stragglers, communication, kernels over all of them."
    return [blocks.section("jobs", "Jobs", "Jobs of many ranks", means, [_entries_block(entries, len(entries))])]


_GLANCES = (
    "A row a trace: its report, what a step of its busiest device is made of, and the finding with most to gain, which"
    " is an upper bound."
)


def _glances(document: Mapping[str, Any]) -> list[Section]:
    """What each trace's own page says first; none where no reports were wanted."""
    rows = [_glance(row, row["facts"]["glance"]) for row in document["traces"] if (row["facts"] or {}).get("glance")]
    if not rows:
        return []
    block = {"type": "glances", "rows": rows}
    return [blocks.section("glances", "At a glance", "Every trace at a glance", _GLANCES, [block])]


def _glance(row: Mapping[str, Any], of_trace: Mapping[str, Any]) -> dict[str, Any]:
    bar, finding = of_trace["bar"], of_trace["finding"]
    return {
        "name": clean(row["name"]),
        "link": blocks.address(row["report"]),
        "bar": bar
        and {"title": clean(bar["title"]), "total": bar["total_ns"], "parts": list(map(_part, bar["parts"]))},
        "finding": finding
        and {"title": clean(finding["title"]), "gain": gain(finding["gain_ns"], finding["gain_share"])},
    }


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"label": clean(part["label"]), "tone": part["tone"], "time": part["time_ns"]}


def _leftovers_section(document: Mapping[str, Any]) -> list[Section]:
    rows = document["left_out"]
    if not rows:
        return []
    entries = [(row["input"], None, row["reason"]) for row in rows]
    listed = _entries_block(entries, summary=f"{count_of(len(rows), 'file', 'files')}")
    means = "Files of folders that no known profiler wrote."
    return [blocks.section("left-out", "Left out", "Left out", means, [listed])]


def _read_once(document: Mapping[str, Any]) -> list[Section]:
    """What is not on the page a second time."""
    entries = [(row["input"], None, f"the same as {row['same_as']}") for row in document["copies"]]
    if not entries:
        return []
    listed = _entries_block(entries, summary=count_of(len(entries), "note", "notes"))
    means = "Copies of inputs and links to them, files with and without gzip, and bundles beside their sources."
    return [blocks.section("read-once", "Read once", "Read once", means, [listed])]


def _entries_block(
    entries: Sequence[tuple[str, str | None, str]], max_entries: int = _MAX_LISTED, summary: str | None = None
) -> Block:
    return blocks.entries(entries, max_entries=max_entries, more="see summary.json.", summary=summary)
