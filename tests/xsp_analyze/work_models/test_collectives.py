"""Collectives whose shapes tell what is sent."""

from __future__ import annotations

from tests.helpers.modelled_call import work

_NONE: list[int] = []


def sent(
    name: str, shapes: list[list[int]], kinds: list[str], concrete: list[str] | None = None
) -> tuple[int | None, int | None, int | None] | None:
    """Bytes read, written and sent to others."""
    counted = work(name, shapes, kinds, concrete or [])
    return None if counted is None else (counted.read_bytes, counted.written_bytes, counted.bus_bytes)


def test_all_but_the_own_part_is_gather_or_scatter() -> None:
    # 4 ranks of 100 floats: three quarters of 1600 bytes.
    gathered = sent("c10d::_allgather_base_", [[400], [100], _NONE, _NONE, _NONE], ["float", "float", "", "", "Scalar"])
    assert gathered == (400, 1600, 1200)
    scattered = sent("c10d::_reduce_scatter_base_", [[100], [400], _NONE], ["float", "float", ""])
    assert scattered == (1600, 400, 1200)


def test_functional_collectives_say_how_many_ranks_there_are() -> None:
    shapes, kinds = [[100], _NONE, _NONE], ["float", "Scalar", ""]
    assert sent("_c10d_functional::all_gather_into_tensor", shapes, kinds, ["", "4", "0"]) == (400, 1600, 1200)
    assert sent("_c10d_functional::all_gather_into_tensor", shapes, kinds) is None
    shapes, kinds = [[400], _NONE, _NONE, _NONE], ["float", "", "Scalar", ""]
    assert sent("_c10d_functional::reduce_scatter_tensor", shapes, kinds, ["", "sum", "4", "0"]) == (1600, 400, 1200)


def test_an_exchange_is_told_by_its_parts() -> None:
    shapes, kinds = [[400], [400], _NONE, _NONE, _NONE, _NONE], ["float", "float", "", "", "", "Scalar"]
    concrete = ["", "", "", "[100, 100, 100, 100]", "[100, 100, 100, 100]", "True"]
    assert sent("c10d::alltoall_base_", shapes, kinds, concrete) == (1600, 1600, 1200)
    assert sent("c10d::alltoall_base_", shapes, kinds, ["", "", "", "[]", "[]", "True"]) is None
    assert sent("c10d::alltoall_base_", shapes, kinds) is None
