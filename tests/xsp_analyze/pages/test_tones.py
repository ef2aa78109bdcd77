"""Every class of work and every cause of idle time has a colour of its own, in light and in dark."""

from __future__ import annotations

import re
from importlib.resources import files

from xsp_analyze.catalog import find
from xsp_analyze.pages.blocks import TONES
from xsp_analyze.text.units import IDLE


def test_every_tone_has_a_colour_of_its_own() -> None:
    style = (files("xsp_analyze.pages") / "assets" / "page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--c-([a-z-]+): (light-dark\([^;]+\));", style))
    assert set(colours) == set(TONES)
    assert len(set(colours.values())) == len(TONES)
    assert all(f".c-{tone}, .t-{tone} {{" in style and f".fc-{tone}, .f-{tone} {{" in style for tone in TONES)


def test_the_causes_of_idle_time_are_those_of_the_timeline() -> None:
    columns = [column.name for column in find("B03").columns]
    assert [c for c in columns if c.startswith("idle_") and c.endswith("_ns") and c != "idle_ns"] == list(IDLE)
