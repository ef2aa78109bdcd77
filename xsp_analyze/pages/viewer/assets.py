"""The scripts and styles that draw the viewer, in the order in which a page holds them."""

from __future__ import annotations

__all__ = ["SCRIPTS", "STYLES"]

SCRIPTS: tuple[str, ...] = (
    "viewer-codec.js",
    "viewer-merging.js",
    "viewer-source.js",
    "viewer-statistics.js",
    "viewer-lanes.js",
    "viewer-colours.js",
    "viewer-boxes.js",
    "viewer-scene.js",
    "viewer-axis.js",
    "viewer-labels.js",
    "viewer-parts.js",
    "viewer-input.js",
    "viewer-walk.js",
    "viewer-panel.js",
    "viewer-search.js",
    "viewer-save.js",
    "viewer-window.js",
    "viewer-choice.js",
    "viewer.js",
)
STYLES: tuple[str, ...] = ("viewer.css",)
