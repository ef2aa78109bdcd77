"""What is left of a batch: its summary as JSON, what it cost, and its index page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xsp.batch.locations import from_batch, join_path, put_file
from xsp.batch.unit import Kind, Status
from xsp.batch.work import BUNDLE, REPORT, SAME_RANKS, location_of
from xsp_analyze.render.terminal import table_lines
from xsp_analyze.text.table import of_rows
from xsp_analyze.text.units import count, duration, share, size
from xsp_model.errors import clean, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp.batch.discover import Discovered
    from xsp.batch.unit import Settings, UnitOutcome

__all__ = ["COSTS", "INDEX", "SUMMARY", "costs", "in_order", "summary", "summary_lines", "write"]

SUMMARY, COSTS, INDEX = "summary.json", "costs.json", "index.html"
_SCHEMA = 1
_OK = (Status.DONE, Status.KEPT)


def in_order(outcomes: Iterable[UnitOutcome]) -> list[UnitOutcome]:
    """In the order of jobs, ranks and names, whoever was done first."""
    return sorted(outcomes, key=lambda o: (o.unit.job or "", o.unit.rank or 0, o.unit.name))


def summary(
    outcomes: Sequence[UnitOutcome], left_out: Sequence[tuple[str, str]], discovered: Discovered, settings: Settings
) -> dict[str, Any]:
    """The document of summary.json: the same for the same inputs, however and by how many workers they were done."""
    traces = [_row(o, settings) for o in outcomes if o.unit.kind is Kind.TRACE]
    return {
        "schema_version": _SCHEMA,
        "made_by": settings.version,
        "traces": traces,
        "jobs": _jobs(outcomes, settings),
        "left_out": [
            {"input": from_batch(path, settings.output), "reason": _private(reason, [path], settings)}
            for path, reason in left_out
        ],
        "copies": [
            {"input": from_batch(copy, settings.output), "same_as": from_batch(of, settings.output)}
            for copy, of in sorted(discovered.copies.items())
        ],
        "same_ranks": [
            *(_private(each, _inputs(discovered), settings) for each in discovered.same_ranks),
            *_same_ranks_in_units(outcomes),
        ],
    }


def _same_ranks_in_units(outcomes: Sequence[UnitOutcome]) -> list[str]:
    sentences = [(o.unit.name, (o.facts or {}).get(SAME_RANKS)) for o in outcomes]
    return [f"{name}: {readable(sentence)}" for name, sentence in sentences if sentence]


def _inputs(discovered: Discovered) -> list[str]:
    """The longest first, so that a name that begins another is not put in its place."""
    return sorted((name for unit in discovered.units for name in unit.inputs), key=len, reverse=True)


def _row(outcome: UnitOutcome, settings: Settings) -> dict[str, Any]:
    unit = outcome.unit
    location = location_of(unit, settings.output)[len(settings.output.rstrip("/")) + 1 :]
    done = outcome.status in _OK
    facts = dict(outcome.facts) if outcome.facts is not None else None
    faults = facts.pop("faults", []) if facts else []
    return {
        "name": unit.name,
        "inputs": [from_batch(name, settings.output) for name in unit.inputs],
        "status": "ok" if done else str(outcome.status),
        "reason": _private(outcome.reason, unit.inputs, settings) or None,
        "report": f"{location}/{REPORT}" if done and settings.reports and unit.kind is Kind.TRACE else None,
        "faults": [_private(fault, unit.inputs, settings) for fault in faults],
        "bundle": f"{location}/{BUNDLE}" if done else None,
        "rank": unit.rank,
        "facts": facts,
    }


def _private(reason: str, inputs: Sequence[str], settings: Settings) -> str:
    """The sentence with inputs named as they are from the batch."""
    for name in inputs:
        short = clean(from_batch(name, settings.output))
        for spelling in {name, name.removeprefix("file://"), clean(name), clean(" ".join(name.split()))}:
            reason = reason.replace(spelling, short)
    return readable(reason)


def _jobs(outcomes: Sequence[UnitOutcome], settings: Settings) -> list[dict[str, Any]]:
    names = dict.fromkeys(o.unit.job for o in outcomes if o.unit.job is not None)
    return [
        {
            "name": name,
            "page": f"jobs/{name}/{INDEX}",
            "ranks": [_row(o, settings) for o in outcomes if o.unit.job == name],
        }
        for name in names
    ]


def costs(outcomes: Sequence[UnitOutcome], wall_s: float, how: str) -> dict[str, Any]:
    """The document of costs.json: what each unit took, and the batch as a whole."""
    done = [o for o in outcomes if o.status is Status.DONE]
    peaks = [o.cost.peak_bytes for o in done if o.cost.peak_bytes is not None]
    return {
        "schema_version": _SCHEMA,
        "how": how,
        "wall_s": wall_s,
        "counts": {str(status): sum(o.status is status for o in outcomes) for status in Status},
        "done": {
            "wall_s": sum(o.cost.wall_s for o in done),
            "cpu_s": sum(o.cost.cpu_s for o in done),
            "input_bytes": sum(o.cost.input_bytes for o in done),
            "output_bytes": sum(o.cost.output_bytes for o in done),
            "peak_bytes": max(peaks, default=None),
        },
        "units": [
            {"name": o.unit.name, "job": o.unit.job, "status": str(o.status), **asdict(o.cost)} for o in outcomes
        ],
    }


def write(document: dict[str, Any], spent: dict[str, Any], outcomes: Sequence[UnitOutcome], settings: Settings) -> None:
    """Writes summary, costs, the tracebacks of faults in xsp, each job's page and the index, which comes last."""
    for name, content in ((SUMMARY, document), (COSTS, spent)):
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        put_file(join_path(settings.output, name), text.encode())
    for outcome in outcomes:
        if outcome.details:
            location = join_path(settings.output, "faults", f"{outcome.unit.job or ''}{outcome.unit.name}.txt")
            put_file(location, outcome.details.encode())
    from xsp.batch.pages import index_page, job_pages  # noqa: PLC0415 (imports polars)

    for job in document["jobs"]:
        if any(row["status"] == "ok" for row in job["ranks"]):
            for name, text in job_pages(settings.output, job["name"], job["ranks"]).items():
                put_file(join_path(settings.output, "jobs", job["name"], name), text.encode())
    put_file(join_path(settings.output, INDEX), index_page(document).encode())


