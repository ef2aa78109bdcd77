"""Every format that traces are written in, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.export.arrow import ARROW
from xsp_analyze.export.chrome import CHROME
from xsp_analyze.export.graphml import GRAPHML
from xsp_analyze.export.jaeger import JAEGER
from xsp_analyze.export.otlp import OTLP
from xsp_analyze.export.perfetto import PERFETTO
from xsp_analyze.export.speedscope import SPEEDSCOPE

if TYPE_CHECKING:
    from xsp_analyze.export.target import Exporter, FolderExporter

__all__ = ["EXPORTERS"]

EXPORTERS: tuple[Exporter | FolderExporter, ...] = (JAEGER, OTLP, CHROME, PERFETTO, SPEEDSCOPE, GRAPHML, ARROW)
"""The formats, in the order in which help lists them."""
