"""What holds of every page in a browser, whatever is on it: it fits, can be hit, read aloud, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.helpers.browser import Page

__all__ = ["PAPER_PX", "axe_issues", "cut_in_print", "small_targets", "too_wide", "unfold"]

PAPER_PX = {"A4": (718, 1047), "Letter": (740, 980)}
"""What a sheet holds within margins of 10 mm, at 96 pixels an inch."""

_TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const clipped = (node) => {
    for (let at = node.parentElement; at; at = at.parentElement) {
      if (getComputedStyle(at).overflowX !== 'visible') return true;
    }
    return false;
  };
  const reach = document.createRange();
  const right = (node) => {
    reach.selectNodeContents(node); // text may reach out of its element
    return Math.max(reach.getBoundingClientRect().right, node.getBoundingClientRect().right);
  };
  const wide = [...document.body.querySelectorAll('*')].filter((node) => right(node) > width + 0.5 && !clipped(node));
  return ['page ' + document.documentElement.scrollWidth + ' px in ' + width,
    ...wide.slice(-5).map((node) => node.outerHTML.slice(0, 160))];
}"""

# A link within a sentence is as high as its line (WCAG 2.2, 2.5.8 excepts it); a box of a drawing, as its time.
_SMALL = """(least) => {
  const inline = (node) => getComputedStyle(node).display === 'inline';
  const inSentence = (node) => node.tagName === 'A' && inline(node) && !node.closest('nav');
  const drawn = (node) => node.closest('svg') || node.matches('.cell') || node.closest('[data-drawn]');
  const hit = 'a[href], button, input, select, summary, [role=button], [role=tab]';
  return [...document.querySelectorAll(hit)]
    .filter((node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
    .filter((node) => !inSentence(node) && !drawn(node))
    .map((node) => [node, node.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1 && box.height > 1 && (box.width < least - 0.01 || box.height < least - 0.01))
    .map(([node, box]) => Math.round(box.width) + 'x' + Math.round(box.height) + ' ' + node.outerHTML.slice(0, 120));
}"""

_CUT = """() => {
  const width = document.documentElement.clientWidth;
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((node) => node.checkVisibility());
  const scrolls = (node) => !(node instanceof SVGElement) && node.scrollWidth > node.clientWidth + 1;
  const cut = seen('.scroll, table, svg')
    .filter((node) => node.getBoundingClientRect().right > width + 1 || scrolls(node));
  const fixed = seen('*').filter((node) => ['sticky', 'fixed'].includes(getComputedStyle(node).position));
  return [...cut, ...fixed].map((node) => node.outerHTML.slice(0, 160));
}"""


def unfold(page: Page) -> None:
    """Opens everything that can be unfolded."""
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")


def too_wide(page: Page) -> Sequence[str]:
    """What makes the page scroll sideways; empty where it does not."""
    return page.evaluate(_TOO_WIDE)  # type: ignore[no-any-return]


def small_targets(page: Page, min_px: int = 24) -> Sequence[str]:
    """Visible things to click or tap that are less than so many pixels wide or high."""
    return page.evaluate(_SMALL, min_px)  # type: ignore[no-any-return]


def cut_in_print(page: Page, paper: str) -> Sequence[str]:
    """What does not fit the paper or is pinned to it; the page is left as it would print."""
    width, height = PAPER_PX[paper]
    page.emulate_media(media="print")
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(150)  # charts follow the width
    return page.evaluate(_CUT)  # type: ignore[no-any-return]


def axe_issues(page: Page) -> Sequence[tuple[str, str, str]]:
    """What axe finds: impact, rule, and the first element of each; the page's context must bypass its CSP."""
    axe: Any = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run().then(r => r.violations)")
    return [(v["impact"], v["id"], node["html"][:200]) for v in violations for node in v["nodes"][:3]]
