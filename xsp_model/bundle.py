"""A trace on disk: a folder of zstd Parquet files and a manifest, written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model.arrow import PIECE_ROWS, write_parquet
from xsp_model.errors import XspError
from xsp_model.schema import SCHEMA_VERSION, TABLES
from xsp_model.trace import Trace
from xsp_model.upgrade import UPGRADES, upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MANIFEST", "is_bundle", "read", "read_manifest", "write"]

MANIFEST = "manifest.json"
_FORMAT = "xsp bundle"
_TOOLS = ("xsp", "polars", "pyarrow")


def is_bundle(path: Path) -> bool:
    """Whether the path is a bundle's folder."""
    return (path / MANIFEST).is_file()


def write(trace: Trace, path: Path) -> None:
    """Writes NAME.xsp; an older bundle at the path is replaced, anything else there is an error.

    The folder appears under its name only when complete, so a reader never meets half a bundle.
    """
    if path.exists() and not is_bundle(path):
        raise XspError("this exists and is not a bundle", path=path, advice="Choose another name for the output")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        for name in TABLES:
            _write_table(trace, name, unfinished / f"{name}.parquet")
        manifest = json.dumps(_manifest(trace), indent=1, ensure_ascii=False)
        (unfinished / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
        unfinished.chmod(0o755)
        _put_in_place(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _write_table(trace: Trace, name: str, target: Path) -> None:
    part = trace.parts[name]
    if isinstance(part, Path):
        if trace.kept is not None:  # nobody else's file: it need not be written twice
            with suppress(OSError):
                target.hardlink_to(part)
                return
        shutil.copyfile(part, target)
        return
    table = trace.table(name)
    pieces = (table.slice(first, PIECE_ROWS) for first in range(0, max(table.num_rows, 1), PIECE_ROWS))
    write_parquet(pieces, TABLES[name], target)


def _put_in_place(unfinished: Path, path: Path) -> None:
    if not path.exists():
        unfinished.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    path.rename(old / path.name)
    unfinished.rename(path)
    shutil.rmtree(old)


def _manifest(trace: Trace) -> dict[str, object]:
    runs = trace.table("runs").to_pylist()
    return {
        "format": _FORMAT,
        "schema_version": SCHEMA_VERSION,
        "sources": [
            {key: run[key] for key in ("run_id", "source_path", "source_sha256", "source_bytes", "format")}
            for run in runs
        ],
        "tools": {name: installed for name in _TOOLS if (installed := _installed(name))},
        "rows": {name: trace.height(name) for name in TABLES},
    }


@cache
def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_manifest(path: Path) -> Mapping[str, object]:
    """The manifest; raises XspError where it is not one or is of a newer XSP."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise XspError(
            "the bundle's manifest cannot be read", path=path, advice="Convert the source files again"
        ) from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != _FORMAT
        or not isinstance(manifest.get("schema_version"), int)
    ):
        raise XspError("this folder has a manifest.json that is not of an XSP bundle", path=path)
    if manifest["schema_version"] > SCHEMA_VERSION:
        raise XspError(
            "the bundle was written by a newer XSP",
            path=path,
            advice="Install that version, or convert the source files again",
        )
    return manifest


def read(path: Path) -> Trace:
    """The trace of a bundle, its tables left on disk until used; bundles of earlier versions are upgraded in memory."""
    version = read_manifest(path)["schema_version"]
    assert isinstance(version, int)  # noqa: S101 (read_manifest checked it)
    parts = {file.stem: file for file in path.glob("*.parquet")}
    try:
        if version == SCHEMA_VERSION:
            missing = sorted(set(TABLES) - set(parts))
            if missing:
                raise XspError(
                    f"the bundle lacks its table {missing[0]}", path=path, advice="Convert the source files again"
                )
            for name in TABLES:
                pq.read_metadata(parts[name])
            return Trace({name: parts[name] for name in TABLES}, path)
        return Trace(
            dict(upgrade({name: pq.read_table(file) for name, file in parts.items()}, version, UPGRADES)), path
        )
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise XspError(
            "a table of the bundle cannot be read", path=path, advice="Convert the source files again"
        ) from error
