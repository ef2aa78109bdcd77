"""MXNet profiles: the Chrome JSON that `mxnet.profiler.dump()` writes."""

from xsp_ingest.formats.mxnet.ingester import MxNet

__all__ = ["MXNET"]

MXNET = MxNet()
"""The one instance."""
