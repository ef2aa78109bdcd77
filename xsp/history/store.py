"""A store of runs: a folder of Parquet, a file a run, there whole or not at all; no server, no lock, many writers."""

from __future__ import annotations

import io
import json
import re
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from xsp.batch.locations import absolute, is_url, join_path, list_files, put_file, read_many
from xsp_analyze.history.facts import COLUMNS, SCHEMA_VERSION, runs_of, upgrade
from xsp_analyze.sql import QueryLimits, query_frames
from xsp_model import XspError
from xsp_model.errors import readable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Run", "Store", "file_of_run", "open"]

_NAME = re.compile(
    r"(?P<time>\d{8}T\d{6}Z)-(?P<run>[0-9a-f]{16})-(?P<checksum>[0-9a-f]{8})\.v(?P<version>\d+)\.parquet"
)
_STAMP = "%Y%m%dT%H%M%SZ"
_AT_ONCE = 1_000  # files, which bounds memory
_FOR_TRENDS = ("run", "label", "measure")
_HEAD = "xsp_run"  # beside the table of a file its rows of these sections, which is a tenth of the work to read
_NO_TABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError, KeyError)
_ADVICE = "Add runs with `xsp history add STORE TRACE`"


@dataclass(frozen=True, slots=True)
class Run:
    """A file of a store, by its name: when it was, which run, the CRC-32 of the file, and of which schema version."""

    file: str
    time: datetime
    identity: str
    checksum: int
    version: int


def _run_of(file: str) -> Run | None:
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    try:
        time = datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Run(file, time, match["run"], int(match["checksum"], 16), int(match["version"]))


