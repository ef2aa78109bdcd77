"""A store of runs: a folder of Parquet, a file a run, there whole or not at all; no server, no lock, many writers."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp.batch.locations import absolute, is_url, join_path, list_files, put_file, read_many
from xsp_analyze.history.facts import COLUMNS, SCHEMA_VERSION, runs_of, upgrade
from xsp_analyze.sql import QueryLimits, query_frames
from xsp_model import XspError
from xsp_model.errors import readable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

__all__ = ["Run", "Store", "is_store", "open"]

_NAME = re.compile(r"(?P<time>\d{8}T\d{6}Z)-(?P<run>[0-9a-f]{16})\.v(?P<version>\d+)\.parquet")
_STAMP = "%Y%m%dT%H%M%SZ"
_AT_ONCE = 1_000  # files, which bounds memory
_FOR_TRENDS = ("run", "label", "measure")
_ADVICE = "Add runs with `xsp history add STORE TRACE`"


@dataclass(frozen=True, slots=True)
class Run:
    """A file of a store, by its name: when it was, which run, and of which schema version."""

    file: str
    time: datetime
    identity: str
    version: int


def _run_of(file: str) -> Run | None:
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    try:
        time = datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Run(file, time, match["run"], int(match["version"]))


def is_store(location: str) -> bool:
    """Whether the folder of this machine holds runs of a history."""
    folder = Path(location)
    return folder.is_dir() and any(_NAME.fullmatch(file.name) for file in folder.glob("*Z-*.v*.parquet"))


def open(location: str | os.PathLike[str]) -> Store:  # noqa: A001 (xsp.history.open is what people will type)
    """The store at a path or URL; XspError where nothing is there."""
    store = Store(str(location))
    if not store.runs():
        raise XspError("holds no history of runs", path=str(location), advice=_ADVICE)
    return store


@dataclass
class Store:
    """Runs at a path or URL; `left_out` says in sentences of files that could not be read."""

    location: str
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Of a path from the root, as where one is may change."""
        self.location = absolute(self.location)

    def runs(self) -> list[Run]:
        """What is there by its names, in order of time; of a run that two writers added at once, the first."""
        first: dict[str, Run] = {}
        for run in sorted(filter(None, map(_run_of, self._names())), key=lambda run: run.file):
            first.setdefault(run.identity, run)
        return list(first.values())

    def _names(self) -> Iterable[str]:
        if is_url(self.location):
            try:
                return [entry.below for entry in list_files(f"{self.location.rstrip('/')}/")]
            except XspError as error:
                if "nothing is there" in str(error):
                    return []
                raise
        folder = Path(self.location)
        if folder.exists() and not folder.is_dir():
            raise XspError("is a file, and a history is a folder", path=self.location, advice=_ADVICE)
        return [file.name for file in folder.iterdir()] if folder.is_dir() else []

    def add(self, rows: pl.DataFrame, identity: str, time: datetime) -> bool:
        """Writes the run, whole or not at all; whether it was not there yet. XspError where that cannot be done."""
        if any(run.identity == identity for run in self.runs()):
            return False
        name = f"{time.astimezone(UTC).strftime(_STAMP)}-{identity}.v{SCHEMA_VERSION}.parquet"
        content = io.BytesIO()
        rows.select(list(COLUMNS)).write_parquet(content, compression="zstd", statistics=False)
        put_file(join_path(self.location, name), content.getvalue())
        return True

    def rows(self, runs: Sequence[Run] | None = None, sections: Sequence[str] | None = None) -> pl.DataFrame:
        """All rows of these runs (of all), in COLUMNS, with `run`, `time_ns` and `file`.

        What cannot be read is left out, and told in `left_out`: the others stand. XspError on files of a newer xsp.
        """
        chosen = self.runs() if runs is None else list(runs)
        if newer := [run.file for run in chosen if run.version > SCHEMA_VERSION]:
            raise XspError("was written by a newer xsp", path=join_path(self.location, newer[0]), advice="Update xsp")
        parts = []
        for version in sorted({run.version for run in chosen}):
            names = [run.file for run in chosen if run.version == version]
            parts += [upgrade(part, version) for part in self._read(names, sections)]
        keys = pl.DataFrame(
            [(run.file, run.identity, int(run.time.timestamp()) * 1_000_000_000) for run in chosen],
            schema={"file": pl.String, "run": pl.String, "time_ns": pl.Int64},
            orient="row",
        )
        every = pl.concat(parts) if parts else pl.DataFrame(schema={**COLUMNS, "file": pl.String})
        return every.join(keys, on="file", how="inner", maintain_order="left").sort(
            "time_ns", "run", maintain_order=True
        )

    def _read(self, names: Sequence[str], sections: Sequence[str] | None) -> list[pl.DataFrame]:
        """The rows of these files; of many of which some cannot be read, by halves."""
        if not names:
            return []
        try:
            return [self._scan(names, sections)]
        except (OSError, pl.exceptions.PolarsError) as error:
            if len(names) == 1:
                reason = " ".join(str(error).split())[:200]
                self.left_out.append(f"{readable(names[0])} is left out: it cannot be read ({reason})")
                return []
        half = len(names) // 2
        return [*self._read(names[:half], sections), *self._read(names[half:], sections)]

    def _scan(self, names: Sequence[str], sections: Sequence[str] | None) -> pl.DataFrame:
        keep = pl.lit(value=True) if sections is None else pl.col("section").is_in(list(sections))
        if not is_url(self.location):
            files = [str(Path(self.location, name)) for name in names]
            parts = [_scan_files(files[at : at + _AT_ONCE], keep) for at in range(0, len(files), _AT_ONCE)]
            return pl.concat(parts)
        contents = read_many([join_path(self.location, name) for name in names])
        tables = (pl.read_parquet(io.BytesIO(content)) for content in contents)
        return pl.concat(
            table.filter(keep).with_columns(pl.lit(name).alias("file"))
            for name, table in zip(names, tables, strict=True)
        )

    def facts(self) -> pl.DataFrame:
        """One row a run, in order of time: what it was, its labels (`label.commit`), and what was measured."""
        return runs_of(self.rows(sections=_FOR_TRENDS))

    def query(self, text: str, limits: QueryLimits | None = None) -> pl.DataFrame:
        """The answer to one SELECT over `runs`, as `facts()` has them, and `facts`, every row of every run."""
        rows = self.rows()
        return query_frames({"runs": runs_of(rows), "facts": rows}, text, limits or QueryLimits())

    def of(self, identities: Iterable[str]) -> list[pl.DataFrame]:
        """The rows of each of these runs, in their order."""
        in_order = list(identities)
        by_identity: dict[str, Any] = {run.identity: run for run in self.runs()}
        rows = self.rows([by_identity[each] for each in in_order if each in by_identity])
        groups = {key[0]: part for key, part in rows.group_by("run", maintain_order=True)}
        return [groups[each] for each in in_order if each in groups]


def _scan_files(files: list[str], keep: pl.Expr) -> pl.DataFrame:
    rows = pl.scan_parquet(files, include_file_paths="path", glob=False, use_statistics=False).filter(keep).collect()
    return rows.with_columns(pl.col("path").str.split("/").list.last().alias("file")).drop("path")
