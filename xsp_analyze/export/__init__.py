"""Writes a trace in other programs' formats."""

from xsp_analyze.export.exporter import Exporter, export, find
from xsp_analyze.export.part import part_of
from xsp_analyze.export.registry import EXPORTERS

__all__ = ["EXPORTERS", "Exporter", "export", "find", "part_of"]
