"""A trace on disk: a folder of zstd Parquet files and a manifest, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_model import integrity
from xsp_model.arrow import read_parquet, write_parquet
from xsp_model.bundle_files import MANIFEST, check_contents, check_tables, file_entry, read_json
from xsp_model.bundle_rows import RowsCheck, readable, refuse
from xsp_model.errors import AGAIN, XspError
from xsp_model.limits import limits
from xsp_model.output_files import replace_folder, room_beside
from xsp_model.schema import SCHEMA_VERSION, TABLES
from xsp_model.trace import Trace
from xsp_model.upgrade import UPGRADES, upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from xsp_model.bundle_rows import Sound

__all__ = ["MANIFEST", "is_bundle", "read", "read_manifest", "write"]

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
    _check_name(path)
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


def _check_name(path: Path) -> None:
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
    _check_name(path)
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
