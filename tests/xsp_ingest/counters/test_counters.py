"""From tools' counters to the vocabulary: units, formulas, tensor parts, and names held against NVIDIA's lists."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_ingest.counters import ncu_names
from xsp_ingest.counters.formula import Formula, Measured, base_unit, canonical, same
from xsp_ingest.counters.ncu_names import CHIPS, NCU, PACKED, counter_of, flop_terms, ncu_table, unit_of
from xsp_ingest.formats.nvprof_metrics.rows import NVPROF
from xsp_model.vocabulary import COUNTERS, FLOP_COUNTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "name", "of_two"),
    [
        ("", "1", 2),
        ("%", "1", 0.02),
        ("byte", "byte", 2),
        ("Kbyte", "byte", 2e3),
        ("Gbyte", "byte", 2e9),
        ("KiB", "byte", 2048),
        ("nsecond", "ns", 2),
        ("ns", "ns", 2),
        ("usecond", "ns", 2e3),
        ("us", "ns", 2e3),
        ("\u00b5s", "ns", 2e3),
        ("msecond", "ns", 2e6),
        ("second", "ns", 2e9),
        ("hz", "Hz", 2),
        ("Ghz", "Hz", 2e9),
        ("cycle/nsecond", "Hz", 2e9),
        ("cycle/usecond", "Hz", 2e6),
        ("cycle/second", "Hz", 2),
        ("cycle", "cycle", 2),
        ("Mbyte/second", "byte/s", 2e6),
        ("Tbyte/s", "byte/s", 2e12),
        ("byte/block", "byte/block", 2),
        ("Kbyte/block", "byte/block", 2e3),
        ("register/thread", "register/thread", 2),
        ("inst/cycle", "inst/cycle", 2),
        ("Ginst", "inst", 2e9),
        ("warp", "warp", 2),
        ("fathom", "fathom", 2),
    ],
)
def test_a_unit_becomes_its_base(text: str, name: str, of_two: float) -> None:
    unit = base_unit(text)
    assert unit.name == name
    assert 2 * unit.multiply / unit.divide == of_two


def test_nvprof_means_powers_of_1024() -> None:
    assert base_unit("GB/s", binary=True).multiply / base_unit("GB/s", binary=True).divide == 2**30
    assert base_unit("MB", binary=True).multiply == 2**20


@pytest.mark.parametrize(
    ("label", "unit", "counter"),
    [
        ("Memory Throughput", "1", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
        ("Memory Throughput", "byte/s", "dram__bytes.sum.per_second"),
        ("Elapsed Cycles", "cycle", "gpc__cycles_elapsed.max"),
        ("Duration gpu__time_duration.sum", "ns", "gpu__time_duration.sum"),
        ("dram__bytes_read.sum", "byte", "dram__bytes_read.sum"),
        ("Some New Label", "1", "Some New Label"),
    ],
)
def test_labels(label: str, unit: str, counter: str) -> None:
    assert counter_of(label, unit) == counter


def _canonical(columns: dict[str, list[float | None]]) -> list[tuple[int, str, float, str]]:
    rows = len(next(iter(columns.values())))
    wide = pl.DataFrame({"row": range(rows), **columns}, schema={"row": pl.Int64, **dict.fromkeys(columns, pl.Float64)})
    rows_of_all = canonical(Measured(wide, dict.fromkeys(columns, "unit"), "ncu"), ncu_table(columns))
    named = rows_of_all.filter(pl.col("metric").is_in(list(COUNTERS)))
    return list(named.select("row", "metric", "value", "source").sort("row", "metric").iter_rows())


def test_each_kernel_takes_the_first_formula_that_it_has_the_values_for() -> None:
    rows = _canonical(
        {
            "dram__bytes_read.sum": [100, None],
            "dram__bytes_read.sum.per_second": [None, 2e9],
            "dram__bytes_write.sum": [1, 2],
            "gpu__time_duration.sum": [1000, 500],
        }
    )
    reads = [row for row in rows if row[1] == "dram_read_bytes"]
    assert [(row, source) for row, _, _, source in reads] == [(0, "ncu"), (1, "ncu, derived")]
    assert [value for _, _, value, _ in reads] == [100, pytest.approx(1000)]


def test_flops_from_the_rates_of_a_roofline_section() -> None:
    # 10 + 20 + 400 per cycle at 1 GHz for 2000 ns: 430 * 1e9 * 2e-6
    prefix = "smsp__sass_thread_inst_executed_op_"
    rows = _canonical(
        {
            f"{prefix}fadd_pred_on.sum.per_cycle_elapsed": [10],
            f"{prefix}fmul_pred_on.sum.per_cycle_elapsed": [20],
            f"derived__{prefix}ffma_pred_on_x2": [400],
            f"derived__{prefix}hadd_pred_on_x2": [2],
            f"derived__{prefix}hmul_pred_on_x2": [4],
            f"derived__{prefix}hfma_pred_on_x4": [8],
            "smsp__cycles_elapsed.avg.per_second": [1e9],
            "gpu__time_duration.sum": [2000],
        }
    )
    values = {metric: value for _, metric, value, _ in rows}
    assert values["flop_count_sp"] == pytest.approx(860_000)
    assert values["flop_count_hp"] == pytest.approx((1 + 2 + 4) * 1e9 * 2e-6), "a packed pair counts once"


def test_bytes_of_the_rtx_50_series_have_names_of_their_own() -> None:
    values = {m: v for _, m, v, _ in _canonical({"dram__bytes_op_read.sum": [7], "dram__bytes_op_write.sum": [8]})}
    assert values == {"dram_read_bytes": 7, "dram_write_bytes": 8}


def test_bytes_known_only_together_are_not_called_reads() -> None:
    values = {m: v for _, m, v, _ in _canonical({"dram__bytes.sum": [9]})}
    assert values == {"dram_bytes": 9}
    both = _canonical({"dram__bytes.sum": [9], "dram__bytes_read.sum": [4], "dram__bytes_write.sum": [5]})
    assert {m for _, m, _, _ in both} == {"dram_read_bytes", "dram_write_bytes"}


def test_ipc_is_of_a_multiprocessor_with_its_four_schedulers() -> None:
    assert _canonical({"smsp__inst_executed.avg.per_cycle_active": [0.5]}) == [(0, "ipc", 2.0, "ncu, derived")]
    assert _canonical({"sm__inst_executed.avg.per_cycle_active": [1.9]}) == [(0, "ipc", 1.9, "ncu")]


_OPS = "sm__ops_path_tensor_"


@pytest.mark.parametrize(
    ("names", "counter", "added"),
    [
        (["src_bf16_dst_fp32", "src_bf16_dst_fp32_sparsity_on", "src_bf16_dst_fp32_sparsity_off"], "bf16", {0}),
        (["src_bf16_dst_fp32_sparsity_on", "src_bf16_dst_fp32_sparsity_off"], "bf16", {0, 1}),
        (["src_fp16_dst_fp16", "src_fp16_dst_fp32"], "fp16", {0, 1}),
        (["src_fp16", "op_hmma_src_fp16", "op_hmma_src_fp16_dst_fp32", "op_hgmma_src_fp16"], "fp16", {0}),
        (["op_hmma_src_fp16_dst_fp16", "op_hmma_src_fp16", "op_hgmma_src_fp16"], "fp16", {1, 2}),
        (["src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16"], "fp16", {0, 1}),
        (["src_int8", "src_int8_sparsity_on", "op_imma_src_int8", "op_igmma_src_int8"], "int8", {0}),
        (["src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32"], "fp4_fp6_fp8", {0, 1}),
        (["src_tf32_dst_fp32", "op_utchmma_src_tf32_dst_fp32_realtime"], "tf32", {0}),
    ],
)
def test_tensor_totals_and_parts_are_never_added_twice(names: list[str], counter: str, added: set[int]) -> None:
    counters = [f"{_OPS}{name}.sum" for name in names]
    (formula,) = ncu_names.tensor_formulas(counters)[f"flop_count_tensor_{counter}"]
    assert set(formula.terms) == {counters[n] for n in added}
    assert set(formula.terms.values()) == {1}


@pytest.mark.parametrize(
    ("names", "is_partial"),
    [
        (["src_bf16_dst_fp32"], False),
        (["src_fp16_dst_fp32"], True),  # work that accumulates in FP16 is missing
        (["src_fp16_dst_fp32", "src_fp16_dst_fp16"], False),
        (["src_int8_sparsity_off"], True),
        (["src_int8_sparsity_off", "src_int8_sparsity_on"], False),
        (["op_hmma_src_bf16_dst_fp32"], True),
        (["src_fp64"], False),
    ],
)
def test_a_part_of_the_tensor_work_is_known_as_such(names: list[str], *, is_partial: bool) -> None:
    assert bool(ncu_names.partial([f"{_OPS}{name}.sum" for name in names])) == is_partial


def test_every_formula_is_of_a_counter_in_the_vocabulary() -> None:
    assert set(NCU) | set(NVPROF) <= set(COUNTERS)
    assert set(FLOP_COUNTS) <= set(COUNTERS)


def test_only_plain_renamings_keep_the_source_plain() -> None:
    assert same("a").is_same
    assert not Formula({"a": 2}).is_same
    assert not Formula({"a": 1}, times=("b",)).is_same


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("dram__bytes_read.sum", "byte"),
        ("gpu__time_duration.sum", "ns"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "1"),
        ("sm__cycles_elapsed.avg.per_second", "Hz"),
        ("dram__bytes.sum.per_second", "byte/s"),
        ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "inst"),
        ("smsp__thread_inst_executed_per_inst_executed.ratio", "1"),
    ],
)
def test_units_of_counters_that_come_without_one(name: str, unit: str) -> None:
    assert unit_of(name).name == unit


@cache
def _names(folder: Path) -> dict[str, set[str]]:
    """Base names of every chip, of both lists that NVIDIA's libraries gave."""
    out: dict[str, set[str]] = {}
    for file in sorted((folder / "reference" / "ncu_metrics").glob("*.json.gz")):
        for chip, kinds in json.loads(gzip.decompress(file.read_bytes())).items():
            out.setdefault(chip, set()).update(*kinds.values())
    return out


