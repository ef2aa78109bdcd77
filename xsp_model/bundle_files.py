"""The files of a bundle: what its manifest says of them, and whether they are that, before anything is made of them."""

from __future__ import annotations

import json
import stat
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model.errors import AGAIN, XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from xsp_model.schema import TableSpec

__all__ = ["MANIFEST", "check_contents", "check_tables", "file_entry", "leaves", "read_json"]

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
