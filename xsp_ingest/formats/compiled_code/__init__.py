"""Records of what compiled kernels are made of: our runner's, and PyTorch's own logs."""

from xsp_ingest.formats.compiled_code.ingester import COMPILED_CODE

__all__ = ["COMPILED_CODE"]
