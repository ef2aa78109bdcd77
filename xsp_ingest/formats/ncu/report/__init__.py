"""Reads Nsight Compute's binary reports by means of the user's own Nsight Compute."""

from xsp_ingest.formats.ncu.report.ingester import NcuReport

__all__ = ["NCU_REPORT"]

NCU_REPORT = NcuReport()
"""The one instance."""
