"""Records of what compiled kernels are made of: our runner's, and PyTorch's own logs."""

from xsp_ingest.formats.compiled_code.ingester import COMPILED_CODE
from xsp_ingest.formats.compiled_code.log_ingester import TORCH_TRACE_LOG

__all__ = ["COMPILED_CODE", "TORCH_TRACE_LOG"]
