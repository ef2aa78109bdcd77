"""The trace viewer in a real browser: what hands, keys and fingers do to it; three widths, both themes and print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import Browser, Page, opened
from tests.helpers.viewer_block import END, two_ranks
from xsp_analyze.pages.blocks import page_by_script
from xsp_analyze.pages.viewer.block import SCRIPTS, STYLES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.browser

_US = 1000
_PRODUCT = "void ns::sgemm_128x64(float)"
_READY = "() => document.querySelector('.viewer')?.dataset.ready === 'true'"
_SETTLED = "() => document.querySelector('.viewer').dataset.settled === 'true'"
_CANVAS = ".viewer-scroll canvas"
_ROW = 15


def _written(folder: Path, name: str, block: dict[str, Any]) -> Path:
    kernels = {"id": "kernels", "label": "Kernels", "title": "Kernels", "means": "", "blocks": []}
    timeline = {"id": "timeline", "label": "Timeline", "title": "Timeline", "means": "", "blocks": [block]}
    head = {"kind": "a test", "title": "hand made", "short": ["One."], "footer": ""}
    file = folder / f"{name}.html"
    file.write_text(page_by_script({**head, "sections": [timeline, kernels]}, SCRIPTS, STYLES), encoding="utf-8")
    return file


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("viewer")
    blocks = {"exact": two_ranks(), "merged": two_ranks(merged=True)}
    return {name: _written(folder, name, block) for name, block in blocks.items()}


@pytest.fixture(name="page")
def fixture_page(browser: Browser, files: dict[str, Path]) -> Iterator[Page]:
    with opened(browser, files["exact"]) as page:
        _drawn(page)
        yield page


def _drawn(page: Page) -> None:
    page.wait_for_function(_READY)
    page.locator(".viewer").scroll_into_view_if_needed()


def _state(page: Page) -> dict[str, str]:
    page.wait_for_function(_SETTLED)
    state: dict[str, str] = page.eval_on_selector(".viewer", "node => ({...node.dataset})")
    return state


def _view(page: Page) -> tuple[int, int]:
    state = _state(page)
    return int(state["from"]), int(state["to"])


def _point(page: Page, lane: int, at_us: float, row: int = 0) -> tuple[float, float]:
    """Where a time of a row of a lane is on the canvas of lanes, in pixels from its corner."""
    begin, end = _view(page)
    label = page.locator(f".viewer-scroll [data-lane='{lane}']")
    top, height = (float(label.get_attribute(f"data-{key}")) for key in ("box-top", "row-height"))
    scrolled = page.eval_on_selector(".viewer-scroll", "node => node.scrollTop")
    width = page.locator(_CANVAS).bounding_box()["width"]
    return (at_us * _US - begin) / (end - begin) * width, top + (row + 0.5) * height - scrolled


def _at(page: Page, lane: int, at_us: float, row: int = 0) -> tuple[float, float]:
    x, y = _point(page, lane, at_us, row)
    box = page.locator(_CANVAS).bounding_box()
    return box["x"] + x, box["y"] + y


def _click(page: Page, lane: int, at_us: float, row: int = 0) -> dict[str, str]:
    page.mouse.click(*_at(page, lane, at_us, row))
    return _state(page)


def _press(page: Page, *keys: str) -> dict[str, str]:
    page.locator(_CANVAS).focus()
    for key in keys:
        page.keyboard.press(key)
        _state(page)
    return _state(page)


def _pixel(page: Page, x: float, y: float, selector: str = _CANVAS) -> list[int]:
    """Red, green and blue at a pixel of the canvas itself."""
    _state(page)
    pixel: list[int] = page.eval_on_selector(
        selector,
        """(canvas, [x, y]) => {
          const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
          copy.drawImage(canvas, -Math.floor(x * devicePixelRatio), -Math.floor(y * devicePixelRatio));
          return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        }""",
        [x, y],
    )
    return pixel


def _colour(page: Page, value: str) -> list[int]:
    """What a colour of the page's sheet is in the theme of now."""
    text = page.evaluate(
        "value => { const probe = document.createElement('i'); probe.style.color = value; document.body.append(probe);"
        " const colour = getComputedStyle(probe).color; probe.remove(); return colour; }",
        value,
    )
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def _button(page: Page, name: str) -> Any:  # noqa: ANN401 (a locator)
    return page.locator(".viewer").get_by_role("button", name=name)


