"""The scripts and styles that draw the viewer, in the order in which a page holds them."""

from __future__ import annotations

__all__ = ["SCRIPTS", "STYLES"]

SCRIPTS: tuple[str, ...] = (
    "viewer/data.js",
    "viewer/scene.js",
    "viewer/around.js",
    "viewer/input.js",
    "viewer/panel.js",
    "viewer/viewer.js",
)
STYLES: tuple[str, ...] = ("viewer/viewer.css",)
