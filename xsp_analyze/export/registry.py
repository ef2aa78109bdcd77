"""Every format that traces are written in, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.export.chrome import CHROME
from xsp_analyze.export.graphml import GRAPHML
from xsp_analyze.export.jaeger import JAEGER
from xsp_analyze.export.speedscope import SPEEDSCOPE

if TYPE_CHECKING:
    from xsp_analyze.export.target import Exporter

__all__ = ["EXPORTERS"]

EXPORTERS: tuple[Exporter, ...] = (JAEGER, CHROME, SPEEDSCOPE, GRAPHML)
"""The formats, in the order in which help lists them."""
