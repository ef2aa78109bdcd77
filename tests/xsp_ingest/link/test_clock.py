"""The Unix time of a trace's beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("base", "is_date"), [(1_700_000_000 * 10**9, True), (2**63 - 500, False)])
def test_a_time_beyond_what_63_bits_hold_is_no_date(tmp_path: Path, base: int, is_date: bool) -> None:  # noqa: FBT001
    made = KinetoTrace(baseTimeNanoseconds=base)
    made.operator("aten::add", 1_000, 10)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    assert trace.frame("runs")["epoch_ns"].to_list() == [base + 1_000 if is_date else None]
