"""The record that our torch runner leaves beside the trace of a compiled run."""

from xsp_ingest.formats.compiled_code.record.ingester import COMPILED_CODE

__all__ = ["COMPILED_CODE"]
