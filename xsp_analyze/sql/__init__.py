"""SQL over a trace, which reads the trace and nothing else, within limits of time and memory."""

from xsp_analyze.sql.limits import Limits
from xsp_analyze.sql.query import query

__all__ = ["Limits", "query"]
