"""Takes out of a file what varies from run to run, or with the version, the folder and the machine."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["parts", "settled"]

_VERSION = re.compile(rf"(xsp\"?:? \"?){re.escape(version('xsp'))}", re.IGNORECASE)
_ASSETS = re.compile(r"(<style[^>]*>|<script>)(.*?)(</style>|</script>)", re.DOTALL)
_SVG_IDS = re.compile(r"\b[a-z]{1,2}[0-9a-f]{10}\b")
_SVG_DATE = re.compile(r"<dc:date>.*?</dc:date>|Matplotlib v[0-9.]+")
_COSTS = re.compile(r"(\"(?:wall_s|cpu_s|peak_bytes)\": )[0-9.e-]+|( in )[0-9.]+ \w+( by [0-9]+ processes)")
_PROGRESS = re.compile(r"^[0-9]+ of [0-9]+, [0-9]+ failed\n", re.MULTILINE)  # a batch says it every few seconds
_FLOAT = re.compile(r"[0-9]+\.[0-9]{9,}(?:e[+-]?[0-9]+)?")


def parts(file: Path, roots: Mapping[str, str]) -> dict[str, bytes]:
    """What of a file is to be the same, by name; a page's programs and styles are a part apart from its answers."""
    if file.suffix == ".parquet" and file.with_name("manifest.json").exists():
        return {file.name: file.read_bytes()}
    text = _rows(file) if file.suffix == ".parquet" else file.read_text(encoding="utf-8", errors="backslashreplace")
    text = settled(text, roots)
    if file.name == "manifest.json":
        text = _without_tools(text)
    if file.suffix == ".svg":
        # matplotlib names clip paths and glyphs by chance, and writes the date and its version
        text = _SVG_IDS.sub("ID", _SVG_DATE.sub("", text))
    if file.suffix != ".html":
        return {file.name: text.encode()}
    assets = "\n".join(match.group(2) for match in _ASSETS.finditer(text))
    return {file.name: _ASSETS.sub(r"\1\3", text).encode(), f"{file.name}.assets": assets.encode()}


def settled(text: str, roots: Mapping[str, str]) -> str:
    """The text with this machine's folders by short names, without the version, a batch's costs and last digits."""
    for folder, name in roots.items():
        text = text.replace(folder, name)
    text = _PROGRESS.sub("", _COSTS.sub(r"\1\2COST\3", _VERSION.sub(r"\1VERSION", text)))
    # polars' standard deviation differs in the last bit from run to run: the order of its parts is left to chance
    return _FLOAT.sub(lambda match: format(float(match.group()), ".14g"), text)


def _rows(file: Path) -> str:
    """An analysis's Parquet as its schema and a row a line; a bundle's tables are compared by their bytes."""
    table = pq.ParquetFile(file).read()
    rows = [json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist()]
    return "\n".join([table.schema.to_string(show_field_metadata=False, show_schema_metadata=False), *rows])


def _without_tools(text: str) -> str:
    """The manifest without the versions of xsp, polars and pyarrow."""
    manifest = json.loads(text)
    manifest.pop("tools", None)
    return json.dumps(manifest, indent=1, sort_keys=True)
