"""TensorRT: what `trtexec --exportProfile` and `trtexec --exportTimes` write."""

from xsp_ingest.formats.tensorrt.ingester import TensorRt

__all__ = ["TENSORRT"]

TENSORRT = TensorRt()
"""The one instance."""