# The end of a batch in words: a line a trace, the failures with their reasons, what it took, where to look.

_MAX_ROWS = 40
_COLUMNS = (
    ("trace", "", False, 0),
    ("model", "", False, 4),
    ("batch", "", True, 3),
    ("latency", "", True, 1),
    ("GPU share", "", True, 2),
    ("spans", "", True, 5),
)


def summary_lines(document: Mapping[str, Any], spent: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """The lines, fitted to so many cells (null: as many as needed)."""
    yield from document["same_ranks"]
    good = [row for row in document["traces"] if row["status"] == "ok"]
    if good:
        more = [f"... and {count(len(good) - _MAX_ROWS)} more"] if len(good) > _MAX_ROWS else []
        rows = [_cells(row) for row in good[:_MAX_ROWS]]
        yield from table_lines(of_rows("", _COLUMNS, rows, more), width, otherwise="see index.html")
        yield ""
    for job in document["jobs"]:
        yield _job(job)
    bad = [row for row in (*document["traces"], *_ranks(document)) if row["status"] == "failed"]
    yield from (f"failed: {row['reason']}" for row in bad)
    in_part = (*document["traces"], *_ranks(document))
    yield from (f"failed in part: {row['name']}: {fault}" for row in in_part for fault in row["faults"])
    if unknown := len(document["left_out"]):
        first = document["left_out"][0]
        files = "file" if unknown == 1 else "files"
        yield f"left out: {count(unknown)} {files} of no known format, such as {first['input']}"
    if copies := document["copies"]:
        inputs, hold = ("input", "holds") if len(copies) == 1 else ("inputs", "hold")
        first = copies[0]
        yield (
            f"not read again: {count(len(copies))} {inputs} that {hold} what another does, such as {first['input']},"
            f" the same as {first['same_as']}"
        )
    yield _counts_line(spent)


def _ranks(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [rank for job in document["jobs"] for rank in job["ranks"]]


def _job(job: Mapping[str, Any]) -> str:
    done = sum(rank["status"] == "ok" for rank in job["ranks"])
    return f"job {job['name']}: {count(done)} of {count(len(job['ranks']))} ranks; see {job['page']}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    facts = row["facts"]
    speeds = facts["speeds"]
    batches = ", ".join(str(s["batch_size"]) for s in speeds if s["batch_size"] is not None) or "-"
    latency = duration(speeds[0]["latency_ns"]) if speeds else "-"
    return row["name"], facts["model"], batches, latency, share(facts["gpu_share"]), f"{count(facts['spans'])}"


def _counts_line(spent: Mapping[str, Any]) -> str:
    counts, done = spent["counts"], spent["done"]
    parts = [f"{count(counts['done'])} done"]
    parts += [
        f"{count(counts[status])} {phrase}"
        for status, phrase in (("kept", "kept from before"), ("failed", "failed"))
        if counts[status]
    ]
    took = f"{spent['wall_s']:.1f} s by {spent['how']}"
    if not counts["done"]:
        return f"{', '.join(parts)} in {took}"
    return f"{', '.join(parts)} in {took}; {size(done['input_bytes'])} read, {size(done['output_bytes'])} written"