# What it opens with


def test_it_opens_at_the_median_step_with_all_lanes(page: Page) -> None:
    assert _view(page) == (2_000 * _US, END)
    titles = page.locator(".viewer-scroll .viewer-title").all_inner_texts()
    assert titles == ["rank 0, host", "thread 1", "rank 0, GPU 0", "stream 7", "stream 20", "allocated memory",
                      "rank 1, host", "rank 1, GPU 1", "stream 7"]  # fmt: skip
    assert "2 ms in view" in page.locator(".viewer-status").inner_text().replace(".000", "").replace(".00", "").replace(
        "\u202f", " "
    )


def test_boxes_below_a_pixel_are_merged_and_none_is_dropped(page: Page) -> None:
    state = _state(page)
    assert int(state["boxes"]) == 2 + 3 + 42 + 1 + 1  # rank 1's host is folded: one thin line; step 0 touches the view
    assert int(state["merged"]) in (3, 4)  # 5 us are three pixels or four
    close = _press(page, "/") and page.evaluate("location.hash = '#timeline?from=3500000&to=3505000'")
    assert close
    page.wait_for_function("() => document.querySelector('.viewer').dataset.from === '3500000'")
    state = _state(page)
    assert (state["boxes"], state["single"], state["merged"]) == ("42", "42", "0")  # with both ranks' step


# What is painted


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_box_is_painted_with_the_tone_of_its_class(browser: Browser, files: dict[str, Path], theme: str) -> None:
    with opened(browser, files["exact"]) as page:
        page.emulate_media(color_scheme=theme)
        _drawn(page)
        for lane, at_us, tone in ((1, 2_550, "matrix-product"), (2, 2_690, "communication"), (1, 3_090, "softmax")):
            x, y = _point(page, lane, at_us)
            assert _pixel(page, x, y + 8) == _colour(page, f"var(--c-{tone})")
        x, y = _point(page, 0, 2_900, 1)
        assert _pixel(page, x, y + 5) == _colour(page, "var(--layer)")
        assert _pixel(page, *_point(page, 2, 3_500)) == _colour(page, "var(--paper)")


def test_colours_follow_the_button_and_paper_is_light(page: Page) -> None:
    x, y = _point(page, 1, 2_550)
    page.get_by_role("button", name="Switch to dark colours").click()
    page.wait_for_function(_SETTLED)
    dark = _pixel(page, x, y + 8)
    assert dark == _colour(page, "var(--c-matrix-product)")
    page.emulate_media(media="print")
    page.wait_for_function(_SETTLED)
    x, y = _point(page, 1, 2_550)  # on paper there is another width
    assert _pixel(page, x, y + 8) == _colour(page, "var(--c-matrix-product)") != dark
    assert not page.locator(".viewer-tools").is_visible()
    assert page.locator(_CANVAS).is_visible()


def test_a_merged_box_is_pale_above_and_filled_as_high_as_it_is_busy(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["merged"]) as page:
        _drawn(page)
        _press(page, "0")
        page.evaluate("location.hash = '#timeline?from=480000&to=560000'")
        page.wait_for_function("() => document.querySelector('.viewer').dataset.from === '480000'")
        x, y = _point(page, 1, 535)
        tone = _colour(page, "var(--c-matrix-product)")
        assert _pixel(page, x, y + 8) == tone
        assert _pixel(page, x, y - 3) == tone  # 75 % of 19 pixels
        assert _pixel(page, x, y - 8) != tone
        assert _click(page, 1, 535)["selected"] == "merged 37"
        text = page.locator(".viewer-details").inner_text()
        assert "37 kernels or copies, drawn as one" in text
        assert re.search(r"75(\.0)?\s%", text)
        assert "xsp view shows all of it" in text
        assert "xsp view shows all of it" in page.locator(".viewer-status").inner_text()


