"""Small multiples: what each chart is drawn from, worked out by hand."""

from __future__ import annotations

from tests.helpers.cohort_members import member
from xsp_analyze.cohort.cohort import group_by_system
from xsp_analyze.cohort.facts import Speed
from xsp_analyze.pages.cohort import multiples

_MS = 1e6


def _speed(batch: int, latency_ms: float) -> Speed:
    return Speed(batch, latency_ms * _MS, None, None, batch / latency_ms * 1000, 10)


def test_a_model_is_a_chart_and_a_system_a_line_over_its_batch_sizes() -> None:
    members = [
        member("net", "GPU A", "", speeds=[_speed(1, 2.0), _speed(4, 4.0)]),
        member("net", "GPU B", "", speeds=[_speed(4, 8.0)]),
        member("other", "GPU B", "", speeds=[_speed(1, 5.0)]),
    ]
    (section,) = multiples(group_by_system(members))
    (block,) = section["blocks"]
    assert [measure["label"] for measure in block["measures"]] == ["Throughput", "Step time"]
    assert len(block["systems"]) == 2
    net, other = block["items"]
    assert (net["title"], other["title"]) == ("net", "other")
    a, b = net["lines"]
    assert a["points"][0] == [[1, 500.0], [4, 1000.0]]  # inputs a second: batch over latency
    assert a["points"][1] == [[1, 2.0 * _MS], [4, 4.0 * _MS]]
    assert b["points"][0] == [[4, 500.0]]
    assert other["lines"][0]["system"] == b["system"] != a["system"]


def test_one_model_on_one_system_has_nothing_beside_it() -> None:
    assert multiples(group_by_system([member("net", "GPU A", "", speeds=[_speed(1, 2.0)])])) == []


def test_without_times_there_is_nothing_to_draw() -> None:
    assert multiples(group_by_system([member(name, "GPU A", "", speeds=[]) for name in ("a", "b")])) == []
