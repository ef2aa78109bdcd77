"""The small tables of a job's ranks on this machine, wherever the ranks' results lie."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.locations import is_url, join_path, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["local_tables"]

_FACTS = "facts.json"


@contextmanager
def local_tables(location: str, ranks: Sequence[str]) -> Iterator[Path]:
    """Within `with`, a folder of the job with the facts and tables of these ranks; bundles are not fetched."""
    from xsp_analyze.ranks.facts import TABLES  # noqa: PLC0415 (imports polars)

    if not is_url(location):
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="xsp-job-") as scratch:
        for rank in ranks:
            folder = Path(scratch, "ranks", rank)
            folder.mkdir(parents=True)
            for name in (_FACTS, *(f"{table}.parquet" for table in TABLES)):
                content = read_bytes(join_path(location, "ranks", rank, name))
                if content is not None:
                    (folder / name).write_bytes(content)
        yield Path(scratch)
