"""Chrome traces of tools that no other format knows: ranges by thread."""

from xsp_ingest.formats.chrome_trace.ingester import ChromeTrace

__all__ = ["CHROME_TRACE"]

CHROME_TRACE = ChromeTrace()
"""The ingester, as the registry lists it."""
