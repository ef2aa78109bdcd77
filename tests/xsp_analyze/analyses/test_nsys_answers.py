"""Compares our reports with what `nsys stats` prints, cell by cell; and tests that the comparison sees differences."""

from __future__ import annotations

import polars as pl

from tests.helpers.nsys_answers import differences
from xsp_analyze.analyses.nsys.cuda import cuda_gpu_kern_sum

_HEADINGS = ["Time (%)", "Total Time (ns)", "Instances"]
_STATISTICS = ["Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)", "Name"]


def _kernels(*rows: tuple[float, int, str]) -> pl.DataFrame:
    names = [c.name for c in cuda_gpu_kern_sum.columns]
    values = [(share, total, 1, float(total), float(total), total, total, 0.0, name) for share, total, name in rows]
    return pl.DataFrame(values, schema=names, orient="row")


def _line(share: str, total: int, name: str) -> list[str]:
    return [share, str(total), "1", f"{total}.0", f"{total}.0", str(total), str(total), "0.0", name]


_THEIRS = [[*_HEADINGS, *_STATISTICS], _line("50.0", 10, "a"), _line("50.0", 10, "b")]


def test_equal_reports_have_no_differences() -> None:
    assert differences(cuda_gpu_kern_sum, _kernels((0.5, 10, "a"), (0.5, 10, "b")), _THEIRS) == []


def test_rows_that_tie_may_change_places() -> None:
    assert differences(cuda_gpu_kern_sum, _kernels((0.5, 10, "b"), (0.5, 10, "a")), _THEIRS) == []


def test_other_order_is_a_difference_where_rows_do_not_tie() -> None:
    theirs = [_THEIRS[0], _line("66.7", 20, "b"), _line("33.3", 10, "a")]
    assert len(differences(cuda_gpu_kern_sum, _kernels((1 / 3, 10, "a"), (2 / 3, 20, "b")), theirs)) == 2


def test_any_other_cell_is_a_difference() -> None:
    assert differences(cuda_gpu_kern_sum, _kernels((0.5, 10, "a"), (0.5, 11, "b")), _THEIRS)
    assert differences(cuda_gpu_kern_sum, _kernels((0.502, 10, "a"), (0.5, 10, "b")), _THEIRS)
    assert differences(cuda_gpu_kern_sum, _kernels((0.5, 10, "a")), _THEIRS)
    assert differences(cuda_gpu_kern_sum, _kernels(), [["Time"]])
