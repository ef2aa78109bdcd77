"""What pages are made of: blocks, the shell with its scripts and styles, and the colours of classes."""

from __future__ import annotations

import json
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from string import Template
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from xsp_analyze.classification import KernelClass
from xsp_analyze.render.json_text import plain
from xsp_analyze.text.table import clean, heading, unknown_columns
from xsp_analyze.text.units import IDLE, Scale, count, cut_to_room, duration, scale_of, scales_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Column, FigureSpec, Result
    from xsp_analyze.frames.launch_paths import TimeTree

__all__ = [
    "IDLE_TONES",
    "TONES",
    "Block",
    "Packed",
    "Section",
    "address",
    "bars",
    "cut_names",
    "entries",
    "facts",
    "faults_section",
    "figure_data",
    "findings",
    "icicle",
    "in_scale",
    "missing",
    "page_by_script",
    "page_of_html",
    "program_and_version",
    "safe_json",
    "scale_entries",
    "section",
    "shares",
    "table",
    "text",
    "tone",
]

# What a page is made of: plain data, one function a kind of block; the page's script draws each.


# A figure as plain data: what a FigureSpec asks of its result, in the units it will be drawn in.
def figure_data(result: Result, spec: FigureSpec | None = None) -> Mapping[str, object]:
    """`kind`, `title`, `labels` (one a row) and `series` (values as stored, with the scale to show them in).

    Uses the analysis's own figure unless another is given; ValueError where there is none.
    Series of one unit share one scale, so that they can be compared.
    """
    spec = spec or result.analysis.figure
    if spec is None:
        message = f"{result.analysis.id} has no figure"
        raise ValueError(message)
    table = result.table if spec.top is None else result.table.head(spec.top)
    columns = {c.name: c for c in result.columns}
    values = [table[name].to_list() for name in spec.y]
    shared: dict[str, list[object]] = {}
    for name, series in zip(spec.y, values, strict=True):
        shared.setdefault(columns[name].unit, []).extend(series)
    return {
        "kind": spec.kind,
        "title": spec.title,
        "labels": [str(label) for label in table[spec.x].to_list()],
        "series": [
            {"name": name, "values": series, **scale_entries(columns[name], shared[columns[name].unit])}
            for name, series in zip(spec.y, values, strict=True)
        ],
    }


def scale_entries(column: Column, values: Sequence[object]) -> dict[str, object]:
    """What a page needs to print the column: `unit`, `divisor`, `decimals`, and `exact`, the unit at rest."""
    return in_scale(column, scale_of(column, values))


def in_scale(column: Column, scale: Scale) -> dict[str, object]:
    """The same for a scale already chosen."""
    return {"unit": scale.unit, "divisor": scale.divisor, "decimals": scale.decimals, "exact": column.unit}


Block = dict[str, Any]
Section = dict[str, Any]
_MAX_LISTED = 12  # entries of a list in one cell
_MAX_FAULTS = 100
_MAX_TEXT = 200_000  # characters of a column of a table
_FRACTION_DIGITS = 3  # of a mean's nanoseconds: more would only make the page larger


def section(identity: str, label: str, title: str, means: str, blocks: Sequence[Block]) -> Section:
    """One part of the page: its label in the table of contents, its title, and what its numbers mean."""
    return {"id": identity, "label": label, "title": title, "means": means, "blocks": list(blocks)}


def text(sentence: str) -> Block:
    """A sentence or a few."""
    return {"type": "text", "text": clean(sentence)}


def missing(sentence: str) -> Block:
    """Why something is not here."""
    return {"type": "missing", "text": clean(sentence)}


def facts(items: Sequence[tuple[str, str, str, str]]) -> Block:
    """Key numbers: label, value as shown, exact value (a tooltip), and what it means."""
    keys = ("label", "value", "exact", "note")
    return {"type": "facts", "items": [dict(zip(keys, map(clean, item), strict=True)) for item in items]}


def shares(parts: Sequence[dict[str, Any]]) -> Block:
    """One bar divided up, and a sentence for each part: label, share, value, exact, tone, sentence, advice."""
    return {"type": "shares", "parts": list(parts)}


