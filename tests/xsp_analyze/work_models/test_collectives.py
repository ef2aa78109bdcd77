"""Collectives whose shapes tell what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.modelled_call import work
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_rank_of_an_unknown_group_sends_its_message_at_least_once() -> None:
    assert sent("vllm::all_reduce", [[100], _NONE], ["float", ""]) == (400, 400, 400)
    custom = sent("_C_custom_ar::all_reduce", [_NONE, [100], [100], _NONE, _NONE], ["Scalar", "float", "float", "", ""])
    assert custom == (400, 400, 400)
    assert sent("vllm::all_gather", [[100], _NONE, _NONE, _NONE], ["float", "", "Scalar", ""], ["", "-1", "4", ""]) == (
        400, 1600, 1200,
    )  # fmt: skip


def test_an_all_reduce_inside_another_tells_what_it_does_itself(tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator("vllm::all_reduce", 0, 90_000, shapes=[[100], _NONE], dtypes=["float", ""])
    made.operator(
        "symm_mem::multimem_all_reduce_", 1_000, 40_000, shapes=[[100], _NONE, _NONE], dtypes=["float", "", ""]
    )
    made.launch("multimem_all_reduce_kernel", 2_000, 100_000, 5_000)
    made.operator("aten::copy_", 50_000, 30_000, shapes=[[100], [100]], dtypes=["float", "float"])
    made.launch("copy", 51_000, 110_000, 3_000)
    table = run(find("B11"), StepView.of(convert([made.write(tmp_path / "t.json")], Options()), "all")).table
    assert table.select("operator", "device_sum_ns", "modelled_share").rows()[:2] == [
        ("symm_mem::multimem_all_reduce_", 5_000, 1.0),
        ("aten::copy_", 3_000, 1.0),
    ]
