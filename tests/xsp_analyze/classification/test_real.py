"""Classes of the kernels of real files: next to nothing is other, and communication is all that says so."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.classification import label_of, precision_of
from xsp_analyze.classification.labels import MAX_LABEL
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.real

_UNREADABLE = {"session_xml.nvvp"}  # names a program and holds no trace
_MAX_OTHER = 0.03
_ONE_LONG_KERNEL = "mistic.a100.ncu2021_2.ncu-rep"  # 63 % of all device time: distances of points, a reduction
_NAMELESS = "mtia_inference.json.gz"  # what its accelerator ran has no name but `pe_exe` and the like
_NOT_OF_MODELS = {
    _NAMELESS: 0.95,
    "cloverleaf.a100.nsys2024_5.sqlite": 0.9,  # hydrodynamics: stencils are of no class
    "mojo.gtx1660ti.ncu2022_4.ncu-rep": 1.0,  # 6 us of a tutorial's kernels: `warmingUp`, `mathKernel1`
    "trace.gtx950.csv": 0.5,  # n bodies
    "trace_async.gtx950.csv": 0.5,
}
"""Files whose kernels are no model's, and the share of other that is right for them at most."""


@pytest.fixture(scope="module")
def work(real_dir: Path) -> Mapping[str, pl.DataFrame]:
    """Of each file with device work its activities, name and class beside the time."""
    folders = ("kineto", "kineto/graph_pairs", "kineto/dlrm_8rank.v100", "nsys", "ncu", "nvprof", "rocprof", "xplane")
    paths = (path for folder in folders for path in sorted((real_dir / folder).iterdir()))
    columns = ("kind", "name", "kernel_class", "collective", "duration_ns")
    frames = {
        path.name: StepView.of(convert([path], Options()), "all").of_trace.all_activities.select(columns)
        for path in paths
        if path.is_file() and path.name not in _UNREADABLE
    }
    return {name: rows for name, rows in frames.items() if rows["duration_ns"].sum()}


def _other(rows: pl.DataFrame) -> int:
    return int(rows.filter(pl.col("kernel_class") == "other")["duration_ns"].sum())


def _share(files: Mapping[str, pl.DataFrame]) -> float:
    return sum(map(_other, files.values())) / sum(int(rows["duration_ns"].sum()) for rows in files.values())


def test_less_than_three_percent_of_all_device_time_is_other(work: Mapping[str, pl.DataFrame]) -> None:
    assert len(work) >= 40
    named = {name: rows for name, rows in work.items() if name != _NAMELESS}
    assert _share(named) < _MAX_OTHER
    assert _share({name: rows for name, rows in named.items() if name != _ONE_LONG_KERNEL}) < _MAX_OTHER


def test_less_than_three_percent_of_each_model_s_device_time_is_other(work: Mapping[str, pl.DataFrame]) -> None:
    shares = {name: _share({name: rows}) for name, rows in work.items()}
    over = {name: share for name, share in shares.items() if share > _NOT_OF_MODELS.get(name, _MAX_OTHER)}
    assert not over


def test_every_kernel_has_a_label_that_fits_and_few_share_one(work: Mapping[str, pl.DataFrame]) -> None:
    kernels = pl.concat([rows.filter(kind="kernel").select(pl.col("name").cast(pl.String)) for rows in work.values()])
    names = kernels["name"].unique().to_list()
    labels = {name: label_of(name) for name in names}
    assert all(0 < len(label) <= MAX_LABEL for label in labels.values())
    assert len(set(labels.values())) > len(names) / 2
    gemm = [name for name, label in labels.items() if label.startswith("GEMM") and "Cijk" in name]
    assert gemm
    assert all(precision_of(name) == "bf16" or "_SB_" in name for name in gemm)


@pytest.mark.parametrize("name", ["nccl_training", "diff_control", "resnet18_train_ddp.mi300x", "bert_small.h100"])
def test_communication_is_what_the_file_s_own_text_says(real_dir: Path, name: str) -> None:
    """Against a reader of two lines: device events with nccl in their names, which in these files is all there is."""
    path = real_dir / "kineto" / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    expected = sum(
        int(Decimal(event["dur"]) * 1000)
        for event in events
        if str(event.get("cat")).lower() == "kernel" and "nccl" in event["name"].lower()
    )
    table = run(find("B17"), StepView.of(convert([path], Options()), "all")).table
    assert table.filter(kernel_class="communication")["duration_ns"].sum() == expected


_BY_OPERATOR = (
    ("convolution", r"convolution"),
    ("normalisation", r"batch_norm|layer_norm"),
    ("matrix product", r"^aten::(?:add|b)?mm$"),
    ("pooling", r"max_pool"),
    ("softmax", r"softmax"),
)


@pytest.mark.parametrize(
    "name", ["resnet50_train_torch19.v100", "resnet18_train_ddp.mi300x", "bert_small.h100", "nccl_training"]
)
def test_classes_are_those_of_the_operators_that_the_file_names(real_dir: Path, name: str) -> None:
    """Against a reader that ties each kernel to the operator of the same `External id`, and looks at its name."""
    path = real_dir / "kineto" / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    complete = [event for event in events if event.get("ph") == "X"]
    operators = {_external(e): e["name"] for e in complete if e["cat"].lower() in {"cpu_op", "operator"}}
    expected = dict.fromkeys((label for label, _ in _BY_OPERATOR), 0)
    for event in complete:
        operator = operators.get(_external(event)) if event["cat"].lower() == "kernel" else None
        if operator and "nccl" not in event["name"].lower():
            label = next((label for label, pattern in _BY_OPERATOR if re.search(pattern, operator)), None)
            if label:
                expected[label] += int(Decimal(event["dur"]) * 1000)
    table = run(find("B17"), StepView.of(convert([path], Options()), "all")).table
    shown = dict(table.select("kernel_class", "duration_ns").iter_rows())
    assert {label: shown.get(label, 0) for label in expected} == expected


def _external(event: Mapping[str, Any]) -> int | None:
    args = event.get("args", {})
    number = args.get("External id", args.get("external id"))
    return None if number is None else int(number)