def findings(rows: Sequence[dict[str, Any]]) -> Block:
    """Entries of the ledger: severity, count, text, advice."""
    return {"type": "findings", "items": list(rows)}


def entries(
    items: Sequence[tuple[str, str | None, str]], *, max_entries: int, more: str, summary: str | None = None
) -> Block:
    """Names, each with a file beside the page that it leads to and a text; `most` of them, and where to find more.

    With `summary` they are folded away under it.
    """
    rest = len(items) - max_entries
    return {
        "type": "list",
        "items": [
            {"name": clean(name), "link": address(path), "text": clean(text)}
            for name, path, text in items[:max_entries]
        ],
        "more": f"... and {count(rest)} more; {more}" if rest > 0 else None,
        "summary": summary,
    }


def faults_section(sentences: Sequence[str]) -> list[Section]:
    """The section on what the page is without because it failed; none where nothing did."""
    if not sentences:
        return []
    means = "The rest of the page stands, without these."
    lines = [text(f"{sentence}.") for sentence in sentences[:_MAX_FAULTS]]
    if more := len(sentences) - _MAX_FAULTS:
        lines += [text(f"... and {count(more)} more.")] if more > 0 else []
    return [section("faults", "Not answered", "Not answered", means, lines)]


def address(path: str | None) -> str | None:
    """The path of a file beside the page or below it, as a link."""
    return quote(path) if path else None


def cut_names(block: Block, room: int) -> list[Block]:
    """The block with its names as far as a page has room for them, and a sentence where they are cut."""
    names, kept = cut_to_room(block["names"], room)
    return [block] if kept is None else [{**block, "names": names}, text(_cut_sentence(kept))]


def _cut_sentence(kept: int) -> str:
    return f"Names of more than {count(kept)} characters are without their middle; xsp analyze writes them whole."


def icicle(tree: TimeTree) -> Block:
    """A tree of time to click into; names are stored once."""
    names = {name: i for i, name in enumerate(dict.fromkeys(tree.name))}
    return {
        "type": "icicle",
        "names": list(map(clean, names)),
        "parent": tree.parent.tolist(),
        "name": [names[n] for n in tree.name],
        "kind": list(tree.kind),
        "time": tree.time_ns.tolist(),
        "count": tree.count.tolist(),
    }


def bars(kind: str, labels: Sequence[str], series: Sequence[dict[str, Any]], **more: object) -> Block:
    """Bars: `kind` is bars (one a row, horizontal), columns (stacked, in order) or stack (parts of a whole, a row)."""
    return {"type": kind, "labels": [clean(label) for label in labels], "series": list(series), **more}


def table(
    result: Result,
    *,
    sorted_by: str | None = None,
    bar: str | None = None,
    leave_out: Sequence[str] = (),
    tree: bool = False,
    name: str = "",
    left_out: str | None = None,
    links: Mapping[str, Sequence[str | None]] | None = None,
) -> Block:
    """The result's table: sortable by every column and searchable; `bar` is the column drawn as a bar in its cells.

    Columns in which nothing is known are named instead of shown. With `tree`, column `depth` indents the first.
    `name` is what links into the page call it, `left_out` a sentence on rows that are not here, `links` for a column
    the file beside the page that each of its rows leads to.
    """
    unknown = {c.name for c in unknown_columns(result)}
    cut: list[int] = []
    shown = [c for c in result.columns if c.name not in unknown and c.name not in leave_out]
    values = [_values(c, result, cut) for c in shown]
    return {
        "type": "tree" if tree else "table",
        "name": result.analysis.title,
        "link": name,
        "left_out": " ".join(filter(None, (left_out, _cut_sentence(min(cut)) if cut else None))) or None,
        "columns": _columns(shown, result, links or {}),
        "values": values,
        "sort": sorted_by,
        "bar": bar,
        "unknown": [heading(c) for c in result.columns if c.name in unknown and c.name not in leave_out],
    }


