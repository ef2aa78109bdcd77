"""Figures for papers: an analysis's FigureSpec drawn by matplotlib, from the same blocks that the page draws."""

from __future__ import annotations

from xsp_analyze.figure.draw import Drawn, Over, draw, draw_several
from xsp_analyze.figure.look import SUFFIXES, Look, width_inches

__all__ = ["SUFFIXES", "Drawn", "Look", "Over", "draw", "draw_several", "width_inches"]
