"""nvprof's tables of metrics: averages per kernel name, single launches, values with their units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.ncu_text import count_of, metrics
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.nvprof_metrics import NVPROF_METRICS
from xsp_ingest.formats.nvprof_metrics.rows import value_of
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

_HEAD = '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
_DEVICE = '"GeForce GTX 950 (1)","relu(float*)",3'


def _read(text: str, folder: Path) -> RawTrace:
    path = folder / "metrics.csv"
    path.write_text(text, encoding="utf-8")
    assert NVPROF_METRICS.sniff(Probe(path))
    return NVPROF_METRICS.read(path, Options())


def test_a_kernel_name_is_one_row_with_the_averages(tmp_path: Path) -> None:
    raw = _read(
        "==42== NVPROF is profiling process 42, command: ./secret\n==42== Metric result:\n"
        + _HEAD
        + f'{_DEVICE},"flop_count_sp","FLOPs",10,30,20\n{_DEVICE},"dram_write_transactions","x",1,3,2\n'
        + f'{_DEVICE},"achieved_occupancy","x",0.1,0.3,0.25\n',
        tmp_path,
    )
    assert metrics(raw) == {
        "flop_count_sp": 20,
        "dram_write_bytes": 64,
        "dram_write_transactions": 2,
        "achieved_occupancy": 0.25,
        "invocations": 3,
    }
    (span,) = raw.tables["spans"].to_dicts()
    assert (span["name"], span["process_id"], span["device_id"]) == ("relu(float*)", 42, 1)
    assert span["duration_ns"] is None
    assert raw.tables["devices"]["name"].to_list() == ["GeForce GTX 950"]
    assert count_of(raw, "averaged_invocations") == 1
    assert "secret" not in str([t.to_dicts() for t in raw.tables.values()])


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("78.25%", 0.7825, "1"),
        ("4.000000GB/s", 4 * 2**30, "byte/s"),
        ("1.500000MB/s", 1.5 * 2**20, "byte/s"),
        ("0.000000B/s", 0, "byte/s"),
        ("Low (1)", 0.1, "1"),
        ("Idle (0)", 0, "1"),
        ("Max (10)", 1, "1"),
        ("6430000", 6_430_000, "1"),
        ("1.5e+03", 1500, "1"),
    ],
)
def test_values_carry_their_units(text: str, value: float, unit: str) -> None:
    parsed = value_of(text)
    assert parsed is not None
    assert parsed[0] == pytest.approx(value)
    assert parsed[1] == unit


def test_single_launches_have_their_context_and_stream(tmp_path: Path) -> None:
    raw = _read(
        '"Device","Context","Stream","Kernel","Correlation_ID","achieved_occupancy","Device Memory Read Transactions"\n'
        ',,,,,,\n"Tesla K40c (0)","1","7","gemm",12,0.5,10\n"Tesla K40c (0)","1","8","gemm",13,0.75,20\n',
        tmp_path,
    )
    assert [metrics(raw, n)["dram_read_bytes"] for n in (0, 1)] == [320, 640]
    assert raw.tables["spans"]["stream_id"].to_list() == [7, 8]
    assert "invocations" not in metrics(raw)


def test_a_row_that_is_cut_off_is_refused_and_what_a_program_prints_is_not(tmp_path: Path) -> None:
    row = f'{_DEVICE},"flop_count_sp","FLOPs",10,30,20\n'
    assert metrics(_read(_HEAD + row + "all done, thanks\n", tmp_path))["flop_count_sp"] == 20
    for lost in (8, 20, 40):
        with pytest.raises(XspError, match="cut off"):
            _read(_HEAD + row + row[:-lost], tmp_path)


def test_a_table_of_copies_over_time_is_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text('"Start","Duration","Size","Throughput","Device","Context","Stream","Name"\nms,ms,MB,GB/s,,,,\n')
    assert not NVPROF_METRICS.sniff(Probe(path))


@pytest.mark.real
def test_a_real_summary(real_dir: Path) -> None:
    path = real_dir / "nvprof" / "metrics_10000.gtx950.csv"
    assert [i.name for i in claimants_of(Probe(path), all_ingesters())] == ["nvprof_metrics"]
    trace = convert([path], Options())
    rows = trace.frame("metrics").with_columns(pl.col(pl.Categorical).cast(pl.String))
    metrics = {row["metric"]: (row["value"], row["unit"], row["source"]) for row in rows.to_dicts()}
    # flop_count_sp 6,430,000 = 3,240,000 adds + 50,000 multiplies + 2 * 1,570,000 multiply-adds
    assert metrics["flop_count_sp"] == (6_430_000, "flop", "nvprof")
    assert metrics["dram_read_bytes"] == (0, "byte", "nvprof, derived")
    assert metrics["dram_write_bytes"] == (218 * 32, "byte", "nvprof, derived")
    assert metrics["l2_bytes"] == ((2651 + 1256) * 32, "byte", "nvprof, derived")
    assert metrics["achieved_occupancy"] == (0.558199, "1", "nvprof")
    assert metrics["sm_efficiency"] == (pytest.approx(0.78709706), "1", "nvprof")
    assert metrics["ipc"] == (3.481798, "inst/cycle", "nvprof")
    assert metrics["sysmem_write_throughput"] == (pytest.approx(1e7, rel=1e-6), "byte/s", "nvprof")
    assert metrics["invocations"][0] == 2
    assert len(metrics) == 113 + 4, "113 metrics of the file, three byte counts derived from them, the invocations"
    (device,) = trace.frame("devices").to_dicts()
    assert (device["name"], device["dram_byte_per_s"]) == ("GeForce GTX 950", 105.6e9)


@pytest.mark.real
@pytest.mark.parametrize("name", ["nvprof_gputrace.gtx950.csv", "trace.gtx950.csv", "session_xml.nvvp"])
def test_other_files_of_nvprof_are_not_claimed(name: str, real_dir: Path) -> None:
    assert not NVPROF_METRICS.sniff(Probe(real_dir / "nvprof" / name))


_PRINTED = """\
layer 3 took 4 ms
==42== Profiling result:
==42== Metric result:
Invocations                               Metric Name                        Metric Description         Min         Max         Avg
Device "Tesla V100-PCIE-32GB (0)"
    Kernel: void gemm<float, int=32>(float*, int)
         18                             flop_count_sp   Floating Point Operations(Single Precision)      786432    50331648     7864320
         18                          dram_utilization                     Device Memory Utilization     Low (1)     Mid (5)     Low (2)
    Kernel: relu(float*)
          3                        achieved_occupancy                            Achieved Occupancy    0.100000    0.300000    0.250000
==42== Event result:
Invocations                                Event Name         Min         Max         Avg       Total
Device "Tesla V100-PCIE-32GB (0)"
    Kernel: relu(float*)
          3                              warps_launched           8          16          12          36
"""  # noqa: E501 (as nvprof prints it)


def test_a_table_that_was_printed_is_read_as_the_same_in_csv(tmp_path: Path) -> None:
    raw = _read(_PRINTED, tmp_path)
    spans = raw.tables["spans"].select("name", "process_id", "device_id").rows()
    assert spans == [("void gemm<float, int=32>(float*, int)", 42, 0), ("relu(float*)", 42, 0)]
    values = raw.tables["metrics"].select("row", pl.col("metric").cast(pl.String), "value").rows()
    assert set(values) >= {
        (0, "flop_count_sp", 7_864_320.0),
        (0, "dram_utilization", 0.2),
        (1, "achieved_occupancy", 0.25),
        (1, "warps_launched", 12.0),
        (1, "invocations", 3.0),
    }


def test_a_printed_table_that_ends_in_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="its last row is not complete"):
        _read(_PRINTED[: _PRINTED.index("0.300000")], tmp_path)
