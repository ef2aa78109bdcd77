"""A trace on disk: a folder of zstd Parquet files and a manifest, whose rows are checked before they are first used."""

from __future__ import annotations

import json
import os
import shutil
import stat
import traceback
import zlib
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model import integrity
from xsp_model.columns.arrow import read_parquet, write_parquet
from xsp_model.errors import AGAIN, XspError
from xsp_model.limits import limits
from xsp_model.output_files import replace_folder, room_beside
from xsp_model.schema import SCHEMA_VERSION, TABLES
from xsp_model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from xsp_model.columns.arrays import Ints
    from xsp_model.schema import TableSpec

__all__ = [
    "MANIFEST",
    "UPGRADES",
    "RowsCheck",
    "Sound",
    "broken_bundle",
    "check_contents",
    "check_name",
    "check_tables",
    "fault_behind",
    "fault_sentence",
    "file_entry",
    "innermost_line",
    "is_bundle",
    "leaves",
    "read",
    "read_json",
    "read_manifest",
    "readable",
    "refuse",
    "upgrade",
    "write",
]

# The rows of a bundle: checked a table at a time, before it is first used, and suspected where anything goes wrong.

_MAX_WHAT = 300


class Sound(Protocol):
    """What was checked before: tables by name, or some columns of one as `TABLE: COLUMN, COLUMN`."""

    def __contains__(self, what: object, /) -> bool:
        """Whether this was."""

    def add(self, what: str, /) -> None:
        """This was, just now."""


class RowsCheck:
    """Holds the rows of each table of a bundle against the rules of the model when called, once; XspError."""

    def __init__(self, unchecked: Trace, sound: Sound) -> None:
        self.trace = unchecked
        self._sound = sound
        self._done: set[str] = set()
        _in_use.add(self)

    @cached_property
    def _runs(self) -> Ints:
        return integrity.run_ids(self.trace)

    def __call__(self, table: str, only: Collection[str] | None = None) -> None:
        """`only`: the columns that will be used; None: any."""
        what = table if only is None else f"{table}: {', '.join(c for c in TABLES[table].schema.names if c in only)}"
        if table in self._done or what in self._done:
            return
        if self.trace.height(table) and table not in self._sound and what not in self._sound:
            path = self.trace.origin or Path()
            with readable(path):
                refuse(path, integrity.violations_in(self.trace, table, self._runs, only))
            self._sound.add(what)
        self._done.add(what)


_in_use: WeakSet[RowsCheck] = WeakSet()  # of bundles that somebody may have forged


def fault_behind(error: BaseException) -> XspError | None:
    """What to say of an error that nobody foresaw while a bundle was read: whatever is wrong with that bundle.

    Where nothing can be found it is said that it may be our fault. None: no bundle was read, or a disk is to blame.
    """
    suspects = list(_in_use)
    is_fault = isinstance(error, Exception) or type(error).__name__ == "PanicException"  # which polars ends with
    if not suspects or not is_fault or isinstance(error, OSError):
        return None
    if (fault := broken_bundle()) is not None:
        return fault
    what = f"{type(error).__name__} in {innermost_line(error)}: {error}"
    return XspError(
        f"no answer can be made of {'this bundle' if len(suspects) == 1 else 'these bundles'} ({what[:_MAX_WHAT]})",
        path=suspects[0].trace.origin if len(suspects) == 1 else None,
        advice=f"{AGAIN}; where that does not help, it is a fault of XSP: report it",
    )


def broken_bundle() -> XspError | None:
    """What is wrong with one of the bundles that are being read; None where nothing can be found."""
    for each in list(_in_use):
        path = each.trace.origin or Path()
        try:
            with readable(path):
                refuse(path, integrity.broken_rules(each.trace))
                refuse(path, integrity.doubtful(each.trace))
        except XspError as fault:
            return fault
    return None


@contextmanager
def fault_sentence() -> Iterator[None]:
    """Within `with`, or in a function decorated: XspError where a bundle is to blame for an error nobody foresaw."""
    try:
        yield
    except XspError:
        raise
    except BaseException as error:
        fault = fault_behind(error)
        if fault is None:
            raise
        raise fault from error


def innermost_line(error: BaseException) -> str:
    """The innermost line of ours that it came through."""
    lines = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [f"{file.name}:{line}" for file, line in lines if any(part.startswith("xsp") for part in file.parts[-4:-1])]
    return ours[-1] if ours else "no line of XSP"


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What libraries raise of what they cannot read becomes a sentence about the bundle."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError, KeyError, TypeError) as error:
        raise XspError("a table of the bundle cannot be read", path=path, advice=AGAIN) from error