def test_a_gap_is_painted_with_its_cause_and_tells_it(page: Page) -> None:
    x, y = _point(page, 1, 2_480)
    assert _pixel(page, x, y + 6) == _colour(page, "var(--c-idle-input)")
    x, y = _point(page, 2, 2_480)  # no work of the device: none of its streams has any
    assert _pixel(page, x, y + 6) == _colour(page, "var(--c-idle-input)")
    assert _click(page, 1, 2_300)["selected"] == "gap"
    assert "Cause: input" in page.locator(".viewer-details").inner_text()
    assert _click(page, 1, 2_950)["selected"] == "gap"
    assert "Cause: launch" in page.locator(".viewer-details").inner_text()


def test_a_counter_is_a_step_curve_with_its_value_at_the_pointer(page: Page) -> None:
    assert "0 to 2.00\u202fGiB" in page.locator("[data-value-of='3']").inner_text()
    for at_us, value in ((2_400, "1.00"), (2_600, "2.00"), (3_100, "1.00")):
        page.mouse.move(*_at(page, 3, at_us))
        page.wait_for_function(
            "text => document.querySelector('.viewer-tip').innerText === text",
            arg=f"allocated memory: {value}\u202fGiB",
        )
    x, y = _point(page, 3, 2_700)
    assert _pixel(page, x, y - 8) != _colour(page, "var(--paper)")
    x, y = _point(page, 3, 3_200)
    assert _pixel(page, x, y - 8) == _colour(page, "var(--paper)")


# Boxes


def test_a_click_tells_a_box_and_draws_its_launch(page: Page) -> None:
    state = _click(page, 1, 2_700)
    assert (state["selected"], state["span"], state["arrows"]) == (_PRODUCT, "30", "1")
    details = page.locator(".viewer-details")
    text = details.inner_text()
    assert _PRODUCT in text
    assert "matrix product" in text
    assert "stream 7, rank 0, GPU 0; in layer Block_0; in step 1" in text
    assert details.locator("[title='400\u202f000\u202fns']").count() == 1
    assert details.get_by_role("link", name="In the table of kernels").get_attribute("href") == (
        "#kernels?kernel=void+ns%3A%3Asgemm_128x64%28float%29"
    )
    _button(page, "Go to its launch").click()
    assert _state(page)["selected"] == "cudaLaunchKernel"
    assert _state(page)["span"] == "20"


def test_a_call_shows_all_that_was_launched_in_it(page: Page) -> None:
    assert _click(page, 0, 2_205, 2)["arrows"] == "1"
    assert _click(page, 0, 2_800, 1)["selected"] == "Block_0"
    assert _state(page)["arrows"] == "2"
    assert "2 pieces of device work launched in it" in page.locator(".viewer-details").inner_text()
    _button(page, "Go to the last").click()
    assert _state(page)["selected"] == "softmax_fw"
    _button(page, "Close").first.click()
    assert _state(page)["selected"] == ""
    assert _state(page)["arrows"] == "0"


def test_an_arrow_is_painted_into_the_kernel(page: Page) -> None:
    _press(page, "0")
    _click(page, 1, 2_700)
    x, y = _point(page, 1, 2_500)
    assert _pixel(page, x - 4, y) == _colour(page, "var(--ink)")


def test_the_pointer_names_a_box(page: Page) -> None:
    page.mouse.move(*_at(page, 2, 2_700))
    page.wait_for_function("() => document.querySelector('.viewer-tip').innerText.startsWith('ncclAllReduce, ')")
    page.mouse.move(*_at(page, 2, 3_700))
    page.wait_for_function("() => document.querySelector('.viewer-tip').hidden")


def test_a_double_click_zooms_to_the_box(page: Page) -> None:
    page.mouse.dblclick(*_at(page, 2, 2_700))
    begin, end = _view(page)
    assert (begin, end) == (2_570 * _US, 2_830 * _US)
    _press(page, "Home")
    assert _view(page) == (2_000 * _US, END)


# Keys


def test_keys_zoom_move_and_reset(page: Page) -> None:
    _press(page, "w")
    begin, end = _view(page)
    assert 2_000 * _US < begin < end < END
    _press(page, "d")
    assert _view(page)[0] > begin
    _press(page, "a", "s")
    assert _view(page) == (2_000 * _US, END)
    _press(page, "+")
    assert _view(page) == (begin, end)
    _press(page, "-", "0")
    assert _view(page) == (0, END)
    _press(page, "Escape")
    assert _view(page) == (2_000 * _US, END)
    _press(page, "[")
    assert _view(page) == (0, 2_000 * _US)
    _press(page, "]")
    assert _view(page) == (2_000 * _US, END)


