"""Columns of a SQLite table taken from the file's pages by machine code, for tables of millions of rows.

The format is described at https://www.sqlite.org/fileformat2.html. Only what SQLite itself would find sound is read;
of anything else `CannotRead` says nothing, and the caller asks SQLite.
"""

from __future__ import annotations

from xsp_ingest.machine.sqlite.reader import CannotRead, ReadColumns, Values, read

__all__ = ["CannotRead", "ReadColumns", "Values", "read"]
