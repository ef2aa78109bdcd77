"""Reads the traces that `nsys stats` prints as CSV, and those that `nsys recipe` keeps as Parquet."""

from xsp_ingest.formats.nsys.stats_csv.ingester import NsysStatsCsv

__all__ = ["NSYS_STATS_CSV"]

NSYS_STATS_CSV = NsysStatsCsv()
