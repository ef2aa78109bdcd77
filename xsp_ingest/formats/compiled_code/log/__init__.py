"""The log that PyTorch writes of its compiler."""

from xsp_ingest.formats.compiled_code.log.ingester import TORCH_TRACE_LOG

__all__ = ["TORCH_TRACE_LOG"]