def test_a_held_key_goes_on_until_it_is_let_go(page: Page) -> None:
    page.locator(_CANVAS).focus()
    page.keyboard.down("w")
    page.wait_for_function(
        "() => (() => { const d = document.querySelector('.viewer').dataset; return d.to - d.from < 5e5; })()"
    )
    page.keyboard.up("w")
    assert _view(page)[1] - _view(page)[0] < 500 * _US


def test_arrow_keys_go_from_box_to_box_and_say_it(page: Page) -> None:
    live = page.locator(".viewer-live")
    assert _press(page, "ArrowDown")["selected"] == "step 1"
    assert "step 1, " in live.inner_text()
    assert "thread 1, rank 0, host" in live.inner_text()
    assert _press(page, "ArrowDown")["selected"] == "Block_0"
    assert _press(page, "ArrowDown")["selected"] == "cudaLaunchKernel"
    assert _press(page, "ArrowLeft")["span"] == "20"
    assert _press(page, "ArrowRight")["span"] == "21"
    assert _press(page, "ArrowDown")["selected"] == _PRODUCT
    assert _press(page, "ArrowRight")["selected"] == "softmax_fw"
    assert _press(page, "ArrowLeft", "ArrowLeft")["span"] == "32"  # in the step before: the view follows
    assert _view(page)[0] < 500 * _US
    assert _press(page, "ArrowUp")["selected"] == "cudaLaunchKernel"
    assert _press(page, "Enter", "Escape")["selected"] == ""


def test_help_lists_the_keys(page: Page) -> None:
    panel = page.locator(".viewer-help")
    assert panel.is_hidden()
    _press(page, "?")
    assert "previous and next step" in panel.inner_text()
    assert "pale top" in panel.inner_text()
    _press(page, "Escape")
    assert panel.is_hidden()
    _button(page, "Help").click()
    assert panel.is_visible()
    assert _button(page, "Help").get_attribute("aria-expanded") == "true"


# Wheel, drag, fingers


def test_the_wheel_scrolls_and_with_ctrl_zooms_at_the_pointer(page: Page) -> None:
    x, y = _at(page, 1, 2_500)
    page.mouse.move(x, y)
    page.mouse.wheel(0, 20)
    assert _view(page) == (2_000 * _US, END)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("() => document.querySelector('.viewer').dataset.from !== '2000000'")
    begin, end = _view(page)
    assert end - begin < 1_200 * _US
    assert (2_500 * _US - begin) / (end - begin) == pytest.approx(0.25, abs=0.002)


def test_a_drag_moves_the_view(page: Page) -> None:
    _press(page, "w")
    begin, end = _view(page)
    x, y = _at(page, 2, 3_300)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 50, y, steps=4)
    page.mouse.up()
    width = page.locator(_CANVAS).bounding_box()["width"]
    assert begin - _view(page)[0] == pytest.approx((end - begin) * 50 / width, rel=0.01)
    assert _state(page)["selected"] == ""


