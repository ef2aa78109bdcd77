"""The list of analyses."""

from __future__ import annotations

import pytest

from xsp_analyze.catalog import ANALYSES, find
from xsp_analyze.core import Role
from xsp_model import XspError


def test_ids_are_found_however_they_are_capitalised() -> None:
    assert find("a10").id == "A10"
    assert find("CUDA_GPU_KERN_SUM").id == "cuda_gpu_kern_sum"


def test_unknown_id_is_answered_with_the_known_ones() -> None:
    with pytest.raises(XspError, match=r"no analysis 'A99'. Known analyses: A01, .*B06"):
        find("A99")


def test_ids_are_unique() -> None:
    ids = [a.id.lower() for a in ANALYSES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("analysis", [a for a in ANALYSES if a.id[0] in "AB"], ids=lambda a: a.id)
def test_every_analysis_describes_itself(analysis: object) -> None:
    found = find(analysis.id)  # type: ignore[attr-defined]
    assert found.doc.startswith("One row ")
    names = [c.name for c in found.columns]
    assert len(set(names)) == len(names)
    assert all(c.doc.endswith(".") for c in found.columns)
    assert any(c.role is Role.KEY for c in found.columns)
    for column in found.columns:
        assert column.unit == "ns" or not column.name.endswith("_ns")
    if found.figure is not None:
        shown = {found.figure.x, *found.figure.y, found.figure.color or found.figure.x}
        assert shown <= set(names)
