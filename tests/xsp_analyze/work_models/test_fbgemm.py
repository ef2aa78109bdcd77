"""FBGEMM's lookups and jagged tensors, worked out by hand."""

from __future__ import annotations

from tests.helpers.modelled_call import work

_NONE: list[int] = []
_LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"


def lookup(values: list[str], kind: str = "float") -> tuple[int | None, int | None, int] | None:
    """3 tables; 8 bags each, 60 indices in all: as the profiler writes the first 14 arguments."""
    shapes = [[0], [9000], [0], [0, 0], [3], [3], [4], _NONE, _NONE, [4], _NONE, [60], [25], _NONE]
    kinds = [*[kind] * 4, "int", "long", "int", "Scalar", "Scalar", "long", "Scalar", "long", "long", "Scalar"]
    counted = work(_LOOKUP, shapes, kinds, values)
    return None if counted is None else (counted.read_bytes, counted.written_bytes, counted.vector_flop)


def values(total: str, width: str, mode: str) -> list[str]:
    concrete = [""] * 14
    concrete[7], concrete[8], concrete[13] = total, width, mode
    return concrete


def test_a_row_is_read_for_each_index_and_a_bag_written_for_each_table() -> None:
    # Rows of 16 in 4 bytes: 60 of them, 60 indices and 25 offsets of 8 bytes; 8 bags of 3 * 16.
    assert lookup(values("48", "16", "0")) == (60 * 16 * 4 + 8 * (60 + 25), 8 * 48 * 4, 60 * 16)


def test_without_pooling_every_row_is_written() -> None:
    assert lookup(values("48", "16", "2")) == (60 * 16 * 4 + 8 * (60 + 25), 60 * 16 * 4, 0)


def test_tables_of_several_widths_and_unknown_ones_are_not_known() -> None:
    assert lookup(values("40", "16", "0")) is None
    assert lookup([]) is None


def test_jagged_features_in_another_order_are_read_and_written_once() -> None:
    name, kinds = "fbgemm::permute_2D_sparse_data", ["int", "int", "int", "", "Scalar"]
    counted = work(name, [[96], [96, 4096], [33398], _NONE, _NONE], kinds)
    assert counted is not None
    moved = 4 * (96 * 4096 + 33398)
    assert (counted.read_bytes, counted.written_bytes) == (moved + 4 * 96, moved)
    assert work(name, [[90], [96, 4096], [33398], _NONE, _NONE], kinds) is None


def test_a_dense_tensor_is_written_whole() -> None:
    # 3 rows of at most 5 of width 2, of which 9 are there.
    shapes: list[object] = [[9, 2], [[4]], _NONE, _NONE]
    kinds = ["float", "TensorList", "", "Scalar"]
    counted = work("fbgemm::jagged_to_padded_dense", shapes, kinds, ["", "", "[5]", "0."])  # type: ignore[arg-type]
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (4 * 18, 4 * 3 * 5 * 2)
    assert work("fbgemm::jagged_to_padded_dense", shapes, kinds) is None  # type: ignore[arg-type]


def test_sums_and_buckets_go_once_over_their_inputs() -> None:
    counted = work("fbgemm::asynchronous_complete_cumsum", [[393216]], ["int"])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes, counted.vector_flop) == (4 * 393216, 4 * 393216, 393216)
    shapes, kinds = (
        [[20], [50], _NONE, _NONE, [4], _NONE, _NONE],
        ["int", "int", "Scalar", "Scalar", "int", "Scalar", ""],
    )
    buckets = work("fbgemm::block_bucketize_sparse_features", shapes, kinds)
    assert buckets is not None
    assert (buckets.read_bytes, buckets.written_bytes) == (4 * (20 + 50 + 4), 4 * (20 + 50))


def test_pooled_embeddings_are_moved_once_forward_and_backward() -> None:
    node = "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >"
    for name in ("fbgemm::permute_pooled_embs_auto_grad", node):
        counted = work(name, [[4096, 768]], ["float"])
        assert counted is not None
        assert (counted.read_bytes, counted.written_bytes) == (4 * 4096 * 768, 4 * 4096 * 768)
