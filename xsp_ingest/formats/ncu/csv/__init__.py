"""Reads the CSV that Nsight Compute prints or exports."""

from xsp_ingest.formats.ncu.csv.ingester import NcuCsv

__all__ = ["NCU_CSV"]

NCU_CSV = NcuCsv()
"""The one instance."""
