"""Two jobs, rank by rank and as distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.rank_traces import rank_trace, write_ranks
from xsp_analyze.compare.comparison import compare
from xsp_analyze.pages.compare.files import document
from xsp_analyze.pages.compare.sentences import rank_tables
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.synth import KinetoTrace


_MS = 1_000_000


def _job(folder: Path, traces: list[KinetoTrace]) -> list[StepView]:
    folder.mkdir()
    return [StepView.of(convert(write_ranks(folder, traces), Options()))]


def test_ranks_are_paired_by_number_and_spread_is_told(tmp_path: Path) -> None:
    one = _job(tmp_path / "a", [rank_trace(4, 3), rank_trace(4, 3), rank_trace(6, 1)])
    two = _job(tmp_path / "b", [rank_trace(4, 1, length_ms=15), rank_trace(4, 1, length_ms=15)])
    c = compare(one, two)
    pairs = [(p.rank, p.before_ns, p.after_ns, p.wait_before_ns, p.wait_after_ns) for p in c.ranks]
    assert pairs == [
        (0, 20 * _MS, 15 * _MS, 2 * _MS, 0),
        (1, 20 * _MS, 15 * _MS, 2 * _MS, 0),
        (2, 20 * _MS, None, 0, None),
    ]
    spread, by_rank = rank_tables(c)
    assert spread.title == "Steps over ranks"
    assert "0.750" in str(spread)
    assert "1 rank is of one side only" in str(by_rank)
    assert len(document(c)["ranks"]) == 3  # type: ignore[arg-type]


def test_a_side_of_one_rank_has_none(tmp_path: Path) -> None:
    one = _job(tmp_path / "a", [rank_trace(4, 3)])
    two = _job(tmp_path / "b", [rank_trace(4, 1), rank_trace(4, 1)])
    assert not compare(one, two).ranks
    assert not rank_tables(compare(one, two))