def refuse(path: Path, violations: Iterator[str]) -> None:
    """XspError where there is a violation, which names the first."""
    violation = next(violations, None)
    if violation is not None:
        raise XspError(f"the bundle is damaged: {violation}", path=path, advice=AGAIN)


MANIFEST = "manifest.json"
_READ_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 26
_MAX_GROUP_ROWS = 1 << 20  # ours have an eighth of that
_MAX_COLUMN_BYTES = 1 << 31
_ROWS_FREE, _MAX_CELLS_A_BYTE = 1 << 22, 150  # 200 where all rows are alike, 100 where only times differ, else 1 to 10
_BYTES_FREE, _MAX_RATIO = 1 << 30, 1_000
_PHYSICAL = {pa.int64(): "INT64", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}
_TEXT = "BYTE_ARRAY"


def leaves(path: Path, folder: Path) -> bool:
    """Whether what lies in the folder leads out of it or nowhere, or is no ordinary file or folder."""
    try:
        mode = path.stat().st_mode
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            return True
    except (OSError, RuntimeError):  # links in a circle
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_json(path: Path) -> object:
    """What the bundle's manifest holds; XspError where it is no JSON, or no file of the bundle's own."""
    file = path / MANIFEST
    if leaves(file, path):
        raise XspError("the bundle's manifest is no file of its own", path=path, advice=AGAIN)
    try:
        with file.open("rb") as content:
            text = content.read(_MAX_MANIFEST_BYTES + 1)
        if len(text) > _MAX_MANIFEST_BYTES:
            raise XspError("the bundle's manifest is longer than any is", path=path, advice=AGAIN)
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise XspError("the bundle's manifest cannot be read", path=path, advice=AGAIN) from error


def file_entry(path: Path) -> dict[str, object]:
    """What the manifest says of a file: its size and the CRC-32 of its content, in hexadecimal."""
    checksum, size = 0, 0
    with path.open("rb") as content:
        while block := content.read(_READ_BYTES):
            checksum, size = zlib.crc32(block, checksum), size + len(block)
    return {"bytes": size, "crc32": f"{checksum:08x}"}


def check_contents(path: Path, files: Collection[Path], manifest: Mapping[str, object]) -> None:
    """XspError where a file is not the bundle's own, or not what the manifest says was written.

    Bundles of before files had checksums have none to compare with.
    """
    entries = manifest.get("files", {})
    if not isinstance(entries, dict):
        raise XspError("the bundle's manifest lists no files", path=path, advice=AGAIN)
    gone = sorted(set(entries) - {file.name for file in files})
    if gone:
        raise XspError(f"the bundle lacks its file {gone[0]}", path=path, advice=AGAIN)
    for file in files:
        if leaves(file, path) or not file.is_file():
            raise XspError(f"{file.name} is no file of the bundle's own", path=path, advice=AGAIN)
        if "files" in manifest and file_entry(file) != entries.get(file.name):
            raise XspError(f"{file.name} is not what was written: it was damaged or changed", path=path, advice=AGAIN)


def check_tables(path: Path, files: Mapping[str, Path], manifest: Mapping[str, object], *, current: bool) -> None:
    """XspError where what the Parquet files say of themselves is not what such tables are.

    Of a `current` bundle, every column has the declared type; of any, rows are as many as the manifest says, and no
    more than files of their size hold.
    """
    rows = manifest.get("rows", {})
    if not isinstance(rows, dict):
        raise XspError("the bundle's manifest does not say how many rows there are", path=path, advice=AGAIN)
    for name, file in files.items():
        try:
            metadata = pq.read_metadata(file)
            problem = _problem(metadata, file.stat().st_size, rows.get(name, metadata.num_rows))
            if problem is None and current and not _has_columns(metadata, TABLES[name]):
                problem = "has other columns than this version writes"
        except (pa.ArrowException, OSError, ValueError) as error:
            raise XspError(f"{file.name} cannot be read", path=path, advice=AGAIN) from error
        if problem is not None:
            raise XspError(f"{file.name} {problem}", path=path, advice=AGAIN)


def _problem(metadata: pq.FileMetaData, size: int, rows: object) -> str | None:
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    if metadata.num_rows != rows or sum(group.num_rows for group in groups) != rows:
        return "has not as many rows as the manifest says"
    columns = [(group.column(n), group.num_rows) for group in groups for n in range(group.num_columns)]
    if any(column.num_values != height for column, height in columns):
        return "has columns of different lengths"
    is_dense = metadata.num_rows * metadata.num_columns > _MAX_CELLS_A_BYTE * size
    if (metadata.num_rows > _ROWS_FREE and is_dense) or any(g.num_rows > _MAX_GROUP_ROWS for g in groups):
        return f"has {metadata.num_rows:,} rows in {size:,} bytes, which no trace has"
    unpacked = sum(column.total_uncompressed_size for column, _ in columns)
    if unpacked > max(_BYTES_FREE, _MAX_RATIO * size) or any(
        not 0 <= column.total_uncompressed_size < _MAX_COLUMN_BYTES for column, _ in columns
    ):
        return "unpacks to more than any trace does"
    return None