# Names that ncu makes itself, or that CUPTI lists as attributes of a launch.
_NO_COUNTERS = ("derived__", "sm__maximum_warps_per_active_cycle_pct", "invocations")


@pytest.mark.real
@pytest.mark.parametrize("chip", CHIPS)
def test_every_counter_that_we_use_exists_on_the_chip(chip: str, real_dir: Path) -> None:
    existing = _names(real_dir)[chip]
    missing = {
        name
        for formulas in NCU.values()
        for formula in formulas
        if chip in (formula.chips or CHIPS)
        for name in (*formula.terms, *formula.times)
        if not name.startswith(_NO_COUNTERS) and name.split(".")[0] not in existing
    }
    assert missing == set()
    packed = {name.split(".")[0] for name in flop_terms("f", packed=True)}
    assert (packed <= existing) == (chip in PACKED)
    assert bool(packed & existing) == (chip in PACKED)


@pytest.mark.real
@pytest.mark.parametrize("chip", CHIPS)
def test_every_tensor_counter_of_the_chip_is_understood(chip: str, real_dir: Path) -> None:
    names = [f"{name}.sum" for name in _names(real_dir)[chip] if name.startswith("sm__ops_path_tensor")]
    kept = [name for name in names if "realtime" not in name]
    assert all(ncu_names.split(name) is not None for name in kept)
    assert all(ncu_names.split(name) is None for name in set(names) - set(kept))
    formulas = ncu_names.tensor_formulas(names)
    assert set(formulas) == {f"flop_count_tensor_{source}" for source in ncu_names.choose_counters(names)}, (
        "all in the vocabulary"
    )
    assert ncu_names.partial(names) == {}, "all counters of the chip together tell all work"
    assert all(not ncu_names.split(term).op for (f,) in formulas.values() for term in f.terms)  # type: ignore[union-attr]


