"""The element type of tensors in lists, by the names of the kernels that an operator launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.frames.operators.operator_calls import recorded_kinds
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy"


@pytest.mark.parametrize(
    ("kernels", "precision"),
    [
        ([f"{CAT}<float, unsigned int, 2, 128, 1>(float*)"], "fp32"),
        ([f"{CAT}<long, unsigned int, 2, 128, 1>(long*)"], "int64"),
        ([f"{CAT}_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 1, 128, 1>(int)"], "16 bit"),
        (
            ["_ZN2at6native43_GLOBAL__N__1_8_Shape_cu_219CatArrayBatchedCopyINS1_10OpaqueTypeILj4EEEjLi4ELi64E"],
            "32 bit",
        ),
        (["void copy<c10::BFloat16>(int)", "void copy<c10::BFloat16>(int)", "Memcpy"], "bf16"),
        (["void copy<c10::BFloat16>(int)", "void copy<float>(int)"], None),
        (["untold"], None),
        ([], None),
    ],
)
def test_kernels_of_one_type_tell_what_a_list_holds(kernels: list[str], precision: str | None, tmp_path: Path) -> None:
    made = KinetoTrace()
    lists: dict[str, Any] = {"shapes": [[[3, 2], [3, 3]], []], "dtypes": ["TensorList", "Scalar"]}
    made.operator("aten::concat", 0, 90_000, **lists)
    made.operator("aten::cat", 1_000, 80_000, **lists)
    for number, name in enumerate(kernels):
        made.launch(name, 10_000 + 6_000 * number, 200_000 + 6_000 * number, 1_000)
    made.operator("aten::relu", 95_000, 20_000, shapes=[[4]])
    made.launch("void relu<double>(int)", 96_000, 300_000, 1_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    kinds = recorded_kinds(trace).kinds
    assert dict(kinds.select("name", "kernel_precision").drop_nulls().rows()) == (
        {"aten::concat": precision, "aten::cat": precision} if precision else {}
    )
    assert "aten::relu" in kinds["name"]
