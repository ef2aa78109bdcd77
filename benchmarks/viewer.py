"""How fast the trace viewer paints: `python -m benchmarks.viewer`.

A page of a made trace of two million spans, in headless Chromium (`$XSP_CHROMIUM`): its size, when its first boxes are
painted, how long a frame takes while keys that move and zoom are held, with so many boxes in view. A frame's time is
that of its script; frames a second are those that the browser shows, 60 at most, and fewer on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.helpers.large_trace import large_trace
from xsp_analyze.pages.blocks import page_by_script
from xsp_analyze.pages.viewer.block import SCRIPTS, STYLES, view_of, viewer
from xsp_analyze.trace.step_view import StepView

_KERNEL_NS = 5_000  # from one kernel of the made trace to the next; with each one call
_HELD_S = 3.0
_GOAL_FRAMES, _GOAL_PAINT_S, _GOAL_MB = 60, 1.0, 8

_WATCH = """addEventListener('DOMContentLoaded', () => new MutationObserver((_, watch) => {
  if (!document.querySelector('.viewer')?.dataset.resolution) return;
  window.paintedAt = performance.now();
  watch.disconnect();
}).observe(document, { subtree: true, attributes: true, childList: true, attributeFilter: ['data-resolution'] }));
const asked = window.requestAnimationFrame;
window.frames = [];
window.requestAnimationFrame = (act) => asked((now) => {
  const began = performance.now();
  act(now);
  window.frames.push([now, performance.now() - began]);
});"""


def main() -> int:
    """Prints size, first paint, and frames for each number of boxes in view."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.viewer", description=__doc__)
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--boxes", type=int, nargs="+", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--keep", type=Path, help="write the page here")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (not installed everywhere)

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = arguments.keep or Path(folder) / "page.html"
        began = time.process_time()
        page_file.write_text(_page(arguments.spans), encoding="utf-8")
        size = page_file.stat().st_size / 1e6
        took_s = time.process_time() - began
        print(f"{arguments.spans:,} spans: {size:.1f} MB (goal {_GOAL_MB}), written in {took_s:.1f} s")
        browser = playwright.chromium.launch(executable_path=os.environ.get("XSP_CHROMIUM"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(_WATCH)
        page.goto(page_file.resolve().as_uri())
        page.wait_for_function("() => document.querySelector('.viewer')?.dataset.ready")
        print(f"first boxes painted after {page.evaluate('paintedAt') / 1e3:.2f} s (goal {_GOAL_PAINT_S:.0f})")
        for boxes in arguments.boxes:
            for keys, what in (("d", "moving"), ("ws", "zooming")):
                print(_line(page, boxes, keys, what), flush=True)
        browser.close()
    return 0


def _page(spans: int) -> str:
    trace = large_trace(spans // 2, layers=24, names=300, steps=200)
    block = viewer(view_of(StepView.of(trace, "each")), "made")
    section = {"id": "timeline", "label": "Timeline", "title": "Timeline", "means": "", "blocks": [block]}
    data = {"kind": "benchmark", "title": "made", "short": [], "sections": [section], "footer": ""}
    return page_by_script(data, SCRIPTS, STYLES)


def _line(page: Any, boxes: int, keys: str, what: str) -> str:  # noqa: ANN401 (playwright's)
    length = boxes // 2 * _KERNEL_NS
    page.evaluate("([from, to]) => { location.hash = `#timeline?from=${from}&to=${to}`; }", [0, length])
    page.wait_for_timeout(500)
    state = page.eval_on_selector(".viewer", "node => ({...node.dataset})")
    page.locator(".viewer-scroll canvas").focus()
    page.evaluate("() => { window.frames.length = 0; }")
    for key in keys:
        page.keyboard.down(key)
        page.wait_for_timeout(_HELD_S * 1e3 / len(keys))
        page.keyboard.up(key)
    frames = page.evaluate("window.frames")
    shown = len(frames) / (frames[-1][0] - frames[0][0]) * 1e3
    times = [duration for _, duration in frames]
    return (
        f"{boxes:>9,} spans in view ({int(state['boxes']):,} boxes after merging), {what}: {shown:.0f} frames/s"
        f" (goal {_GOAL_FRAMES}), a frame {median(times):.1f} ms, 19 of 20 below {quantiles(times, n=20)[-1]:.1f} ms"
    )


if __name__ == "__main__":
    raise SystemExit(main())