def _has_columns(metadata: pq.FileMetaData, spec: TableSpec) -> bool:
    """Whether the columns are the table's, both as Arrow and as other readers of Parquet take them."""
    parquet = metadata.schema
    stored = [parquet.column(n) for n in range(metadata.num_columns)]
    return parquet.to_arrow_schema().equals(spec.schema) and all(
        each.physical_type == _PHYSICAL.get(column.type, _TEXT)
        and each.logical_type.type in ("NONE", "STRING")
        and each.max_repetition_level == 0
        and each.max_definition_level == int(column.nullable)
        for each, column in zip(stored, spec.columns, strict=True)
    )


# Brings bundles of earlier schema versions up to date, one pure function a version.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Tables = Mapping[str, pa.Table]


def _with_tables_of_2(tables: Tables) -> Tables:
    """Version 2 says how the layer of replayed and compiled work is known; its earliest bundles lacked collectives."""
    added = ("attributions", "collectives", "compiled_kernels")
    return {**{name: TABLES[name].schema.empty_table() for name in added}, **tables}


def _with_columns_of_3(tables: Tables) -> Tables:
    """Version 3 keeps strides of operators' inputs and the lines that called them; earlier ones did not read them."""
    spec = TABLES["operators"].schema
    operators = tables["operators"]
    columns = [
        operators[field.name].cast(field.type)
        if field.name in operators.column_names
        else pa.nulls(operators.num_rows, field.type)
        for field in spec
    ]
    return {**tables, "operators": pa.table(columns, schema=spec)}


def _with_allocations_of_4(tables: Tables) -> Tables:
    """Version 4 keeps each block of memory that was given out or taken back; earlier ones only what was in use."""
    return {"allocations": TABLES["allocations"].schema.empty_table(), **tables}


def _with_more_of_5(tables: Tables) -> Tables:
    """Version 5 keeps more that earlier ones did not read.

    What calls of MPI say of a message, faults and migrations of unified memory; how good a run's results are, and what
    came out of a step.
    """
    names = ("messages", "page_faults", "accuracies", "tensors", "output_distances")
    added = {name: TABLES[name].schema.empty_table() for name in names}
    copies = tables["copies"]
    if "virtual_address" not in copies.column_names:
        copies = copies.append_column("virtual_address", pa.nulls(copies.num_rows, pa.int64()))
    return {**added, **tables, "copies": copies}


def _with_parts_of_6(tables: Tables) -> Tables:
    """Version 6 keeps the parts of uneven collectives, and whom a send or receive is with; earlier ones did not."""
    collectives = tables["collectives"]
    for field in TABLES["collectives"].schema:
        if field.name not in collectives.column_names:
            collectives = collectives.append_column(field, pa.nulls(collectives.num_rows, field.type))
    return {**tables, "collectives": collectives}


UPGRADES: Mapping[int, Callable[[Tables], Tables]] = {
    1: _with_tables_of_2,
    2: _with_columns_of_3,
    3: _with_allocations_of_4,
    4: _with_more_of_5,
    5: _with_parts_of_6,
}
"""For each version but the present one, the function that turns its tables into the next version's."""


def upgrade(
    tables: Tables, version: int, steps: Mapping[int, Callable[[Tables], Tables]] = UPGRADES, to: int = SCHEMA_VERSION
) -> Tables:
    """The tables of a bundle of `version` as those of version `to`; KeyError where a step is missing."""
    for number in range(version, to):
        tables = steps[number](tables)
    return tables


_FORMAT = "xsp bundle"
_SPANS = "spans"
_TOOLS = ("xsp", "polars", "pyarrow")


def is_bundle(path: Path) -> bool:
    """Whether the path is a bundle's folder."""
    return (path / MANIFEST).is_file()