def test_a_finger_taps_moves_and_two_pinch(browser: Browser, files: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    page = context.new_page()
    page.goto(files["exact"].as_uri())
    _drawn(page)
    page.touchscreen.tap(*_at(page, 1, 2_700))
    assert _state(page)["selected"] == _PRODUCT
    client = context.new_cdp_session(page)
    x, y = _at(page, 1, 3_000)

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": at, "y": y, "id": number} for number, at in enumerate(xs)]
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", x - 40)
    touch("touchStart", x - 40, x + 40)
    for spread in (60, 80, 120):
        touch("touchMove", x - spread, x + spread)
    touch("touchEnd")
    begin, end = _view(page)
    assert (end - begin) == pytest.approx(2_000 * _US / 3, rel=0.1)
    assert begin < 3_000 * _US < end
    touch("touchStart", x)
    for by in (20, 40, 60):
        touch("touchMove", x + by)
    touch("touchEnd")
    assert _view(page)[0] < begin
    context.close()


# Ranges


def _statistics(page: Page, title: str) -> dict[str, tuple[str, int]]:
    part = page.locator(".viewer-statistics .viewer-columns > div", has=page.locator(f"h4:text-is('{title}')"))
    rows = part.locator("tbody tr").evaluate_all(
        "rows => rows.map(r => [r.cells[0].innerText, [r.cells[1].innerText, Number(r.cells[2].dataset.ns)]])"
    )
    return {name: tuple(values) for name, values in rows}


def test_a_drag_with_shift_selects_a_range_and_tells_its_statistics(page: Page) -> None:
    page.keyboard.down("Shift")
    page.mouse.move(*_at(page, 1, 2_400))
    page.mouse.down()
    page.mouse.move(*_at(page, 1, 3_050), steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    begin, end = (int(part) for part in _state(page)["range"].split(","))
    assert begin == pytest.approx(2_400 * _US, abs=4_000)
    assert end == pytest.approx(3_050 * _US, abs=4_000)
    page.locator(".viewer-statistics h3").wait_for()
    classes = _statistics(page, "Device work by class")
    assert classes["matrix product"] == ("2", 700 * _US)
    assert classes["communication"] == ("1", 200 * _US)
    assert classes["softmax"][1] == pytest.approx(50 * _US, abs=4_000)  # cut at the range's end
    names = _statistics(page, "Device work by name")
    assert names["sgemm_128x64(float)"] == ("2", 700 * _US)
    devices = page.locator(".viewer-devices").inner_text()
    assert "rank 0, GPU 0: busy" in devices
    assert "input" in devices
    assert "launch 100" in devices.replace("launch 100.000", "launch 100")
    _press(page, "Escape")
    assert _state(page)["range"] == ""
    assert page.locator(".viewer-statistics").inner_text() == ""


def test_busy_time_is_the_union_over_streams(page: Page) -> None:
    answer = page.evaluate("location.hash = '#timeline?from=2400000&to=2900000'")
    assert answer
    page.wait_for_function("() => document.querySelector('.viewer').dataset.from === '2400000'")
    _press(page, "m")
    page.locator(".viewer-statistics h3").wait_for()
    text = page.locator(".viewer-devices li").first.inner_text()
    assert re.search(r"busy 400(\.\d+)?\s\u00b5s, 80(\.0)?\s%; idle 100(\.\d+)?\s\u00b5s, 20(\.0)?\s%", text)


def test_idle_time_without_a_cause_is_told(page: Page) -> None:
    _press(page, "0", "m")
    page.locator(".viewer-statistics h3").wait_for()
    first, second = page.locator(".viewer-devices li").all_inner_texts()
    assert "no cause told for 1." in first  # 4 ms less 904 us busy and 1.7 ms with a cause
    assert "no cause told for 3." in second


def test_keys_and_buttons_select_ranges_too(page: Page) -> None:
    _click(page, 1, 2_700)
    assert _press(page, "m")["range"] == "2500000,2900000"
    assert _press(page, "Shift+ArrowRight")["range"] == "2500000,2940000"
    assert _press(page, "Shift+ArrowLeft", "Shift+ArrowLeft")["range"] == "2500000,2860000"
    _press(page, "Escape", "Escape")
    _button(page, "Statistics").click()
    assert _state(page)["range"] == f"2000000,{END}"
    _press(page, "Escape")
    _button(page, "Select a range").click()
    page.mouse.move(*_at(page, 1, 2_500))
    page.mouse.down()
    page.mouse.move(*_at(page, 1, 2_600), steps=3)
    page.mouse.up()
    assert _state(page)["range"] != ""
    assert _view(page) == (2_000 * _US, END)


def test_a_drag_on_the_axis_selects_and_on_the_strip_moves(page: Page) -> None:
    axis = page.locator("canvas.viewer-axis").bounding_box()
    page.mouse.move(axis["x"] + axis["width"] / 4, axis["y"] + 8)
    page.mouse.down()
    page.mouse.move(axis["x"] + axis["width"] / 2, axis["y"] + 8, steps=3)
    page.mouse.up()
    begin, end = (int(part) for part in _state(page)["range"].split(","))
    assert begin == pytest.approx(2_500 * _US, abs=4_000)
    assert end == pytest.approx(3_000 * _US, abs=4_000)
    strip = page.locator("canvas.viewer-overview").bounding_box()
    page.mouse.click(strip["x"] + strip["width"] / 4, strip["y"] + 20)
    assert _view(page)[0] == pytest.approx(0, abs=4_000)


# Search


def test_search_counts_and_goes_to_next_and_previous(page: Page) -> None:
    field = page.locator(".viewer-search input")
    _press(page, "/")
    page.keyboard.type("SGEMM")
    page.wait_for_function("() => document.querySelector('.viewer').dataset.hits === '3'")
    assert page.locator(".viewer-hits").inner_text() == "3 found"
    field.press("Enter")
    assert _state(page)["span"] == "30"
    assert page.locator(".viewer-hits").inner_text() == "2 of 3"
    field.press("Enter")
    assert _state(page)["span"] == "40"
    _button(page, "Next found").click()
    assert _state(page)["span"] == "32"
    assert _view(page)[0] < 500 * _US
    _press(page, "Shift+N")
    assert _state(page)["span"] == "40"
    assert _press(page, "n")["span"] == "32"
    field.fill("nothing of this")
    page.wait_for_function("() => document.querySelector('.viewer-hits').innerText === 'None found'")
    assert _button(page, "Next found").is_disabled()
    field.press("Escape")
    assert field.input_value() == ""


def test_what_is_not_found_is_pale(page: Page) -> None:
    x, y = _point(page, 2, 2_700)
    tone = _colour(page, "var(--c-communication)")
    page.locator(".viewer-search input").fill("sgemm")
    page.wait_for_function("() => document.querySelector('.viewer').dataset.hits === '3'")
    assert _pixel(page, x, y + 8) != tone
    x, y = _point(page, 1, 2_600)
    assert _pixel(page, x, y + 8) == _colour(page, "var(--c-matrix-product)")


def test_search_says_that_merged_calls_are_not_searched(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["merged"], "#timeline?name=sgemm") as page:
        _drawn(page)
        page.wait_for_function("() => document.querySelector('.viewer').dataset.hits === '2'")
        assert "of 2 of the calls that stand alone" in page.locator(".viewer-hits").inner_text()


# Lanes


def test_lanes_and_groups_fold(page: Page) -> None:
    before = page.locator(".viewer-space").last.bounding_box()["height"]
    fold = page.get_by_title("Fold thread 1, rank 0, host", exact=True)
    fold.click()
    assert page.locator(".viewer-space").last.bounding_box()["height"] < before
    fold = page.get_by_title("Unfold thread 1, rank 0, host", exact=True)
    assert fold.get_attribute("aria-expanded") == "false"
    assert fold.evaluate("node => node === document.activeElement")
    fold.click()
    page.get_by_title("Fold group rank 0, GPU 0", exact=True).click()
    assert page.locator(".viewer-scroll [data-lane='1']").count() == 0
    assert "3 lanes folded" in page.locator(".viewer-group.folded").first.inner_text()
    page.get_by_title("Unfold group rank 0, GPU 0", exact=True).click()
    page.get_by_title("Unfold group rank 1, host", exact=True).click()
    assert page.locator(".viewer-scroll [data-lane='4']").count() == 1


def test_a_folded_group_still_paints_its_lanes(page: Page) -> None:
    page.get_by_title("Fold group rank 0, GPU 0", exact=True).click()
    label = page.locator(".viewer-group.folded").first
    top = label.evaluate("node => parseFloat(node.style.top)")
    begin, end = _view(page)
    width = page.locator(_CANVAS).bounding_box()["width"]
    x = (2_700 * _US - begin) / (end - begin) * width
    assert _pixel(page, x, top + 5) == _colour(page, "var(--c-matrix-product)")
    assert _pixel(page, x, top + 12) == _colour(page, "var(--c-communication)")


def test_a_pinned_lane_stays_on_top(page: Page) -> None:
    _button(page, "Pin stream 20, rank 0, GPU 0").click()
    pinned = page.locator(".viewer-pinned")
    assert pinned.locator("[data-lane='2']").count() == 1
    assert page.locator(".viewer-scroll [data-lane='2']").count() == 0
    width = page.locator(_CANVAS).bounding_box()["width"]
    tone = _colour(page, "var(--c-communication)")
    assert _pixel(page, width * 0.35 + 1, 18, ".viewer-pinned canvas") == tone
    box = pinned.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + width * 0.35, box["y"] + 12)
    assert _state(page)["selected"] == "ncclAllReduce"
    _button(page, "Unpin stream 20, rank 0, GPU 0").click()
    assert pinned.bounding_box()["height"] < 3
    assert page.locator(".viewer-scroll [data-lane='2']").count() == 1


# Links, saving


def test_a_link_leads_to_a_span_and_a_name(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["exact"], "#timeline?span=32") as page:
        _drawn(page)
        page.wait_for_function("() => document.querySelector('.viewer').dataset.span === '32'")
        assert _view(page) == (440 * _US, 960 * _US)
        page.evaluate("location.hash = '#timeline?name=softmax_fw'")
        page.wait_for_function("() => document.querySelector('.viewer').dataset.span === '31'")


def test_a_link_is_followed_before_the_page_is_measured(browser: Browser, files: dict[str, Path]) -> None:
    """A busy browser answers the link first."""
    with opened(browser, files["exact"]) as page:
        page.add_init_script("window.ResizeObserver = class { observe() {} disconnect() {} };")
        page.goto("about:blank")
        page.goto(files["exact"].as_uri() + "#timeline?span=32")
        page.wait_for_function("() => document.querySelector('.viewer').dataset.span === '32'")


def test_what_is_in_view_is_saved_for_perfetto_with_launches(page: Page) -> None:
    with page.expect_download() as waiting:
        _button(page, "Save what is in view").click()
    assert waiting.value.suggested_filename == "hand-made-timeline.json"
    events = json.loads(Path(waiting.value.path()).read_text())["traceEvents"]
    complete = {(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert (_PRODUCT, 2_500, 400) in complete
    assert (_PRODUCT, 500, 400) not in complete  # before what is in view
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0, host", "rank 0, GPU 0", "rank 1, host", "rank 1, GPU 1"}  # fmt: skip
    starts = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    ends = {e["id"]: (e["ts"], e["bp"]) for e in events if e["ph"] == "f"}
    assert sorted(starts.values()) == [2_205, 2_305]
    assert [ends[key] for key in sorted(starts, key=starts.__getitem__)] == [(2_500, "e"), (3_000, "e")]
    assert [e["args"]["bytes"] for e in events if e["ph"] == "C"] == [2**31, 2**30]


# Widths and helpers of those who do not see it


@pytest.mark.parametrize("width", [1440, 768, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_every_control_can_be_hit(browser: Browser, files: dict[str, Path], width: int, theme: str) -> None:
    with opened(browser, files["exact"]) as page:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        _drawn(page)
        _click(page, 1, 2_700)
        _press(page, "m", "?")
        page.locator(".viewer-statistics h3").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.locator(".viewer button:visible").evaluate_all(
            "all => all.map(b => [b.getBoundingClientRect(), b.ariaLabel || b.innerText || b.title])"
            ".map(([r, name]) => [Math.round(r.width), Math.round(r.height), name])"
        )
        assert [size for size in sizes if size[0] < 24 or size[1] < 24] == []
        assert [size for size in sizes if not size[2]] == []


def test_the_canvas_has_a_name_a_role_and_takes_part_in_tabbing(page: Page) -> None:
    canvas = page.locator(_CANVAS)
    assert canvas.get_attribute("role") == "application"
    assert "6 lanes" in canvas.get_attribute("aria-label")
    assert canvas.get_attribute("tabindex") == "0"
    assert page.locator(".viewer-live").get_attribute("aria-live") == "polite"


def test_it_fills_the_window_and_goes_back(page: Page) -> None:
    _button(page, "Fill the window").click()
    box = page.locator(".viewer").bounding_box()
    assert (box["width"], box["height"]) == (1280, 900)
    page.get_by_role("button", name="Fill the window with the timeline").click()
    assert page.locator(".viewer").bounding_box()["width"] < 1280
