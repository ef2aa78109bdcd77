"""What is clear of events only when all are read: which stand there twice, and which process device work is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Finding, Kind, LedgerKind, Level, scratch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_model.arrays import Bools, Ints

__all__ = ["once", "with_process"]

_PIECE = 1 << 20
_SORTED = 1 << 21  # marks sorted at once


def once(spans: pl.DataFrame, marks: Ints, facts: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, list[Finding]]:
    """The spans without those that are alike in every column, `facts` included; modules may well be alike.

    `marks` has one number a span, alike where the spans are: they find the few suspects.
    """
    twice = _duplicated(marks)
    repeats = _repeats(spans, np.concatenate(list(_at(marks, twice))), marks, facts) if len(twice) else None
    count = 0 if repeats is None else len(repeats)
    detail = "events that stand in the file more than once, alike in every column, were read once"
    findings = [Finding(LedgerKind.DUPLICATE_EVENT, detail, count)]
    if repeats is None or not count:
        return spans, findings
    keep = np.ones(spans.height, dtype=np.bool_)
    keep[repeats] = False
    return scratch.gather_rows(spans, np.flatnonzero(keep)), findings


def _duplicated(marks: Ints) -> Ints:
    """The marks that come more than once, sorted; sorts a share of them at a time."""
    shares = 1 + len(marks) // _SORTED
    duplicates = []
    for share in range(shares):
        pieces = (marks[first : first + _PIECE] for first in range(0, len(marks), _PIECE))
        some = marks if shares == 1 else np.concatenate([p[p % shares == share] for p in pieces])
        some = np.sort(some)
        duplicates.append(np.unique(some[1:][some[1:] == some[:-1]]))
    return np.sort(np.concatenate(duplicates))


def _at(marks: Ints, sought: Ints) -> Iterator[Ints]:
    """Where the marks sought (sorted, at least one) are."""
    for first in range(0, len(marks), _PIECE):
        piece = marks[first : first + _PIECE]
        index = np.minimum(np.searchsorted(sought, piece), len(sought) - 1)
        yield first + np.flatnonzero(sought[index] == piece)


def _repeats(spans: pl.DataFrame, at: Ints, marks: Ints, facts: Mapping[str, pl.DataFrame]) -> Ints:
    """Of the suspects at these positions those that are like an earlier one."""
    suspects = spans[at].with_columns(pl.Series("mark", marks[at]), pl.Series("at", at))
    suspects = suspects.filter(pl.col("kind") != str(Kind.MODULE))
    for name, table in facts.items():
        described = table.filter(pl.col("row").is_in(suspects["row"].implode()))
        suspects = suspects.join(described, on="row", how="left", maintain_order="left", suffix=f"_{name}")
    first = suspects.unique(pl.exclude("row", "at"), keep="first", maintain_order=True)["at"]
    return suspects.filter(~pl.col("at").is_in(first.implode()))["at"].to_numpy()


def with_process(spans: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """Device events carry the device's number as pid; their process is the one that made the launch."""
    on_device = ((spans["level"] == str(Level.KERNEL)) | (spans["kind"] == str(Kind.SYNC))).to_numpy()
    process = spans["process_id"]
    hosts = process.drop_nulls().unique()
    only = hosts[0] if len(hosts) == 1 else None
    if only is not None or not len(hosts):
        column, unclear = _filled(process, on_device, only), 0
    else:
        column, unclear = _by_launch(spans, on_device)
    detail = "device activities whose launch may be of several processes"
    return spans.with_columns(column), [Finding(LedgerKind.UNCLEAR_PROCESS, detail, unclear)]


def _filled(process: pl.Series, on_device: Bools, only: int | None) -> pl.Series:
    """The processes with device work of the only one that there is."""
    if only is None:
        return process
    values, valid = scratch.empty(len(process), np.int64), on_device.copy()
    for first in range(0, len(process), _PIECE):
        piece = process.slice(first, _PIECE)
        values[first : first + _PIECE] = piece.fill_null(only).to_numpy()
        valid[first : first + _PIECE] |= piece.is_not_null().to_numpy()
    return scratch.series("process_id", values, valid)


def _by_launch(spans: pl.DataFrame, on_device: Bools) -> tuple[pl.Series, int]:
    """The processes with device work of the one whose call has its correlation id, and for how much several have."""
    is_call = (spans["level"] == str(Level.RUNTIME)) & (spans["kind"] == str(Kind.CALL))
    calls = spans.select("correlation_id", "process_id").filter(is_call & spans["correlation_id"].is_not_null())
    owners = calls.group_by("correlation_id").agg(
        pl.col("process_id").min().alias("owner"), pl.col("process_id").n_unique().alias("n")
    )
    work = spans.select("correlation_id").filter(pl.Series(on_device))
    launch = work.join(owners, on="correlation_id", how="left", maintain_order="left")
    owner = launch.select(pl.when(pl.col("n") == 1).then(pl.col("owner"))).to_series()
    at = np.flatnonzero(on_device)
    values, valid = (
        spans["process_id"].fill_null(0).to_numpy().copy(),
        spans["process_id"].is_not_null().to_numpy().copy(),
    )
    values[at], valid[at] = owner.fill_null(0).to_numpy(), owner.is_not_null().to_numpy()
    return scratch.series("process_id", values, valid), int((launch["n"] > 1).sum())