def _columns(
    shown: Sequence[Column], result: Result, links: Mapping[str, Sequence[str | None]]
) -> list[dict[str, Any]]:
    """What the page needs to draw each column; those of a unit are shown in one scale."""
    types = result.table.schema
    numbers = [c for c in shown if types[c.name].is_numeric()]
    scales = scales_of([(c, result.table[c.name].to_list()) for c in numbers])
    drawn = {
        c.name: {"grouped": str(c.role) == "measure", **in_scale(c, s)} for c, s in zip(numbers, scales, strict=True)
    }
    return [
        {"key": c.name, "heading": heading(c), "doc": c.doc, "number": c.name in drawn, **drawn.get(c.name, {}),
         **({"links": list(map(address, links[c.name]))} if c.name in links else {})}
        for c in shown
    ]  # fmt: skip


def _values(column: Column, result: Result, cut: list[int]) -> list[object] | dict[str, object]:
    """The column as the page has it; where its texts are cut, how many characters they keep goes to `cut`."""
    values = result.table[column.name].to_list()
    if values and isinstance(next((v for v in values if v is not None), None), list):
        return list(_with_room([None if v is None else _list_as_text(column, v) for v in values], cut))
    if column.unit == "ns":
        return [v if v is None or isinstance(v, int) else _short(v) for v in values]
    if values and all(isinstance(v, str) or v is None for v in values):
        return _pack_texts(_with_room([None if v is None else clean(v) for v in values], cut))
    return [clean(v) if isinstance(v, str) else v for v in values]


def _with_room(texts: Sequence[str | None], cut: list[int]) -> Sequence[str | None]:
    short, kept = cut_to_room([each for each in texts if each is not None], _MAX_TEXT)
    if kept is None:
        return texts
    cut.append(kept)
    rest = iter(short)
    return [None if each is None else next(rest) for each in texts]


def _pack_texts(values: Sequence[str | None]) -> list[object] | dict[str, object]:
    """Text that repeats is stored once: `{"words": [...], "at": [...]}`, which the page's script unfolds."""
    texts = {text: index for index, text in enumerate(dict.fromkeys(values))}
    if len(texts) > len(values) // 2:
        return list(values)
    return {"words": list(texts), "at": [texts[v] for v in values]}


def _list_as_text(column: Column, values: Sequence[object]) -> str:
    """The first few of a list, as people read them."""
    shown = [
        duration(v) if column.unit == "ns" and isinstance(v, int | float) else str(v) for v in values[:_MAX_LISTED]
    ]
    more = f", ... ({count(len(values))} in all)" if len(values) > _MAX_LISTED else ""
    return clean(", ".join(shown) + more)


def _short(value: float) -> float | int:
    """A mean of nanoseconds without the digits that nobody measures."""
    rounded = round(value, _FRACTION_DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded


# What all pages share: head, style, the rule that nothing is loaded, and the ways that a page is made.
# A page is one HTML file that needs nothing else. Most are drawn by their script from data, so that names are only ever
# text; a page that is also read where scripts do not run is written as HTML.

_ASSETS = files("xsp_analyze.pages") / "assets"
_COMPONENTS = ("units.js", "dom.js", "frame.js", "table.js", "charts.js", "page.js")
_SCRIPTS_RUN = " script-src 'unsafe-inline';"
_ASKS_ITS_SERVER = " connect-src 'self';"
_MAX_TITLE = 4_000  # characters; no real name of a kernel is longer
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
        if len(value) <= _MAX_TITLE:
            return value
        kept = _MAX_TITLE // 2
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


# The colours of a page: one a class of device work and one a cause of idle time, the same wherever it is drawn.
# A tone is a word; `page.css` has the variable `--c-TONE` for it, the class `c-TONE` for backgrounds and `fc-TONE` for
# fills, each in light and dark.

IDLE_TONES: Mapping[str, str] = MappingProxyType(
    {column: column.removesuffix("_ns").replace("_", "-") for column in IDLE}
)
"""The tone of each cause."""


def tone(kernel_class: KernelClass | str) -> str:
    """The tone of a class: `matrix product` is `matrix-product`."""
    return str(kernel_class).replace(" ", "-")


TONES = (*map(tone, KernelClass), *IDLE_TONES.values())
"""All of them, in the order in which a legend lists them."""
