"""Work of accelerators of other vendors in PyTorch's traces: what is device time, whose it is, and what is said."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp_analyze.classification.classify import by_name
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model.limits import override_limits

_FIXTURES = Path(__file__).parents[3] / "fixtures" / "torch_profiler"
_MTIA = _FIXTURES / "mtia_synthetic" / "trace.json"
_NPU = _FIXTURES / "npu_synthetic" / "trace_view.json"


def _work(path: Path) -> list[tuple[str, str, int, int | None, int, str]]:
    """Each device activity: name, kind, device, stream, duration, attribution."""
    spans = convert([path], Options()).frame("spans").filter(pl.col("level") == "kernel").sort("start_ns")
    return spans.select(
        pl.col("name", "kind").cast(pl.String),
        "device_id",
        "stream_id",
        "duration_ns",
        pl.col("attribution").cast(pl.String),
    ).rows()


def test_events_of_an_mtia_are_device_work_of_its_streams_tied_to_their_calls() -> None:
    of_a_step = [
        ("dma_request", "memcpy", 3, 101, 40_000, "layer"),
        ("merge", "kernel", 3, 101, 500_000, "layer"),
        ("pe_exe", "kernel", 3, 101, 90_000, "orphan_no_correlation"),
    ]
    assert _work(_MTIA) == of_a_step * 2


def test_tasks_of_an_npu_belong_to_the_operators_that_flows_come_from() -> None:
    assert _work(_NPU) == [
        ("MEMCPY_ASYNC", "memcpy", 0, 2, 20_000, "layer"),
        ("aclnnAddmm_MatMulV2", "kernel", 0, 2, 300_000, "layer"),
        ("hcom_allReduce__868_0_1", "kernel", 0, None, 190_000, "layer"),
        ("TransData_0", "kernel", 0, 2, 30_000, "orphan_no_correlation"),
    ]


def test_the_issuer_of_a_task_is_the_operator_that_starts_with_the_flow() -> None:
    spans = convert([_NPU], Options()).frame("spans")
    names = dict(spans.select("span_id", pl.col("name").cast(pl.String)).rows())
    parents = spans.filter(pl.col("level") == "kernel").sort("start_ns")["parent_id"]
    assert [names.get(parent) for parent in parents] == ["aten::copy_", "aten::addmm", "c10d::allreduce_", None]


def test_calls_of_the_npu_s_driver_are_of_the_program_s_thread() -> None:
    spans = convert([_NPU], Options()).frame("spans")
    call = spans.filter(pl.col("name").cast(pl.String).str.contains("aclrtSynchronizeStream")).row(0, named=True)
    assert (call["level"], call["kind"], call["process_id"], call["thread_id"]) == ("runtime", "call", 100, 100)


def test_a_step_of_torch_npu_is_a_step() -> None:
    spans = convert([_NPU], Options()).frame("spans")
    assert spans.filter(pl.col("kind") == "step")["duration_ns"].to_list() == [1_000_000]


def test_the_ledger_says_what_was_taken_for_device_work() -> None:
    ledger = convert([_MTIA], Options()).frame("ledger").filter(pl.col("kind") == "accelerator_read")
    of_mtia = "of the process 'MTIA 3', which by its name is a device's, of a vendor that XSP does not know"
    assert set(ledger.select("detail", "count").rows()) == {
        (f"events {of_mtia}, were read as device work", 6),
        (f"waits and marks {of_mtia}, were read as no device time", 6),
    }


@pytest.mark.parametrize("path", [_MTIA, _NPU], ids=["mtia", "npu"])
@pytest.mark.parametrize("piece_rows", [4, 1 << 20])
@pytest.mark.parametrize("limit", ["compiled_min_bytes", "streamed_min_bytes"])
def test_every_scanner_gives_the_same(path: Path, limit: str, piece_rows: int) -> None:
    with override_limits(compiled_min_bytes=1 << 62, streamed_min_bytes=1 << 62):
        plain = convert([path], Options())
    sizes = {"compiled_min_bytes": 1 << 62, "streamed_min_bytes": 1 << 62, limit: 0}
    with override_limits(**sizes, trace_piece_rows=piece_rows):
        other = convert([path], Options())
    for table in ("spans", "copies", "kernels", "devices"):
        assert other.frame(table).equals(plain.frame(table)), table
    assert ledger_counts(other) == ledger_counts(plain)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("hcom_allReduce__868_0_1", "all_reduce"),
        ("hcom_allGather__12_3_1", "all_gather"),
        ("hcom_reduceScatter__12_3_1", "reduce_scatter"),
        ("oneccl_alltoall_kernel", "all_to_all"),
    ],
)
def test_collectives_of_other_vendors_are_communication(name: str, collective: str) -> None:
    is_a = by_name(name)
    assert is_a is not None
    assert (is_a.kernel_class, is_a.collective) == ("communication", collective)


def test_an_unknown_category_of_the_host_stays_unread(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 1_000, 50_000)
    kineto.span("invented", "x", 2_000, 1_000)
    kineto.raw(ph="M", name="process_name", pid=100, tid=0, args={"name": "device_of_mine.py"})
    kineto.raw(ph="M", name="process_labels", pid=100, tid=0, args={"labels": "CPU"})
    trace = converted(kineto, tmp_path)
    assert ledger_counts(trace)["unknown_category"] == 1
    assert trace.frame("spans").filter(pl.col("level") == "kernel").is_empty()
