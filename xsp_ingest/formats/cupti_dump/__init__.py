"""CUPTI dumps: activity records, one a row, as JSON lines or Parquet."""

from xsp_ingest.formats.cupti_dump.ingester import CUPTI_DUMP

__all__ = ["CUPTI_DUMP"]
