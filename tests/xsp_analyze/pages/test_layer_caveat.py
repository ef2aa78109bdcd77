"""A sentence on layers says how much of device time they hold, where that is little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.pages.report.summary import summary_sentences
from xsp_analyze.render.terminal import render
from xsp_analyze.service import Answers, summarise
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from xsp_model import Trace


def _trace(in_layer_ns: int, outside_ns: int) -> Trace:
    hand = Hand()
    hand.run(0, layer_source="module")
    module = hand.module("Logits_0", 0, 50, 0)
    hand.work("gemm", 100, in_layer_ns, launch=10, parent=module, layer=module)
    hand.work("replayed", 5000, outside_ns, launch=60, attribution="graph_replay")
    return hand.build()


@pytest.mark.parametrize(("outside_ns", "caveat"), [(974, "only 2.60\u202f% of device time is in a layer"), (1, "")])
def test_every_place_says_it_or_none_does(outside_ns: int, caveat: str) -> None:
    trace = _trace(26, outside_ns)
    assert summarise(trace).layer_caveat == caveat
    frames = StepView.of(trace)
    sentence = next(line for line in summary_sentences(Answers(trace)) if line.startswith("Layers of type"))
    assert sentence == f"Layers of type Logits take 100\u202f% of all layer time{', but ' + caveat if caveat else ''}."
    for identity in ("A05", "A06"):
        text = render(run(find(identity), frames))
        assert ("layer coverage: 2.60 % of device time" in text) == bool(caveat)
        assert run(find(identity), frames).provenance["layer_coverage"] == pytest.approx(26 / (26 + outside_ns))


def test_other_tables_do_not_speak_of_layers() -> None:
    assert "layer coverage" not in render(run(find("A10"), StepView.of(_trace(26, 974))))
