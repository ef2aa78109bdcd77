"""Reads Jaeger JSON: traces that MLModelScope (the first XSP) wrote, and those that `xsp export` writes."""

from xsp_ingest.formats.jaeger.ingester import Jaeger

__all__ = ["JAEGER"]

JAEGER = Jaeger()
"""The ingester, as the registry lists it."""
