"""Perfetto's protobuf: a track for each thread and stream, arrows, counters, and layers and operators on the device."""

from xsp_analyze.export.perfetto.writer import PERFETTO

__all__ = ["PERFETTO"]
