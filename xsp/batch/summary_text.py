"""The end of a batch in words: a line a trace, the failures with their reasons, what it took, where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.render.terminal import table_lines
from xsp_analyze.text.table import of_rows
from xsp_analyze.text.units import count, duration, share, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["lines"]

_MAX_ROWS = 40
_COLUMNS = (
    ("trace", "", False, 0),
    ("model", "", False, 4),
    ("batch", "", True, 3),
    ("latency", "", True, 1),
    ("GPU share", "", True, 2),
    ("spans", "", True, 5),
)


def lines(document: Mapping[str, Any], spent: Mapping[str, Any], width: int | None) -> Iterator[str]:
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
