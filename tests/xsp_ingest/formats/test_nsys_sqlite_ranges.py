"""What NVTX ranges are taken for, by default and as the user says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth_nsys import NsightFile
from xsp_ingest.convert import convert, excerpt
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Options
from xsp_ingest.link.range_rules import NVTX, classify, is_backward, plain_name
from xsp_model import LedgerKind, Severity

if TYPE_CHECKING:
    from pathlib import Path


def _level_and_kind(text: str, domain: str | None = None, options: Options | None = None) -> tuple[str, str]:
    names = pl.DataFrame({"text": [text], "domain": [domain]}, schema={"text": pl.String, "domain": pl.String})
    names = names.with_columns(plain_name(pl.col("text")).alias("name"))
    names = names.with_columns((pl.col("name") != pl.col("text")).alias("numbered"))
    options = options or Options()
    user = {"model_ranges": options.model_ranges, "layer_ranges": options.layer_ranges}
    level, kind = classify(names, NVTX, **user).row(0)
    return level, kind


@pytest.mark.parametrize(
    ("text", "domain", "expected"),
    [
        # TensorRT
        ("ExecutionContext::enqueueV3", "TensorRT", ("model", "step")),
        ("ExecutionContext::executeV2", "TensorRT", ("model", "step")),
        ("ExecutionContext::enqueue", "TensorRT", ("model", "step")),
        ("ExecutionContext::setOptimizationProfileAsync", "TensorRT", ("library", "range")),
        ("Conv_0 + Relu_1", "TensorRT", ("layer", "range")),
        ("Reformatting CopyNode for Input Tensor 0 to Conv_0", "TensorRT", ("layer", "range")),
        # emit_nvtx
        ("aten::conv2d, seq = 5, op_id = 9", None, ("operator", "operator")),
        ("aten::conv2d", None, ("operator", "operator")),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 3", None, ("operator", "operator")),
        ("torch::autograd::AccumulateGrad, op_id = 3", None, ("operator", "operator")),
        ("ThnnConv2DBackward, stashed seq = 4", None, ("operator", "operator")),
        ("FlashAttnFunc, seq = 47575, op_id = 999172", None, ("operator", "operator")),
        ("flash_attn::_flash_attn_forward", None, ("operator", "operator")),
        ("Optimizer.step#SGD.step, op_id = 3", None, ("application", "range")),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 3", None, ("application", "range")),
        ("nccl:all_reduce, op_id = 3", None, ("library", "range")),
        ("ncclAllReduce", "NCCL", ("library", "range")),
        ("MPI_Send", "MPI", ("library", "range")),
        # Megatron and hand-written loops
        ("iteration12", None, ("model", "step")),
        ("iteration 12", None, ("model", "step")),
        ("step_3", None, ("model", "step")),
        ("ProfilerStep#7", None, ("model", "step")),
        ("train_step", None, ("model", "step")),
        ("Training step 5", None, ("model", "step")),
        ("batch 4/10", None, ("model", "step")),
        ("STEP: 4", None, ("model", "step")),
        ("forward_step", None, ("layer", "range")),
        ("optimizer_step", None, ("layer", "range")),
        ("nn.Module: Linear_3", None, ("layer", "module")),
        ("ParallelTransformerLayer.forward", None, ("layer", "range")),
        ("self_attention", None, ("layer", "range")),
        ("batch_norm", None, ("layer", "range")),
        ("", None, ("layer", "range")),
    ],
)
def test_defaults(text: str, domain: str | None, expected: tuple[str, str]) -> None:
    assert _level_and_kind(text, domain) == expected


def test_the_users_model_ranges_replace_the_default_ones() -> None:
    options = Options(model_ranges=["^epoch"])
    assert _level_and_kind("epoch 3", options=options) == ("model", "step")
    assert _level_and_kind("step 3", options=options) == ("layer", "range")
    assert _level_and_kind("aten::mm", options=options) == ("operator", "operator")


def test_where_the_user_names_the_layers_other_ranges_are_none() -> None:
    options = Options(layer_ranges=["Layer", "aten::mm"])
    assert _level_and_kind("ParallelTransformerLayer.forward", options=options) == ("layer", "range")
    assert _level_and_kind("aten::mm, op_id = 3", options=options) == ("layer", "range")
    assert _level_and_kind("loss", options=options) == ("application", "range")
    assert _level_and_kind("step 3", options=options) == ("model", "step")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::mm, op_id = 990347", "aten::mm"),
        ("aten::mm, seq = 5", "aten::mm"),
        ("aten::mm, seq = 5, op_id = 7, sizes = [[1, 2], []], input_op_ids = [(5,0)]", "aten::mm"),
        ("MulBackward0, stashed seq = 4", "MulBackward0"),
        ("mine, seq = 5 of 7", "mine, seq = 5 of 7"),
        ("step 3", "step 3"),
    ],
)
def test_numbers_of_single_calls_are_stripped(text: str, name: str) -> None:
    assert pl.select(plain_name(pl.lit(text))).item() == name


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        ("MmBackward0", True),
        ("FlashAttnFuncBackward", True),
        ("torch::autograd::AccumulateGrad", True),
        ("autograd::engine::evaluate_function: MmBackward0", True),
        ("aten::mm", False),
        ("aten::convolution_backward", False),
    ],
)
def test_backward_nodes_are_told_by_name(name: str, *, backward: bool) -> None:
    assert pl.select(is_backward(pl.lit(name))).item() == backward


def test_a_module_that_is_called_twice_is_one_layer_and_a_container_with_work_is_one_too(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(0, 1_000, "step")
    file.range(100, 900, "nn.Module: Block_0")
    for start in (200, 400):
        file.range(start, start + 100, "nn.Module: ReLU_0")
        file.launch((start + 10, start + 20), (start + 1_000, start + 1_050), "relu")
    file.launch((600, 610), (2_000, 2_030), "add")
    layers = convert([file.write(tmp_path / "trace.sqlite")], Options()).frame("layers").drop_nulls("layer_index")
    named = layers.select("layer_index", "layer_name", "layer_type", "source").rows()
    assert sorted(set(named)) == [(0, "ReLU_0", "ReLU", "module"), (1, "Block_0", "Block", "module")]
    assert layers.height == 3


def _renamed(path: Path, *tables: tuple[str, str]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for table, name in tables:
            connection.execute(f'ALTER TABLE "{table}" RENAME TO "{name}"')
        connection.commit()
    return path


@pytest.mark.parametrize("version", ["V2", "V3", "V10"])
def test_later_versions_of_tables_are_read_as_the_tables(version: str, tmp_path: Path) -> None:
    file = NsightFile()
    file.range(10, 90, "block")
    file.launch((20, 30), (40, 50), "sgemm")
    path = file.write(tmp_path / "made.sqlite")
    plain = convert([path], Options())
    _renamed(path, *((table, f"{table}_{version}") for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")))
    later = convert([path], Options())
    assert later.frame("spans").equals(plain.frame("spans"))
    assert later.frame("ledger").equals(plain.frame("ledger"))
    assert excerpt([path], {"calls": ["name"]}) is None


def test_a_version_that_stands_beside_the_table_is_warned_of(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(10, 90, "block")
    path = file.write(tmp_path / "made.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE NVTX_EVENTS_V3 AS SELECT * FROM NVTX_EVENTS")
        connection.execute("CREATE TABLE NOBODY_KNOWS_V3 AS SELECT * FROM NVTX_EVENTS")
        connection.commit()
    raw = NSYS_SQLITE.read(path, Options())
    assert [(f.detail, f.severity, f.count) for f in raw.findings if f.kind == LedgerKind.TABLE_NOT_READ] == [
        ("Rows of NOBODY_KNOWS_V3 were not read", Severity.WARNING, 1),
        ("Rows of NVTX_EVENTS_V3 were not read", Severity.WARNING, 1),
    ]
    assert raw.tables["ranges"].height == 1


def test_ranges_whose_registered_string_is_not_there_are_counted(tmp_path: Path) -> None:
    file = NsightFile()
    file.range(10, 20, "[0x7f24c0de]")
    file.range(30, 40, "block", registered=True)
    file.range(50, 60, "0x10 blocks")
    file.range(70, 80, "gone", registered=True)
    path = file.write(tmp_path / "made.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM StringIds WHERE value = 'gone'")
        connection.commit()
    raw = NSYS_SQLITE.read(path, Options())
    names = raw.tables["spans"]["name"].cast(pl.String).to_list()
    assert names == ["[0x7f24c0de]", "block", "0x10 blocks", "[unnamed range]"]
    assert [f.count for f in raw.findings if f.kind == LedgerKind.RANGE_WITHOUT_NAME] == [2]
