"""What MkDocs calls: adds the generated pages and fills the navigation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

__all__ = ["on_files", "on_post_page"]

_WIDE_PICTURE = re.compile(r'<p>(?=<img [^>]*src="[^"]*\.svg")')
_ROOT = str(Path(__file__).resolve().parents[2])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called once the files of `docs` are known."""
    if _ROOT not in sys.path:
        sys.path.insert(0, _ROOT)  # MkDocs loads this file by its path, wherever it was started
    from docs.gen.site import full_navigation, generated_pages  # noqa: PLC0415 (needs the line above)

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    pages = [file.src_uri for file in files.documentation_pages() if file.inclusion is not InclusionLevel.EXCLUDED]
    config.nav = full_navigation(config.nav or [], pages)
    return files


def on_post_page(output: str, **_: object) -> str:
    """Called with each page: what the theme leaves out for those who do not see it or have no pointer."""
    dialog = 'data-md-component="search" role="dialog"'
    named = output.replace(dialog, f'{dialog} aria-label="Search"')
    return _WIDE_PICTURE.sub('<p tabindex="0">', named)  # it scrolls by itself
