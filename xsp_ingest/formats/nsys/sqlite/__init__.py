"""Reads the SQLite files that `nsys export` writes."""

from xsp_ingest.formats.nsys.sqlite.ingester import NsysSqlite

__all__ = ["NSYS_SQLITE"]

NSYS_SQLITE = NsysSqlite()
