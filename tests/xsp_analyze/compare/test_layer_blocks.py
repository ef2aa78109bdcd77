"""Repeated blocks of two sides: one line for what 24 layers have in common."""

from __future__ import annotations

import pytest

from tests.helpers.decoder_trace import ATTENTION_NS, decoder
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.rules import check, parse
from xsp_analyze.trace.step_view import StepView


def test_a_position_of_all_repetitions_is_one_row() -> None:
    slower = [2 * ns for ns in ATTENTION_NS]
    comparison = compare([StepView.of(decoder())], [StepView.of(decoder(slower, names="Renamed_{}"))])
    rows = {row.name: row for row in comparison.level("layer_block")}
    block = "4 x Decoder_{0..3}"
    assert set(rows) == {f"Attention of {block}", f"Linear#1 of {block}", f"Linear#2 of {block}"}
    attention = rows[f"Attention of {block}"]
    assert (attention.before_ns, attention.after_ns) == (425.0, 850.0)
    assert attention.ratio == pytest.approx(2.0)
    assert attention.after_name == "Attention of 4 x Renamed_{0..3}"
    assert (attention.before_count, attention.layer_type) == (4.0, "Attention")
    assert rows[f"Linear#1 of {block}"].difference_ns == 0.0


def test_a_rule_may_be_about_a_position() -> None:
    slower = [2 * ns for ns in ATTENTION_NS]
    comparison = compare([StepView.of(decoder())], [StepView.of(decoder(slower))])
    outcome = check(parse('layer_block["Attention of *"].time > +10%'), comparison)
    assert [row.name for row in outcome.rows] == ["Attention of 4 x Decoder_{0..3}"]


def test_no_rows_where_one_side_has_no_such_block() -> None:
    apart = compare([StepView.of(decoder())], [StepView.of(decoder(ATTENTION_NS[:1]))])
    assert apart.level("layer_block") == []
