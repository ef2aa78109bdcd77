"""Reads the tables of metrics that `nvprof --metrics --csv` prints."""

from xsp_ingest.formats.nvprof_metrics.ingester import NvprofMetrics

__all__ = ["NVPROF_METRICS"]

NVPROF_METRICS = NvprofMetrics()
"""The one instance."""
