"""nvprof: its databases, the traces and summaries that it prints, and the sessions of the Visual Profiler."""

from xsp_ingest.formats.nvprof.ingester import Nvprof

__all__ = ["NVPROF"]

NVPROF = Nvprof()
"""The one instance."""
