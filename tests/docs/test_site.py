"""The built site: no warning, every link leads somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from docs.gen.api import PUBLIC
from tests.docs.commands import ROOT
from tests.helpers.looks import axe_issues, small_targets, too_wide
from xsp_analyze.catalog import all_analyses
from xsp_analyze.findings.registry import RULES
from xsp_ingest.registry import all_ingesters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.helpers.browser import Browser

pytestmark = pytest.mark.docs

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class _Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in _LOADED and _LOADED[tag] in values:
            self.loaded.add(values[_LOADED[tag]])


@pytest.fixture(name="site", scope="module")
def fixture_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=env)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.fixture(name="pages", scope="module")
def fixture_pages(site: Path) -> Mapping[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_somewhere(pages: Mapping[Path, _Page]) -> None:
    dangling = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in sorted(page.links | page.loaded)
        if not _leads_somewhere(link, path, pages)
    ]
    assert not dangling


def test_nothing_is_loaded_from_elsewhere(pages: Mapping[Path, _Page], site: Path) -> None:
    assert [u for page in pages.values() for u in page.loaded if urlsplit(u).scheme or urlsplit(u).netloc] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not [style for style in styles if "url(http" in style or "@import" in style]


def test_each_analysis_format_finding_and_module_has_a_page(site: Path) -> None:
    names = [f"analyses/{a.id}" for a in all_analyses()]
    names += [f"formats/{i.name}" for i in all_ingesters()]
    names += [f"findings/{r.id}" for r in RULES]
    names += [f"api/{m.name}" for m in PUBLIC]
    assert [name for name in names if not (site / f"{name}.html").is_file()] == []


def test_a_page_of_an_analysis_has_example_definition_formulas_and_units(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "analyses/A09.html").read_text(encoding="utf-8"))
    assert "-a A09" in text
    assert "Williams et al." in text
    assert all(term in text for term in ("arithmetic_intensity", "flop/byte", "compute bound", "ridge"))


def test_a_notebook_shows_what_its_cells_give(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "notebooks/1-slow-training-step.html").read_text(encoding="utf-8"))
    assert "idle: 28.4% of the window" in text  # printed
    assert "ncclDevKernel_AllReduce" in text  # the value of a cell's last line


def _leads_somewhere(link: str, page: Path, pages: Mapping[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # another site: not asked, as tests need no network
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in {*pages[target].anchors, "__top"}


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 768, 390])
def test_the_site_fits_and_axe_finds_nothing_serious(site: Path, browser: Browser, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for name in ("index.html", "quick-start.html", "analyses/index.html", "formats/index.html"):
        page.goto((site / name).as_uri())
        assert too_wide(page) == []
        assert small_targets(page) == []
        assert [issue for issue in axe_issues(page) if issue[0] in {"serious", "critical"}] == []
    context.close()
