"""How alike two real models are, against a cosine worked out from the files by a script that knows nothing of XSP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import xsp
from xsp_analyze.cohort.cohort import Member, group_by_system
from xsp_analyze.cohort.facts import facts_of
from xsp_analyze.cohort.tables import similarity

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real


def test_a_model_on_two_makers_devices_is_as_alike_as_its_operators_times(real_dir: Path) -> None:
    members = []
    for name in ("bert_small.h100", "bert_small.mi300x"):
        trace = xsp.open(real_dir / "kineto" / f"{name}.json.gz").trace
        members.append(Member(name, facts_of(trace, name)))
    (pair,) = similarity(group_by_system(members)).table.to_dicts()
    assert pair["similarity_share"] == pytest.approx(0.925505339759907, rel=1e-9)
