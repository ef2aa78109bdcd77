"""The list of analyses."""

from __future__ import annotations

import re

import pytest

from tests.where import find_tests
from xsp_analyze.catalog import all_analyses, find
from xsp_analyze.core import Analysis, Role
from xsp_model import XspError


def test_ids_are_found_however_they_are_capitalised() -> None:
    assert find("a10").id == "A10"
    assert find("CUDA_GPU_KERN_SUM").id == "cuda_gpu_kern_sum"


@pytest.mark.parametrize(
    ("identifier", "near"),
    [
        ("A99", "A09 "),
        ("roofline", "A09 (kernel roofline)"),
        ("timeline", "B03 "),
        ("cuda_gpu_kernsum", "cuda_gpu_kern_sum "),
    ],
)
def test_unknown_id_is_answered_with_those_near_to_it(identifier: str, near: str) -> None:
    with pytest.raises(XspError, match=f"no analysis '{identifier}'. Did you mean .*{re.escape(near)}"):
        find(identifier)


def test_unknown_id_near_to_none_is_answered_with_where_they_are_listed() -> None:
    with pytest.raises(XspError, match=r"no analysis 'zzzz'. `xsp analyses` lists them"):
        find("zzzz")


def test_ids_are_unique() -> None:
    ids = [a.id.lower() for a in all_analyses()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("analysis", [a for a in all_analyses() if a.id[0] in "AB"], ids=lambda a: a.id)
def test_every_analysis_describes_itself(analysis: object) -> None:
    one = find(analysis.id)  # type: ignore[attr-defined]
    assert one.doc.startswith("One row ")
    names = [c.name for c in one.columns]
    assert len(set(names)) == len(names)
    assert all(c.doc.endswith(".") for c in one.columns)
    assert any(c.role is Role.KEY for c in one.columns)
    for column in one.columns:
        assert column.unit == "ns" or not column.name.endswith("_ns")
    if one.figure is not None:
        shown = {one.figure.x, *one.figure.y, one.figure.color or one.figure.x, *one.figure.spread}
        assert shown <= set(names)


_DESCRIBED = [*(f"A{n:02}" for n in range(1, 16)), *(f"B{n:02}" for n in (*range(1, 12), 14, 17))]


@pytest.mark.parametrize("identity", _DESCRIBED)
def test_every_analysis_says_in_one_sentence_how_to_read_it(identity: str) -> None:
    read = find(identity).read
    assert len(read) > 40
    assert read.endswith(".")
    assert ". " not in read


@pytest.mark.parametrize("analysis", all_analyses(), ids=lambda a: a.id)
def test_each_analysis_has_tests_that_name_it(analysis: Analysis) -> None:
    assert find_tests(analysis.id)
