"""What all pages share: head, style, the rule that nothing is loaded, and the ways that a page is made.

A page is one HTML file that needs nothing else. Most are drawn by their script from data, so that names are only ever
text; a page that is also read where scripts do not run is written as HTML.
"""

from __future__ import annotations

import json
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from xsp_analyze.render.json_text import plain
from xsp_analyze.text.shown import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Packed", "page_by_script", "page_of_html", "program_and_version", "safe_json"]

_ASSETS = files("xsp_analyze.pages") / "assets"
_COMPONENTS = ("units.js", "dom.js", "frame.js", "table.js", "charts.js", "page.js")
_SCRIPTS_RUN = " script-src 'unsafe-inline';"
_ASKS_ITS_SERVER = " connect-src 'self';"
_MAX_TEXT = 4_000  # characters; no real name of a kernel is longer
_HOLDS_TEXT = frozenset({str, dict, list, tuple})
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or a JavaScript line; all can only stand within JSON's strings."""


def page_by_script(
    data: Mapping[str, object], scripts: Sequence[str] = (), styles: Sequence[str] = (), *, served: bool = False
) -> str:
    """A page that its script draws from data: `kind`, `title`, `short`, `sections`, `footer`, perhaps `measured`.

    `scripts` and `styles` are the assets that draw what not every page has. A page that is `served` may ask the server
    that it came from, and nobody else.
    """
    script = "\n".join(map(_asset, (*_COMPONENTS, *scripts)))
    body = Template(_asset("drawn.html")).substitute(data=safe_json(data), script=script)
    allowed = _SCRIPTS_RUN + (_ASKS_ITS_SERVER if served else "")
    return _page(f"{data['title']} - XSP", body, allowed, styles)


def page_of_html(
    kind: str, title: str, heading: str, parts: Sequence[tuple[str, str]], main: Sequence[str], footer: str
) -> str:
    """A page of HTML that is read without its script, which only follows links and switches colours.

    `heading` and `main` are HTML already; `parts` are the sections of `main`: the id of each and its label.
    """
    header = f'<header><p class="kind">{escape(kind)}</p><h1>{heading}</h1></header>'
    links = "".join(f'<a href="#{escape(identity)}">{escape(label)}</a>' for identity, label in parts)
    nav = f'<nav aria-label="Parts of this page">{links}</nav>'
    content = "\n".join(main)
    shown = f'<div id="page">{header}\n{nav}\n<main>\n{content}\n</main>\n<footer>{escape(footer)}</footer></div>'
    body = Template(_asset("written.html")).substitute(body=shown, script=_asset("dom.js"))
    return _page(f"{clean(title)} - XSP", body, _SCRIPTS_RUN)


class Packed(str):
    """Encoded numbers, which are kept whole however long they are."""

    __slots__ = ()


def program_and_version() -> str:
    """The first sentence of a footer: the program and its version."""
    try:
        return f"Made by XSP {version('xsp')}."
    except PackageNotFoundError:  # run from a checkout
        return "Made by XSP."


def safe_json(data: object) -> str:
    """JSON that can stand within a script element whatever it holds."""
    text = json.dumps(plain(_fitting(data)), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def _fitting(value: object) -> object:
    """The value with texts that a page can hold: names may be of any length, and stand in it many times."""
    if type(value) is str:
        if len(value) <= _MAX_TEXT:
            return value
        kept = _MAX_TEXT // 2
        return f"{value[:kept]}\u2026{value[-kept:]}"
    if isinstance(value, dict):
        return {key: _fitting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fitting(item) if type(item) in _HOLDS_TEXT else item for item in value]
    return value


def _page(title: str, body: str, scripts_run: str, styles: Sequence[str] = ()) -> str:
    style = "\n".join(map(_asset, ("page.css", *styles)))
    return Template(_asset("page.html")).substitute(title=escape(title), style=style, body=body, scripts=scripts_run)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
