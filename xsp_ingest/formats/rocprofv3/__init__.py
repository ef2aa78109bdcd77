"""rocprofv3 (ROCprofiler-SDK): its JSON and CSV outputs."""

from xsp_ingest.formats.rocprofv3.ingester import ROCPROFV3

__all__ = ["ROCPROFV3"]