def _stalls(form: str, **values: float) -> dict[str, float]:
    return {form.format(why): value for why, value in values.items()}


@pytest.mark.parametrize(
    "form",
    [
        "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
        "smsp__average_warp_latency_issue_stalled_{}.ratio",
        "smsp__pcsamp_warps_issue_stalled_{}",
    ],
)
def test_stall_reasons_are_shares_of_all_of_them(form: str) -> None:
    counted = _stalls(
        form, long_scoreboard=12, wait=4, math_pipe_throttle=1, selected=2, lg_throttle=0.5, mio_throttle=0.5, drain=0
    ) | {"smsp__pcsamp_warps_issue_stalled_wait_not_issued": 100.0}
    wide = pl.DataFrame({"row": [0], **{name: [float(value)] for name, value in counted.items()}})
    rows = canonical(Measured(wide, dict.fromkeys(counted, "inst"), "ncu"), ncu_table(counted))
    shares = {m: v for m, v in rows.select("metric", "value").iter_rows() if m.endswith(("stall_share", "issue_share"))}
    assert shares == {
        "memory_dependency_stall_share": 0.6,
        "execution_dependency_stall_share": 0.2,
        "pipe_busy_stall_share": 0.05,
        "issue_share": 0.1,
        "memory_throttle_stall_share": 0.05,
        "other_stall_share": 0.0,
    }


def test_a_few_stall_reasons_alone_give_no_share() -> None:
    counted = _stalls("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", long_scoreboard=12, wait=4)
    assert not [metric for metric in ncu_table(counted) if metric.endswith("stall_share")]
