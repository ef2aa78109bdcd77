"""What `nsys recipe` wants: a whole installation, and the tables of an export as Parquet files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import adbc_driver_sqlite.dbapi
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["install_whole", "write_tables"]

_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_OF_COPIES = ("start", "end", "correlationId", "globalPid")


def install_whole(nsys: str, folder: Path) -> Path:
    """Installs nsys in the folder, by links, with a recipe package that is whole; the path of its nsys.

    Debian's package of nsys lacks an empty folder that the recipes insist on.
    """
    target = Path(nsys).resolve().parent
    ours = folder / "nsight" / target.name
    ours.mkdir(parents=True)
    for host in target.parent.glob("host-*"):
        (ours.parent / host.name).symlink_to(host)
    for each in target.iterdir():
        if each.name == "python":
            shutil.copytree(each, ours / "python")
        elif each.name != "nsys":
            (ours / each.name).symlink_to(each)
    try:
        os.link(target / "nsys", ours / "nsys")
    except OSError:  # another file system
        shutil.copy2(target / "nsys", ours / "nsys")
    (ours / "python" / "packages" / "nsys_recipe" / "third_party").mkdir(exist_ok=True)
    return ours / "nsys"


def write_tables(database: Path, folder: Path) -> None:
    """Writes each table of a SQLite file as FOLDER/TABLE.parquet, as `nsys export --type parquetdir` does.

    Recipes want tables of copies, if only empty ones.
    """
    folder.mkdir(exist_ok=True)
    for name in _COPIES:
        empty = pa.table({column: pa.array([], pa.int64()) for column in _OF_COPIES})
        pq.write_table(empty, folder / f"{name}.parquet")
    with adbc_driver_sqlite.dbapi.connect(str(database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (name,) in cursor.fetchall():
            cursor.execute("SELECT name FROM pragma_table_info(?) WHERE type = 'TEXT'", (name,))
            texts = {column for (column,) in cursor.fetchall()}
            cursor.execute(f'SELECT * FROM "{name}"')  # noqa: S608 (the file's own names)
            rows = cursor.fetch_record_batch()
            # A column without any value has no type of its own.
            schema = pa.schema([pa.field(f.name, pa.string() if f.name in texts else f.type) for f in rows.schema])
            with pq.ParquetWriter(folder / f"{name}.parquet", schema) as writer:
                for batch in rows:
                    writer.write_batch(batch.cast(schema))
