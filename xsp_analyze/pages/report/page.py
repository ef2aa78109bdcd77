"""Puts a report's data, style and script into one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from xsp_analyze.render.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["page", "safe_json"]

_ASSETS = files("xsp_analyze.pages") / "assets"
_SCRIPTS = (
    "units.js",
    "dom.js",
    "links.js",
    "saving.js",
    "frame.js",
    "table.js",
    "drill.js",
    "tree.js",
    "icicle.js",
    "charts.js",
    "timelines.js",
    "roofline.js",
    "step.js",
    "advice.js",
    "report.js",
)

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or a JavaScript line; all can only stand within JSON's strings."""


def page(data: Mapping[str, object], title: str) -> str:
    """The page; its script builds every element from the data, names only ever as text."""
    template = Template(_asset("report.html"))
    scripts = "\n".join(_asset(name) for name in _SCRIPTS)
    return template.substitute(
        title=html.escape(title), style=_asset("report.css"), data=safe_json(data), script=scripts
    )


def safe_json(data: object) -> str:
    """JSON that can stand within a script element whatever it holds."""
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
