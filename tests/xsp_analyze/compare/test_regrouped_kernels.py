"""The same kernels, of which one side knows the layers: told in a sentence, not as kernels that came and went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.graph_pairs import Piece, add_capture, add_eager, add_replay, paired
from tests.helpers.synth import KinetoTrace
from xsp_analyze.compare.comparison import Comparison, compare
from xsp_analyze.compare.level_rows import ChangeKind
from xsp_analyze.pages.compare.files import document
from xsp_analyze.pages.compare.sections import parts
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = (
    Piece("gemm", "Linear_0", "aten::mm"),
    Piece("relu", "ReLU_0", "aten::relu"),
    Piece("softmax", "Softmax_0", "aten::softmax"),
)


def _replay(*, last: Piece) -> KinetoTrace:
    """A step of two replays of three kernels and an eager one."""
    kineto = KinetoTrace()
    kineto.step(0, 900_000_000, 300_000)
    now = add_eager(kineto, [last], 900_010_000)
    for _ in range(2):
        now = add_replay(kineto, [piece.kernel for piece in GRAPH], now, annotation="replay")
    return kineto


def _compared(folder: Path, after: KinetoTrace) -> Comparison:
    capture = KinetoTrace()
    add_capture(capture, GRAPH, 5_000_000, annotation="capture_8_FULL")
    before = _replay(last=Piece("embed", "Embedding_0", "aten::embedding"))
    plain = convert([before.write(folder / "before.json")], Options())
    return compare(*([StepView.of(trace)] for trace in (plain, paired(after, [capture], folder))))


@pytest.fixture(name="same")
def same_trace(tmp_path: Path) -> Comparison:
    """A trace without, and itself with, its capture."""
    return _compared(tmp_path, _replay(last=Piece("embed", "Embedding_0", "aten::embedding")))


def test_kernels_whose_layer_alone_differs_are_no_changes(same: Comparison) -> None:
    assert (same.changes, same.regrouped) == ([], 6)
    assert document(same, [])["regrouped_kernels"] == 6


def test_a_sentence_says_how_many(same: Comparison) -> None:
    tables = {part.identity: part.table for part in parts(same)}
    assert "changes" not in tables
    assert "6 kernels have the same time on both sides and another layer or attribution." in tables["kernel"].notes


def test_another_kernel_is_a_change_beside_them(tmp_path: Path) -> None:
    comparison = _compared(tmp_path, _replay(last=Piece("gather", "Embedding_0", "aten::embedding")))
    changed = [(one.kind, one.before, one.after) for one in comparison.changes]
    assert (changed, comparison.regrouped) == ([(ChangeKind.REPLACED, ("embed",), ("gather",))], 6)
