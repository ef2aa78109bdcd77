"""Aligned clocks as a user asks for them: from Python, from the command line, and not of what is converted already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import xsp
from tests.helpers.rank_traces import rank_trace, write_ranks
from xsp.opening import load
from xsp.reading import reading_of
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from pathlib import Path


def _files(folder: Path) -> list[Path]:
    return write_ranks(folder, [rank_trace(4, 3, steps=3) for _ in range(2)])


def test_python_and_the_reader_agree_on_the_option(tmp_path: Path) -> None:
    files = _files(tmp_path)
    kinds = {
        align: set(xsp.open(*files, align_clocks=align, cache=False).trace.frame("ledger")["kind"].to_list())
        for align in (False, True)
    }
    assert ("clocks_aligned" in kinds[True], "clock_skew" in kinds[True]) == (True, False)
    assert ("clocks_aligned" in kinds[False], "clock_skew" in kinds[False]) == (False, True)


def test_a_bundle_is_not_aligned_again(tmp_path: Path) -> None:
    trace = load([str(path) for path in _files(tmp_path)], reading_of({}), lambda _: None)
    bundle.write(trace, tmp_path / "job.xsp")
    with pytest.raises(XspError, match="--align-clocks concerns source files"):
        load([str(tmp_path / "job.xsp")], reading_of({"align_clocks": True}), lambda _: None)
