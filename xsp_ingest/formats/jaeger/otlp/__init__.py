"""Reads OpenTelemetry spans (OTLP JSON): those of any program, as ranges, and those that `xsp export` writes."""

from xsp_ingest.formats.jaeger.otlp.ingester import Otlp

__all__ = ["OTLP"]

OTLP = Otlp()
"""The ingester, as the registry lists it."""