def file_of_run(rows: pl.DataFrame, identity: str, time: datetime) -> tuple[str, bytes]:
    """Name and content of the file that holds these rows; its name says whether it is still as it was written."""
    buffer = io.BytesIO()
    of_run = rows.select(*COLUMNS, pl.lit(identity).alias("run"))
    head = json.dumps(rows.filter(pl.col("section").is_in(_FOR_TRENDS)).select(*COLUMNS).rows())
    of_run.write_parquet(buffer, compression="zstd", statistics=False, metadata={_HEAD: head})
    content = buffer.getvalue()
    stamp = time.astimezone(UTC).strftime(_STAMP)
    return f"{stamp}-{identity}-{zlib.crc32(content):08x}.v{SCHEMA_VERSION}.parquet", content


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
        if any(run.identity == identity for run in map(_run_of, self._names()) if run):
            return False
        name, content = file_of_run(rows, identity, time)
        put_file(join_path(self.location, name), content)
        return True

    def rows(self, runs: Sequence[Run] | None = None, *, for_trends: bool = False) -> pl.DataFrame:
        """All rows of these runs (of all), in COLUMNS, with `run`, `time_ns` and `file`; or only what trends are of.

        What cannot be read is left out, and told in `left_out`: the others stand. XspError on files of a newer xsp.
        """
        chosen = self.runs() if runs is None else list(runs)
        if newer := [run.file for run in chosen if run.version > SCHEMA_VERSION]:
            raise XspError("was written by a newer xsp", path=join_path(self.location, newer[0]), advice="Update xsp")
        parts: list[pl.DataFrame] = []
        for at in range(0, len(chosen), _AT_ONCE):
            parts += self._read(chosen[at : at + _AT_ONCE], for_trends=for_trends)
        keys = pl.DataFrame(
            [(run.file, run.identity, int(run.time.timestamp()) * 1_000_000_000) for run in chosen],
            schema={"file": pl.String, "run": pl.String, "time_ns": pl.Int64},
            orient="row",
        )
        every = pl.concat(parts) if parts else pl.DataFrame(schema={**COLUMNS, "run": pl.String})
        return every.join(keys, on="run", how="inner", maintain_order="left").sort(
            "time_ns", "run", maintain_order=True
        )

    def _read(self, runs: Sequence[Run], *, for_trends: bool) -> Iterator[pl.DataFrame]:
        """The rows of these files, but for what is not as it was written; one that was deleted meanwhile is no run."""
        names = [join_path(self.location, run.file) for run in runs]
        by_version: dict[int, list[tuple[Run, bytes]]] = {}
        for run, content in zip(runs, read_many(names), strict=True):
            if isinstance(content, FileNotFoundError):
                continue
            if isinstance(content, OSError):
                self._leave_out(run, f"it cannot be read ({content.strerror or content})")
            elif zlib.crc32(content) != run.checksum:
                self._leave_out(run, "it was torn or changed after it was written. Delete it, and add the run again")
            else:
                by_version.setdefault(run.version, []).append((run, content))
        for version, files in sorted(by_version.items()):
            yield from self._parse(files, _heads if for_trends and version == SCHEMA_VERSION else _tables)

    def _parse(
        self, files: Sequence[tuple[Run, bytes]], parse: Callable[[Sequence[tuple[Run, bytes]]], pl.DataFrame]
    ) -> list[pl.DataFrame]:
        """The tables of files that are whole; of many of which some are no such tables, by halves."""
        try:
            rows = parse(files)
            if dict(rows.schema) != {**COLUMNS, "run": pl.String()}:
                raise pl.exceptions.SchemaError("columns of other types")
            if rows["run"].rle().struct.field("value").to_list() != [run.identity for run, _ in files]:
                raise pl.exceptions.SchemaError("no row, or rows of another run")
            return [rows.filter(pl.col("name").is_not_null())]
        except (OSError, *_NO_TABLE) as error:
            if len(files) == 1:
                self._leave_out(files[0][0], f"it holds no facts of a run ({' '.join(str(error).split())[:200]})")
                return []
        half = len(files) // 2
        return [*self._parse(files[:half], parse), *self._parse(files[half:], parse)]

    def _leave_out(self, run: Run, reason: str) -> None:
        sentence = f"{readable(run.file)} is left out: {reason}"
        if sentence not in self.left_out:
            self.left_out.append(sentence)

    def facts(self, runs: Sequence[Run] | None = None) -> pl.DataFrame:
        """One row a run, in order of time: what it was, its labels (`label.commit`), and what was measured."""
        return runs_of(self.rows(runs, for_trends=True))

    def query(self, text: str, limits: QueryLimits | None = None) -> pl.DataFrame:
        """The answer to one SELECT over `runs`, as `facts()` has them, and `facts`, every row of every run."""
        rows = self.rows(for_trends="facts" not in text.lower())  # a query that does not name them asks for none
        return query_frames({"runs": runs_of(rows), "facts": rows}, text, limits or QueryLimits())

    def of(self, identities: Iterable[str], runs: Sequence[Run] | None = None) -> list[pl.DataFrame]:
        """The rows of each of these runs, in their order; `runs`: what is there, where that is known."""
        in_order = list(identities)
        by_identity = {run.identity: run for run in runs or self.runs() if run.identity in in_order}
        rows = self.rows([by_identity[each] for each in in_order if each in by_identity])
        groups = {key[0]: part for key, part in rows.group_by("run", maintain_order=True)}
        return [groups[each] for each in in_order if each in groups]


def _tables(files: Sequence[tuple[Run, bytes]]) -> pl.DataFrame:
    """All rows of files of one version, as of this one."""
    rows = pl.scan_parquet([content for _, content in files], glob=False, use_statistics=False).collect()
    return upgrade(rows, files[0][0].version).select(*COLUMNS, "run")


def _heads(files: Sequence[tuple[Run, bytes]]) -> pl.DataFrame:
    """The rows that trends are of."""
    rows = [
        (*row, run.identity)
        for run, content in files
        for row in json.loads(pl.read_parquet_metadata(io.BytesIO(content))[_HEAD])
    ]
    schema = {**COLUMNS, "run": pl.String()}
    return pl.DataFrame(dict(zip(schema, zip(*rows, strict=True), strict=True)), schema=schema)
