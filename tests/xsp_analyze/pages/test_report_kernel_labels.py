"""Kernels on the page by labels for people, and never without what tells two of them apart."""

from __future__ import annotations

import json

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.pages.report.figures import figure
from xsp_analyze.service import Answers

_TILES = ("SN_LDSB0", "SN_LDSB1")


def test_bars_have_labels_and_those_that_share_one_what_differs() -> None:
    hand = Hand()
    hand.run(0)
    for number, variant in enumerate(_TILES):
        hand.work(f"Cijk_Alik_Bljk_BBS_BH_MT64x32x256_{variant}", 10 * number, 10)
    hand.work("volta_sgemm_64x64_nt", 30, 5)
    answers = Answers(hand.build())
    blocks = figure(answers, run(find("A10"), answers.per_step))
    assert json.dumps(blocks[0]["labels"]) == json.dumps(
        ["GEMM bf16 64x32x256 (LDSB0)", "GEMM bf16 64x32x256 (LDSB1)", "GEMM fp32 64x64 nt"]
    )
