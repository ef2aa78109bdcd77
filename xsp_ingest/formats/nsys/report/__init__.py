"""Reads Nsight Systems' own report files through the user's own nsys."""

from xsp_ingest.formats.nsys.report.ingester import NsysReport

__all__ = ["NSYS_REPORT"]

NSYS_REPORT = NsysReport()
