"""SQL over a trace, which reads the trace and nothing else, within limits of time and memory."""

from xsp_analyze.sql.query import query, query_frames
from xsp_analyze.sql.query_limits import QueryLimits

__all__ = ["QueryLimits", "query", "query_frames"]
