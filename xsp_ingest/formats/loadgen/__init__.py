"""MLPerf LoadGen logs: summary, detail and trace."""

from xsp_ingest.formats.loadgen.ingester import LOADGEN

__all__ = ["LOADGEN"]
