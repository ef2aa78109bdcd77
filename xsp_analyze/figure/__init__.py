"""Figures for papers: an analysis's FigureSpec drawn by matplotlib, from the same blocks that the page draws."""

from __future__ import annotations

from xsp_analyze.figure.draw import Drawn, draw
from xsp_analyze.figure.look import SUFFIXES, Look, width_inches

__all__ = ["SUFFIXES", "Drawn", "Look", "draw", "width_inches"]
