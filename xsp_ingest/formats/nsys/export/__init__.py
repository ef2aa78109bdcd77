"""Reads what `nsys export` writes besides SQLite: Parquet and Arrow folders, an Arrow stream, JSON lines."""

from xsp_ingest.formats.nsys.export.ingester import NsysExport

__all__ = ["NSYS_EXPORT"]

NSYS_EXPORT = NsysExport()
