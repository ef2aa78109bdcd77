"""Real files of Nsight Compute, each number worked out by hand from the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

# The files were taken with --metrics dram__bytes_op_read.sum, dram__bytes_op_write.sum, gpu__time_duration.sum and nine
# more, none of which counts floating-point work: flops, and with them intensity and bound, are unknown by the file.
# file: (read bytes, written bytes, duration ns, occupancy, L2 hit rate, grid, block)
_RTX5070 = {
    "gemm_naive": (54_207_744, 26_601_216, 9_589_248, 0.6661, 1.0039, (64, 64, 1), (32, 32, 1)),
    "gemm_register_blocked": (42_139_648, 2_289_664, 2_970_912, 0.6270, 0.9508, (32, 32, 1), (16, 16, 1)),
    "gemm_tiled": (53_261_312, 3_377_920, 10_195_552, 0.6665, 0.8750, (64, 64, 1), (32, 32, 1)),
    "gemm_vectorized": (38_170_624, 8_163_840, 2_103_104, 0.6228, 0.9533, (32, 32, 1), (16, 16, 1)),
    "saxpy": (134_221_568, 43_631_104, 292_928, 0.8382, 0.3326, (65_536, 1, 1), (256, 1, 1)),
    "transpose_naive": (19_001_600, 4_399_616, 163_072, 0.4124, 0.8612, (64, 64, 1), (32, 32, 1)),
    "transpose_tiled": (17_056_256, 13_000_960, 85_824, 0.6446, 0.0031, (64, 64, 1), (32, 32, 1)),
}


def _converted(path: Path) -> Trace:
    if not path.exists():
        pytest.skip(f"{path.name} is not among the real files")
    return convert([path], Options())


def _metrics(trace: Trace, span: int = 0) -> dict[str, float]:
    rows = trace.frame("metrics").filter(pl.col("span_id") == span)
    return dict(rows.select(pl.col("metric").cast(pl.String), "value").iter_rows())


@pytest.mark.real
@pytest.mark.parametrize("name", _RTX5070)
def test_a_details_log_of_windows(name: str, real_dir: Path) -> None:
    trace = _converted(real_dir / "ncu" / f"{name}.rtx5070.details.csv")
    read, written, duration, occupancy, hits, grid, block = _RTX5070[name]
    values = _metrics(trace)
    assert (values["dram_read_bytes"], values["dram_write_bytes"]) == (read, written)
    assert values["achieved_occupancy"] == pytest.approx(occupancy, abs=1e-12)
    assert values["l2_hit_rate"] == pytest.approx(hits, abs=1e-12)
    assert not [metric for metric in values if metric.startswith("flop")]
    (span,) = trace.frame("spans").to_dicts()
    assert (span["duration_ns"], span["start_ns"]) == (duration, 0)
    assert f"{name}_kernel" in span["name"]
    launch = trace.frame("kernels").row(0, named=True)
    assert tuple(launch[f"grid_{axis}"] for axis in "xyz") == grid
    assert tuple(launch[f"block_{axis}"] for axis in "xyz") == block


@pytest.mark.real
def test_bytes_and_time_of_the_file_give_the_bandwidth_one_expects(real_dir: Path) -> None:
    # saxpy: 177,852,672 bytes in 292,928 ns are 607.15 GB/s, 90 % of the card's 672: it is bound by memory.
    values = _metrics(_converted(real_dir / "ncu" / "saxpy.rtx5070.details.csv"))
    moved = values["dram_read_bytes"] + values["dram_write_bytes"]
    assert moved == 177_852_672
    assert moved / values["replayed_duration_ns"] == pytest.approx(607.155, abs=0.001)
    # gemm_naive: 80,808,960 bytes in 9,589,248 ns are 8.43 GB/s, and the multiprocessors are busy to 97.32 %.
    values = _metrics(_converted(real_dir / "ncu" / "gemm_naive.rtx5070.details.csv"))
    assert (values["dram_read_bytes"] + values["dram_write_bytes"]) / values["replayed_duration_ns"] == pytest.approx(
        8.427, abs=0.001
    )
    assert values["compute_utilization"] == pytest.approx(0.9732)


@pytest.mark.real
def test_the_ledger_says_that_there_are_no_time_stamps(real_dir: Path) -> None:
    trace = _converted(real_dir / "ncu" / "saxpy.rtx5070.details.csv")
    ledger = {row["kind"]: row for row in trace.frame("ledger").to_dicts()}
    assert ledger["no_timestamps"]["severity"] == "info"
    assert ledger["peaks_unknown"]["count"] == 1, "the page does not name the device"
