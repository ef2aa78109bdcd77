"""What is left of a batch: its summary as JSON, what it cost, and its index page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xsp.batch.locations import from_batch, join_path, put_file
from xsp.batch.unit import Kind, Status
from xsp.batch.work import BUNDLE, REPORT, SAME_RANKS, location_of
from xsp_model.errors import clean, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp.batch.discover import Discovered
    from xsp.batch.unit import Outcome, Settings

__all__ = ["COSTS", "INDEX", "SUMMARY", "costs", "in_order", "summary", "write"]

SUMMARY, COSTS, INDEX = "summary.json", "costs.json", "index.html"
_SCHEMA = 1
_OK = (Status.DONE, Status.KEPT)


def in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """In the order of jobs, ranks and names, whoever was done first."""
    return sorted(outcomes, key=lambda o: (o.unit.job or "", o.unit.rank or 0, o.unit.name))


def summary(
    outcomes: Sequence[Outcome], left_out: Sequence[tuple[str, str]], discovered: Discovered, settings: Settings
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


def _same_ranks_in_units(outcomes: Sequence[Outcome]) -> list[str]:
    sentences = [(o.unit.name, (o.facts or {}).get(SAME_RANKS)) for o in outcomes]
    return [f"{name}: {readable(sentence)}" for name, sentence in sentences if sentence]


def _inputs(discovered: Discovered) -> list[str]:
    """The longest first, so that a name that begins another is not put in its place."""
    return sorted((name for unit in discovered.units for name in unit.inputs), key=len, reverse=True)


def _row(outcome: Outcome, settings: Settings) -> dict[str, Any]:
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


def _jobs(outcomes: Sequence[Outcome], settings: Settings) -> list[dict[str, Any]]:
    names = dict.fromkeys(o.unit.job for o in outcomes if o.unit.job is not None)
    return [
        {
            "name": name,
            "page": f"jobs/{name}/{INDEX}",
            "ranks": [_row(o, settings) for o in outcomes if o.unit.job == name],
        }
        for name in names
    ]


def costs(outcomes: Sequence[Outcome], wall_s: float, how: str) -> dict[str, Any]:
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


def write(document: dict[str, Any], spent: dict[str, Any], outcomes: Sequence[Outcome], settings: Settings) -> None:
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