def write(trace: Trace, path: Path) -> None:
    """Writes NAME.xsp; an older bundle at the path is replaced, anything else there, or in it, is an error.

    The folder appears under its name only when complete, so a reader never meets half a bundle.
    """
    check_name(path)
    if path.exists() and not is_bundle(path):
        raise XspError("this exists and is not a bundle", path=path, advice="Choose another name for the output")
    if foreign := _not_ours(path):
        raise XspError(
            f"this exists and holds {foreign}, which is no bundle's",
            path=path,
            advice="Choose another name for the output",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with room_beside(path) as room:
        unfinished = room / path.name
        unfinished.mkdir()
        for name in TABLES:
            _write_table(trace, name, unfinished / f"{name}.parquet")
        manifest = json.dumps(_manifest(trace, unfinished), indent=1, ensure_ascii=False)
        (unfinished / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
        unfinished.chmod(0o755)
        _put_in_place(unfinished, path)


def check_name(path: Path | str) -> None:
    """XspError where what reads and writes Parquet cannot take the path, which is not text in UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise XspError(
            "a bundle's name, or its folder's, is not UTF-8", path=path, advice="Name it otherwise"
        ) from error


def _not_ours(path: Path) -> str | None:
    """A name in the folder that no bundle of any version has, so that nothing else is lost with it."""
    names = sorted(file.name for file in path.iterdir()) if path.exists() else []
    if names and f"{_SPANS}.parquet" not in names:  # others call files manifest.json, too
        return MANIFEST
    ours = {MANIFEST, *(f"{table}.parquet" for table in TABLES)}
    return next((name for name in names if name not in ours), None)


def _write_table(trace: Trace, name: str, target: Path) -> None:
    part = trace.part(name)
    if isinstance(part, Path):
        if trace.kept is not None:  # nobody else's file: it need not be written twice
            with suppress(OSError):
                target.hardlink_to(part)
                return
        shutil.copyfile(part, target)
        return
    table = trace.table(name)
    rows = limits().row_group_rows
    pieces = (table.slice(first, rows) for first in range(0, max(table.num_rows, 1), rows))
    write_parquet(pieces, TABLES[name], target)


def _put_in_place(unfinished: Path, path: Path) -> None:
    if path.exists():
        replace_folder(path, unfinished)
    else:
        unfinished.rename(path)


def _manifest(trace: Trace, folder: Path) -> dict[str, object]:
    runs = trace.table("runs").to_pylist()
    return {
        "format": _FORMAT,
        "schema_version": SCHEMA_VERSION,
        "sources": [
            {key: run[key] for key in ("run_id", "source_path", "source_sha256", "source_bytes", "format")}
            for run in runs
        ],
        "tools": {name: installed for name in _TOOLS if (installed := _version_of(name))},
        "rows": {name: trace.height(name) for name in TABLES},
        "files": {file.name: file_entry(file) for file in sorted(folder.glob("*.parquet"))},
    }


@cache
def _version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_manifest(path: Path) -> Mapping[str, object]:
    """The manifest; raises XspError where it is not one or is of a newer XSP."""
    manifest = read_json(path)
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != _FORMAT
        or type(manifest.get("schema_version")) is not int  # no boolean either
    ):
        raise XspError("this folder has a manifest.json that is not of an XSP bundle", path=path)
    if manifest["schema_version"] > SCHEMA_VERSION:
        raise XspError(
            "the bundle was written by a newer XSP",
            path=path,
            advice="Install that version, or convert the source files again",
        )
    return manifest


def read(path: Path, *, is_own: bool = False, sound: Sound | None = None) -> Trace:
    """The trace of a bundle, its tables left on disk until used; bundles of earlier versions are upgraded in memory.

    XspError where it is not what `write` writes. Files are compared with their checksums each time, and a table's rows
    are held against the rules of the model before it is first used: unless this user's XSP alone can have written it
    (`is_own`), or it is among the `sound`, which this adds to.
    """
    check_name(path)
    manifest = read_manifest(path)
    version = manifest["schema_version"]
    assert isinstance(version, int)  # noqa: S101 (read_manifest checked it)
    files = {name: path / f"{name}.parquet" for name in TABLES if os.path.lexists(path / f"{name}.parquet")}
    is_current = version == SCHEMA_VERSION
    missing = sorted(set(TABLES) - set(files)) if is_current else []
    if missing:
        raise XspError(f"the bundle lacks its table {missing[0]}", path=path, advice=AGAIN)
    check_contents(path, files.values(), manifest)
    check_tables(path, files, manifest, current=is_current)
    if is_current and is_own:
        return Trace(files, path)
    with readable(path):
        unchecked = Trace(files if is_current else _upgrade_tables(files, version), path)
        if not is_current:
            refuse(path, integrity.broken_rules(unchecked))
    return replace(unchecked, check=RowsCheck(unchecked, set() if sound is None else sound))


def _upgrade_tables(files: Mapping[str, Path], version: int) -> dict[str, pa.Table]:
    tables = upgrade({name: read_parquet(file) for name, file in files.items()}, version, UPGRADES)
    return {name: tables[name].select(spec.schema.names).cast(spec.schema) for name, spec in TABLES.items()}
