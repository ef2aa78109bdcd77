"""PyTorch execution traces: shapes and callers of the operators of a torch.profiler trace."""

from xsp_ingest.formats.execution_trace.ingester import EXECUTION_TRACE

__all__ = ["EXECUTION_TRACE"]
