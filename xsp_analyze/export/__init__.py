"""Writes a trace in other programs' formats."""

from xsp_analyze.export.benchmark import benchmark_of
from xsp_analyze.export.part import part_of
from xsp_analyze.export.registry import EXPORTERS, Exporter, FolderExporter, export, find

__all__ = ["EXPORTERS", "Exporter", "FolderExporter", "benchmark_of", "export", "find", "part_of"]
