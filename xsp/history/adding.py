"""From traces, bundles and results of `xsp batch` to runs of a history."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.locations import absolute, fetch, is_url, join_path
from xsp.cache.cache import Cache
from xsp.history.store import Store
from xsp.opening import load
from xsp.reading import Reading
from xsp.version import version_line
from xsp_analyze.faults import fault_of, noting_faults
from xsp_analyze.history.facts import Described, facts_of_run, identity_of
from xsp_model import XspError

if TYPE_CHECKING:
    import polars as pl

    from xsp_model import Trace

__all__ = ["Addition", "add_bundle", "add_input", "add_rows", "facts_with_identity", "labels_of", "time_of"]

_SUMMARY = "summary.json"
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Addition:
    """What came of one run: its name, identity, and whether it was not there yet."""

    name: str
    identity: str
    is_new: bool


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Labels as `commit=abc`; XspError where one is not so."""
    labels: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip() or not value.strip():
            raise XspError(f"{text!r} is no label", advice="Write it as commit=1a2b3c")
        if labels.get(name.strip(), value.strip()) != value.strip():
            raise XspError(f"the label {name.strip()!r} is given twice", advice="Give each label one value")
        labels[name.strip()] = value.strip()
    return labels


def time_of(text: str) -> datetime:
    """A time as ISO 8601 has it (UTC unless it says otherwise), or in seconds since 1970; XspError where it is none."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() and len(text) > len("20261231") else None
        time = datetime.fromtimestamp(seconds, UTC) if seconds is not None else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise XspError(f"{text!r} is no time", advice="Write it as 2026-11-27T02:00, of UTC") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def add_input(
    store: Store,
    text: str,
    described: Described,
    time: datetime | None,
    *,
    reading: Reading,
    cache: Cache | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Addition]:
    """Adds the run of a trace or bundle, or all that a batch converted; XspError where one cannot be."""
    if (Path(text) / _SUMMARY).is_file():
        for name, bundle, report in _of_batch(Path(text)):
            progress(f"adding {name}")
            of_report = described if described.report else replace(described, report=report)
            yield _add(store, name, load([bundle], Reading(), progress), of_report, time)
        return
    yield _add(store, text, load([text], reading, progress, cache=cache), described, time)


def _of_batch(folder: Path) -> Iterator[tuple[str, str, str | None]]:
    """Name, bundle and report of each trace that a batch converted; ranks of jobs are no runs by themselves."""
    try:
        rows = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))["traces"]
        for row in rows:
            if row["bundle"]:
                report = row["report"] and str((folder / row["report"]).absolute())
                yield str(row["name"]), str(folder / row["bundle"]), report
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise XspError("is no summary of xsp batch", path=folder / _SUMMARY, advice="Run xsp batch again") from error


def add_bundle(location: str, bundle: str, report: str | None, labels: Mapping[str, str]) -> Addition:
    """Adds what a worker of a batch converted, wherever both lie."""
    with _at_hand(bundle) as path:
        described = Described(labels, report=report and absolute(report))
        return _add(Store(location), bundle, load([str(path)], Reading(), lambda _: None), described, None)


@contextmanager
def _at_hand(location: str) -> Iterator[Path]:
    if not is_url(location):
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="xsp-history-") as folder:
        yield fetch(join_path(location), Path(folder))


def facts_with_identity(trace: Trace, described: Described) -> tuple[pl.DataFrame, str]:
    """The rows of the run, and what no other run has."""
    with noting_faults(), fault_of("The facts of the run"):
        rows = facts_of_run(trace, described, {"xsp": version_line().removeprefix("xsp ")})
    return rows, identity_of(trace, described.serving_phase)


def _add(store: Store, name: str, trace: Trace, described: Described, time: datetime | None) -> Addition:
    rows, identity = facts_with_identity(trace, described)
    is_new = store.add(rows, identity, time or _time_of_capture(trace))
    return Addition(os.path.basename(name.rstrip("/")) or name, identity, is_new)  # noqa: PTH119 (may be a URL)


def add_rows(store: Store, runs: Sequence[tuple[pl.DataFrame, str]]) -> None:
    """Adds runs whose facts are there already, as of now."""
    for rows, identity in runs:
        store.add(rows, identity, datetime.now(UTC))


def _time_of_capture(trace: Trace) -> datetime:
    """When the run was captured, where its file says so in a time since 1990; else now."""
    epochs = [epoch for epoch in trace.frame("runs")["epoch_ns"].to_list() if epoch and epoch > 20 * 365 * 86_400 * _NS]
    return datetime.fromtimestamp(min(epochs) // _NS, UTC) if epochs else datetime.now(UTC)
