"""Rows of tables by indices, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

from tests.helpers.paper_calls import bytes_of, tensor, work
from xsp_analyze.work_models.call import ModelledWork

_NO = False
_YES = True
_TABLE = tensor("bf16", 50_000, 64)
_INDEX = tensor("int64", 2, 10)


def test_the_rows_that_are_named_are_read_not_the_table() -> None:
    assert bytes_of("aten::embedding", _TABLE, _INDEX, -1, _NO, _NO) == (20 * 64 * 2 + 160, 20 * 64 * 2)


def test_no_more_is_read_than_the_table() -> None:
    assert bytes_of("aten::embedding", tensor("bf16", 3, 64), _INDEX) == (3 * 64 * 2 + 160, 20 * 64 * 2)


def test_bags_are_added_up_to_one_row() -> None:
    # 20 rows to 4 bags: 5 offsets, of which the last ends the last bag.
    bags = tensor("int64", 5)
    read = 20 * 64 * 2 + 160 + 40
    inputs = (_TABLE, tensor("int64", 20), bags, False, 0, False, None)
    assert work("aten::embedding_bag", *inputs, _NO) == ModelledWork(0, 20 * 64, read, 5 * 64 * 2)
    assert bytes_of("aten::embedding_bag", *inputs, _YES) == (read, 4 * 64 * 2)


def test_the_gradient_of_a_table_is_written_in_full() -> None:
    gradient = tensor("bf16", 2, 10, 64)
    inputs = (gradient, _INDEX, 50_000, -1, False)
    assert bytes_of("aten::embedding_dense_backward", *inputs) == (20 * 64 * 2 + 160, 50_000 * 64 * 2)
    assert work("aten::embedding_backward", *inputs, _YES) is None  # a sparse one
    assert work("aten::embedding_dense_backward", gradient, _INDEX, None, -1, _NO) is None


def test_an_index_along_a_dimension_names_slices() -> None:
    table = tensor("fp32", 8, 6, 5)
    assert bytes_of("aten::index_select", table, 1, tensor("int64", 3)) == (4 * 120 + 24, 4 * 120)
    assert bytes_of("aten::gather", table, 1, tensor("int64", 8, 2, 5)) == (4 * 80 + 8 * 80, 4 * 80)
    assert work("aten::index_select", table, None, tensor("int64", 3)) is None
    assert bytes_of("aten::index_select", tensor("fp32", 8), None, tensor("int64", 3)) == (12 + 24, 12)


def test_in_place_the_elements_that_are_named_are_written() -> None:
    table, index, source = tensor("fp32", 8, 6), tensor("int64", 3), tensor("fp32", 3, 6)
    assert bytes_of("aten::index_copy_", table, 0, index, source) == (24 + 72, 72)
    assert bytes_of("aten::index_copy_", table, None, index, source) == (24 + 72, 72)
    assert bytes_of("aten::index_add_", table, 0, index, source, 1) == (24 + 72 + 72, 72)
    assert bytes_of("aten::index_copy", table, 0, index, source) == (4 * 48 + 24 + 72, 4 * 48)
    assert bytes_of("aten::index_put_", table, None, source, _NO) == (72, 72)
    assert bytes_of("aten::index_put_", table, None, source, _YES) == (144, 72)


def test_of_a_source_that_is_larger_than_the_index_only_that_part_is_read() -> None:
    inputs = (tensor("fp32", 8, 6), 1, tensor("int64", 8, 2), tensor("fp32", 8, 6))
    assert bytes_of("aten::scatter_", *inputs) == (8 * 16 + 4 * 16, 4 * 16)


def test_indices_in_a_list_are_not_recorded() -> None:
    assert work("aten::embedding", _TABLE) is None
