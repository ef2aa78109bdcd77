"""Nsight Compute's CSV: pages, logs, locales, units, and what is wrong with a file."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.ncu_text import DETAILS_HEAD, RAW_HEAD, count_of, details, line, metrics, raw_page, read_text
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.ncu.csv import NCU_CSV
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_READ, _WRITE, _TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_FLOPS = {
    _SASS.format("fadd"): ("inst", ("1,000,000",)),
    _SASS.format("fmul"): ("inst", ("20",)),
    _SASS.format("ffma"): ("inst", ("3",)),
}


def test_a_raw_page_gives_kernels_and_counters(tmp_path: Path) -> None:
    page = raw_page({**_FLOPS, _READ: ("byte", ("4,096",)), _OCCUPANCY: ("%", ("66.61",)), _TIME: ("ns", ("2,048",))})
    raw = read_text(page, tmp_path)
    values = metrics(raw)
    assert values["flop_count_sp"] == 1_000_000 + 20 + 2 * 3
    assert values["dram_read_bytes"] == 4096
    assert values["achieved_occupancy"] == 0.6661
    assert values["replayed_duration_ns"] == 2048
    span = raw.tables["spans"].row(0, named=True)
    assert (span["level"], span["kind"], span["name"]) == ("kernel", "kernel", "gemm")
    assert (span["process_id"], span["device_id"], span["context_id"], span["stream_id"]) == (11, 0, 1, 7)
    assert (span["start_ns"], span["duration_ns"]) == (0, 2048)
    launch = raw.tables["kernels"].row(0, named=True)
    assert [launch[f"grid_{axis}"] for axis in "xyz"] == [64, 8, 3]
    assert [launch[f"block_{axis}"] for axis in "xyz"] == [128, 2, 1]


def test_each_metric_says_its_unit_and_its_source(tmp_path: Path) -> None:
    raw = read_text(raw_page({**_FLOPS, _READ: ("byte", ("1",)), "lts__t_requests.sum": ("request", ("9",))}), tmp_path)
    rows = raw.tables["metrics"].with_columns(pl.col(pl.Categorical).cast(pl.String))
    source_of = {row["metric"]: (row["unit"], row["source"]) for row in rows.to_dicts()}
    assert source_of["flop_count_sp"] == ("flop", "ncu, derived")
    assert source_of["dram_read_bytes"] == ("byte", "ncu")
    assert source_of["lts__t_requests.sum"] == ("request", "ncu")
    assert _READ not in source_of, "a counter that only got another name is not repeated"
    assert source_of[_SASS.format("ffma")] == ("inst", "ncu"), "what went into a sum is kept"


def test_kernels_stand_in_the_order_of_their_ids_one_after_the_other(tmp_path: Path) -> None:
    page = raw_page({_TIME: ("us", ("3.00", "1.50", "2.00"))}, names=("c", "a", "b"), ids=(12, 3, 7))
    spans = read_text(page, tmp_path).tables["spans"]
    assert spans["name"].cast(pl.String).to_list() == ["a", "b", "c"]
    assert spans["duration_ns"].to_list() == [1500, 2000, 3000]
    assert spans["start_ns"].to_list() == [0, 1500, 3500]


def test_without_a_duration_counter_the_duration_is_unknown(tmp_path: Path) -> None:
    raw = read_text(raw_page({_READ: ("byte", ("1", "2"))}, names=("a", "b")), tmp_path)
    assert raw.tables["spans"]["duration_ns"].to_list() == [None, None]
    assert raw.tables["spans"]["start_ns"].to_list() == [0, 0]
    assert count_of(raw, "no_timestamps") == 2


def test_labels_of_the_details_page_are_the_counters_they_stand_for(tmp_path: Path) -> None:
    raw = read_text(
        details(
            ("Duration", "usecond", "7.01"),
            ("Memory Throughput", "%", "71.40"),
            ("Memory Throughput", "Gbyte/second", "448.20"),
            ("DRAM Throughput", "%", "70.00"),
            ("Achieved Occupancy", "%", "79.10"),
            ("Theoretical Occupancy", "%", "100"),
            ("Registers Per Thread", "register/thread", "18"),
            ("Dynamic Shared Memory Per Block", "Kbyte/block", "1.02"),
            ("Mem Busy", "%", "3.00"),
        ),
        tmp_path,
    )
    values = metrics(raw)
    assert values["replayed_duration_ns"] == pytest.approx(7010)
    assert values["memory_utilization"] == pytest.approx(0.714)
    assert values["dram_bytes"] == pytest.approx(448.2e9 * 7.01e-6), "rate times duration: read and written together"
    assert values["dram_utilization"] == pytest.approx(0.70)
    assert values["achieved_occupancy"] == pytest.approx(0.791)
    assert values["theoretical_occupancy"] == 1
    assert values["Mem Busy"] == pytest.approx(0.03), "a label that stands for no one counter stays"
    assert raw.tables["kernels"]["registers_per_thread"].to_list() == [18]
    assert raw.tables["kernels"]["dynamic_shared_bytes"].to_list() == [1020]


def test_the_details_page_with_names_instead_of_labels(tmp_path: Path) -> None:
    page = details((_READ, "Mbyte", "1.50"), (f"Duration {_TIME}", "ms", "2.00"))
    values = metrics(read_text(page, tmp_path))
    assert values["dram_read_bytes"] == 1_500_000
    assert values["replayed_duration_ns"] == 2_000_000


def test_old_pages_lack_columns_and_say_other_words(tmp_path: Path) -> None:
    head = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream")
    facts = ("0", "21524", "cfd", "127.0.0.1", "flux", "2020-Apr-07 17:01:05", "1", "7", "GPU Speed Of Light")
    page = "\n".join(
        (
            line(*head, "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
            line(*facts, "Memory Frequency", "cycle/second", "772656250"),
            line(*facts, "SOL FB", "%", "39.60"),
            line(*facts, "Duration", "nsecond", "5120"),
        )
    )
    raw = read_text(page + "\n", tmp_path)
    assert metrics(raw)["dram_clock_hz"] == 772_656_250
    assert metrics(raw)["dram_utilization"] == pytest.approx(0.396)
    assert raw.tables["kernels"]["grid_x"].to_list() == [None]
    assert raw.tables["spans"]["device_id"].to_list() == [None]


def test_a_summary_per_kernel_holds_averages_and_their_number(tmp_path: Path) -> None:
    head = ("Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size", "Device", "CC")
    facts = ("5", "app", "127.0.0.1", "saxpy", "(256, 1, 1)", "(4096, 1, 1)", "0", "8.0", "14", "Occupancy")
    tail = ("Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average")
    page = line(*head, *tail) + "\n" + line(*facts, "Achieved Occupancy", "%", "73.56", "79.38", "74.92") + "\n"
    values = metrics(read_text(page, tmp_path))
    assert values == {"achieved_occupancy": pytest.approx(0.7492), "invocations": 14}


def test_columns_with_units_in_brackets_as_the_user_interface_exports(tmp_path: Path) -> None:
    page = (
        "ID,Function Name,Demangled Name,Duration [us],Compute Throughput [%],"
        "# Registers [register/thread],Block Size\n"
        '0,gemm,"gemm<float>(int)",12.50,30.00,64,"(32, 1, 1)"\n'
    )
    raw = read_text(page, tmp_path)
    assert raw.tables["spans"]["name"].cast(pl.String).to_list() == ["gemm<float>(int)"]
    assert raw.tables["spans"]["duration_ns"].to_list() == [12_500]
    assert metrics(raw)["compute_utilization"] == pytest.approx(0.3)
    assert raw.tables["kernels"]["registers_per_thread"].to_list() == [64]


@pytest.mark.parametrize("heading", ['"Compute Throughput""(41.50)"', '"Compute Throughput"'])
def test_headings_with_totals_as_the_user_interface_exports(heading: str, tmp_path: Path) -> None:
    page = (
        f'"ID","Function Name","Duration""(2.068e+06)",{heading},"Memory Throughput [%] (12.25)"\n'
        '"0","gemm","12.50","30.00","8.00"\n"1","relu","2.25","11.50","4.25"\n'
    )
    raw = read_text(page, tmp_path)
    assert raw.tables["spans"]["duration_ns"].to_list() == [12_500, 2_250]
    assert metrics(raw)["compute_utilization"] == pytest.approx(0.3)
    assert metrics(raw, 1)["memory_utilization"] == pytest.approx(0.0425)


_PUSHED = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_STARTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def test_kernels_belong_to_the_ranges_that_the_page_says(tmp_path: Path) -> None:
    nothing = "none:none:none:none:none:none"
    around = [f'"<default domain>:{name}:{nothing}"' for name in ("step 0", "model", "layer:1")]
    cells = [f"11  {'  '.join(around)} ", f"11  {'  '.join(around[:2])} ", ""]
    head = ("ID", "Process ID", "Kernel Name", _PUSHED, _STARTED, "gpu__time_duration.sum")
    rows = [line(n, 11, "gemm", cell, "", 100) for n, cell in enumerate(cells)]
    page = "\n".join((line(*head), line("", "", "", "", "", "nsecond"), *rows)) + "\n"
    raw = read_text(page, tmp_path)
    spans = raw.tables["spans"].with_columns(pl.col("name").cast(pl.String))
    assert spans.select("name", "start_ns", "duration_ns", "issued_by_row").rows() == [
        ("gemm", 0, 100, 5),
        ("gemm", 100, 100, 4),
        ("gemm", 200, 100, None),
        ("step 0", 0, 200, None),
        ("model", 0, 200, None),
        ("layer:1", 0, 100, None),
    ]
    assert count_of(raw, "nvtx_state_left_out") == 1


_GERMAN = {_READ: ("byte", ("27.595.520",)), _OCCUPANCY: ("%", ("66,61",)), _TIME: ("ns", ("1.024",))}
_FRENCH = {_READ: ("byte", ("27\u202f595\u202f520",)), _OCCUPANCY: ("%", ("66,61",)), _TIME: ("ns", ("1\u00a0024",))}
_SWISS = {_READ: ("byte", ("27'595'520",)), _OCCUPANCY: ("%", ("66.61",)), _TIME: ("ns", ("1'024",))}
_ENGLISH = {_READ: ("byte", ("27,595,520.00",)), _OCCUPANCY: ("%", ("66.61",)), _TIME: ("ns", ("1,024",))}
_PLAIN = {_READ: ("byte", ("27595520",)), _OCCUPANCY: ("%", ("66.61",)), _TIME: ("ns", ("1024",))}


@pytest.mark.parametrize("counters", [_GERMAN, _FRENCH, _SWISS, _ENGLISH, _PLAIN])
def test_numbers_are_read_under_any_locale(counters: dict[str, tuple[str, tuple[str]]], tmp_path: Path) -> None:
    values = metrics(read_text(raw_page(counters), tmp_path))
    assert values["dram_read_bytes"] == 27_595_520
    assert values["achieved_occupancy"] == 0.6661
    assert values["replayed_duration_ns"] == 1024


def test_a_count_of_bytes_tells_the_sign_where_nothing_else_does(tmp_path: Path) -> None:
    assert metrics(read_text(raw_page({_READ: ("byte", ("1.234",))}), tmp_path))["dram_read_bytes"] == 1234
    assert metrics(read_text(raw_page({_READ: ("byte", ("1,234",))}), tmp_path))["dram_read_bytes"] == 1234


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("1,234", "5,678"), "can be read in two ways"),
        (("1.5", "1,5"), "are written in two ways"),
    ],
)
def test_ambiguous_numbers_are_refused(texts: tuple[str, str], says: str, tmp_path: Path) -> None:
    page = raw_page({"smsp__inst_executed.avg": ("inst", texts)}, names=("a", "b"))
    with pytest.raises(XspError, match=says) as refused:
        read_text(page, tmp_path)
    assert "\n" not in str(refused.value)


def test_values_that_were_not_collected_are_unknown_and_counted(tmp_path: Path) -> None:
    counters = {
        _READ: ("byte", ("n/a", "8")),
        _WRITE: ("byte", ("(!) nan", "4")),
        "launch__func": ("", ("Prefer", "x")),
    }
    raw = read_text(raw_page(counters, names=("a", "b")), tmp_path)
    assert metrics(raw) == {}
    assert metrics(raw, 1) == {"dram_read_bytes": 8, "dram_write_bytes": 4}
    assert (count_of(raw, "counter_unavailable"), count_of(raw, "text_counter_left_out")) == (2, 2)


def test_what_programs_print_around_and_between_rows_is_no_row(tmp_path: Path) -> None:
    page = raw_page({_READ: ("byte", ("1", "2"))}, names=("a", "b")).splitlines()
    noisy = [
        "==PROF== Connected",
        'it said: "odd',
        "x, y, 3",
        *page[:3],
        'loss 0.1, "step" 2',
        "==WARNING== slow",
        *page[3:],
    ]
    raw = read_text("\n".join([*noisy, "==PROF== Disconnected", "done, at last"]), tmp_path)
    assert raw.tables["spans"]["name"].cast(pl.String).to_list() == ["a", "b"]


def test_kernel_names_hold_anything(tmp_path: Path) -> None:
    names = ('void f<"a", b>(int)', "g(float,\nint)", "<script>")
    raw = read_text(raw_page({_READ: ("byte", ("1", "2", "3"))}, names=names), tmp_path)
    assert raw.tables["spans"]["name"].cast(pl.String).to_list() == list(names)


_PAGE = raw_page({_READ: ("byte", ("1,024,000",))})


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + _PAGE.encode(),
        _PAGE.encode("utf-16"),
        _PAGE.replace("\n", "\r\n").encode(),
        _PAGE.replace("\n", "\r").encode(),
        _PAGE.replace(",", ";").replace("1;024;000", "1,024,000").replace("; ", ", ").encode(),
        gzip.compress(_PAGE.encode()),
    ],
)
def test_encodings_line_ends_and_separators(content: bytes, tmp_path: Path) -> None:
    raw = read_text(content, tmp_path)
    assert metrics(raw) == {"dram_read_bytes": 1_024_000}
    assert NCU_CSV.sniff(Probe(tmp_path / "ncu.csv"))
    assert raw.tables["kernels"]["block_x"].to_list() == [128]


def test_a_short_row_among_others_is_left_out_and_counted(tmp_path: Path) -> None:
    page = raw_page({_READ: ("byte", ("1", "2", "3"))}, names=("a", "b", "c")).splitlines()
    page[3] = page[3].rpartition(",")[0]
    raw = read_text("\n".join(page) + "\n", tmp_path)
    assert raw.tables["spans"]["name"].cast(pl.String).to_list() == ["a", "c"]
    assert count_of(raw, "cut_off_rows") == 1


@pytest.mark.parametrize("lost", [2, 8, 20])
def test_a_file_that_ends_within_a_row_is_refused(lost: int, tmp_path: Path) -> None:
    with pytest.raises(XspError, match="cut off"):
        read_text(raw_page({_READ: ("byte", ("1", "222222"))}, names=("a", "b"))[: -lost - 1], tmp_path)


def test_rule_rows_and_rows_of_other_lengths_are_no_loss(tmp_path: Path) -> None:
    rules = ("Rule Name", "Rule Type", "Rule Description")
    facts = (0, 11, "python", "host", "gemm", 1, 7, "(1, 1, 1)", "(1, 1, 1)", 0, "7.5", "Occupancy")
    page = [
        line(*DETAILS_HEAD, *rules),
        line(*facts, "Achieved Occupancy", "%", "50.00", ""),
        line(*facts, "", "", "", "Rule", "WRN", "Do\nbetter"),
    ]
    raw = read_text("\n".join(page) + "\n", tmp_path)
    assert metrics(raw) == {"achieved_occupancy": 0.5}
    assert count_of(raw, "cut_off_rows") == 0


def test_two_logs_in_one_file_are_two_runs_of_ids(tmp_path: Path) -> None:
    first, second = (raw_page({_READ: ("byte", (text,))}, names=(name,)) for name, text in (("a", "1"), ("b", "2")))
    raw = read_text(first + second, tmp_path)
    assert [metrics(raw, n)["dram_read_bytes"] for n in (0, 1)] == [1, 2]


def test_the_device_and_its_peaks_are_from_its_attributes(tmp_path: Path) -> None:
    attributes = {
        "display_name": "NVIDIA A100-PCIE-40GB",
        "multiprocessor_count": "108",
        "clock_rate": "1410000",
        "memory_clock_rate": "1215000",
        "global_memory_bus_width": "5120",
        "total_memory": "42505273344",
    }
    counters = {f"device__attribute_{name}": ("", (text, text)) for name, text in attributes.items()}
    counters["derived__sm__sass_thread_inst_executed_op_dfma_pred_on_x2"] = ("inst/cycle", ("6912", "6912"))
    page = raw_page(counters, names=("a", "b"), capability="8.0")
    path = tmp_path / "page.csv"
    path.write_text(page, encoding="utf-8")
    trace = convert([path], Options())
    (device,) = trace.frame("devices").to_dicts()
    assert device["name"] == "NVIDIA A100-PCIE-40GB"
    assert device["fp32_flop_per_s"] == 108 * 64 * 2 * 1.41e9
    assert device["dram_byte_per_s"] == 2 * 1.215e9 * 5120 / 8
    assert device["memory_bytes"] == 42_505_273_344
    peaks = {row["quantity"]: row for row in trace.frame("peaks").to_dicts()}
    assert peaks["fp64"]["value"] == 6912 * 1.41e9
    assert peaks["fp64"]["source"] == "ncu, derived"
    assert "derived at 1410 MHz" in peaks["fp64"]["detail"]
    assert peaks["bf16_tensor"]["value"] == 312e12, "what the file does not say is from the table of devices"
    assert not any("device__attribute" in m for m in metrics(NCU_CSV.read(path, Options())))


def test_a_flop_counter_without_the_others_gives_no_count(tmp_path: Path) -> None:
    raw = read_text(raw_page({_SASS.format("ffma"): ("inst", ("7",))}), tmp_path)
    assert "flop_count_sp" not in metrics(raw)
    assert count_of(raw, "flops_half_collected") == 1


def test_packed_instructions_of_blackwell_count_twice_or_are_missed_aloud(tmp_path: Path) -> None:
    packed = {_SASS.format(f"{op}2"): ("inst", ("10",)) for op in ("fadd", "fmul", "ffma")}
    complete = read_text(raw_page({**_FLOPS, **packed}, capability="10.0"), tmp_path)
    assert metrics(complete)["flop_count_sp"] == 1_000_026 + 2 * (10 + 10 + 2 * 10)
    assert count_of(complete, "packed_fp32_not_counted") == 0
    assert count_of(read_text(raw_page(_FLOPS, capability="10.0"), tmp_path), "packed_fp32_not_counted") == 1
    assert count_of(read_text(raw_page(_FLOPS, capability="9.0"), tmp_path), "packed_fp32_not_counted") == 0


def test_tensor_work_that_was_not_counted_is_said(tmp_path: Path) -> None:
    raw = read_text(
        raw_page({"sm__inst_executed_pipe_tensor.sum": ("inst", ("4096", "0"))}, names=("gemm", "relu")), tmp_path
    )
    assert count_of(raw, "tensor_work_not_counted") == 1
    assert metrics(raw)["tensor_instruction_count"] == 4096


def test_nothing_private_is_kept(tmp_path: Path) -> None:
    page = raw_page({_READ: ("byte", ("1",))}).replace('"host"', '"planted-host"').replace('"python"', '"planted-name"')
    raw = read_text(page, tmp_path)
    assert not any("planted" in str(table.to_dicts()) for table in raw.tables.values())


@pytest.mark.parametrize(
    "text",
    [
        "Kernel Name,ID\n",
        "PID,TID,Kernel Name\n",
        '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n',
        '{"traceEvents": []}',
    ],
)
def test_other_files_are_not_claimed(text: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(text, encoding="utf-8")
    assert not NCU_CSV.sniff(Probe(tmp_path / "other"))


def test_only_the_header_is_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="holds no kernel's counters"):
        read_text(line(*RAW_HEAD, _READ) + "\n", tmp_path)


_GUI = ("ID", "Issues Detected", "Function Name", "Duration", _READ, "Compute Throughput", "# Registers", "Grid Size")
_GUI_ROWS = (
    ("0", "2", "gemm", "9.62", "1.50", "30.00", "64", "(8, 1, 1)"),
    ("1", "", "add", "0.38", "0.50", "5.00", "8", "(1, 1, 1)"),
)


@pytest.mark.parametrize("below_sizes", ["", "block"])
@pytest.mark.parametrize("id_cell", ["", " "])
def test_a_row_of_units_below_the_heading_is_read(below_sizes: str, id_cell: str, tmp_path: Path) -> None:
    units = (id_cell, "", "", "usecond", "Mbyte", "%", "register/thread", below_sizes)
    raw = read_text("\n".join(line(*row) for row in (_GUI, units, *_GUI_ROWS)) + "\n", tmp_path)
    assert raw.tables["spans"]["duration_ns"].to_list() == [9620, 380]
    assert metrics(raw)["dram_read_bytes"] == 1_500_000
    assert metrics(raw)["compute_utilization"] == pytest.approx(0.3)
    assert count_of(raw, "counter_without_unit") == 0


def test_times_and_bytes_without_a_unit_are_unknown_and_counted(tmp_path: Path) -> None:
    raw = read_text("\n".join(line(*row) for row in (_GUI, *_GUI_ROWS)) + "\n", tmp_path)
    assert raw.tables["spans"]["duration_ns"].to_list() == [None, None]
    assert "dram_read_bytes" not in metrics(raw)
    assert "Duration" not in metrics(raw)
    assert raw.tables["kernels"]["registers_per_thread"].to_list() == [64, 8]
    assert count_of(raw, "counter_without_unit") == 4


def test_what_a_program_prints_above_the_kernels_is_no_row_of_units(tmp_path: Path) -> None:
    page = "\n".join((line(*_GUI), ", took 3 us in all", line(*_GUI_ROWS[0])))
    raw = read_text(page + "\n", tmp_path)
    assert raw.tables["spans"]["duration_ns"].to_list() == [None]


_PRINTED = """\
==PROF== Connected to process 4711 (/usr/bin/python3.11)
==PROF== Profiling "saxpy" - 0: 0%....50%....100% - 9 passes
hello from the program
[4711] python3.11@127.0.0.1
  saxpy(float, const float *, float *) (1024, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    DRAM Frequency          cycle/nsecond         2.61
    Memory Throughput                   %        71.40
    Duration                      usecond         7.01
    ----------------------- ------------- ------------

    OPT   This kernel exhibits low compute throughput and memory bandwidth utilization relative to the peak
          performance of this device.

    Section: Launch Statistics
    -------------------------------- --------------- ---------------
    Metric Name                          Metric Unit    Metric Value
    -------------------------------- --------------- ---------------
    Registers Per Thread             register/thread              16
    -------------------------------- --------------- ---------------

  void gemm<float, 32>(const float *, float *) (64, 2, 1)x(128, 1, 1), Context 1, Stream 13, Device 0, CC 9.0
    Section: Command line profiler metrics
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    dram__bytes_read.sum          Mbyte         4.19
    gpu__time_duration.sum      usecond        20.50
    ----------------------- ----------- ------------

"""


def test_the_details_page_is_read_as_text_too(tmp_path: Path) -> None:
    path = tmp_path / "ncu.txt"
    path.write_text(_PRINTED, encoding="utf-8")
    assert NCU_CSV.sniff(Probe(path))
    tables = NCU_CSV.read(path, Options()).tables
    spans = tables["spans"].select("name", "process_id", "stream_id", "device_id", "duration_ns").rows()
    assert spans == [
        ("saxpy(float, const float *, float *)", 4711, 7, 0, 7_010),
        ("void gemm<float, 32>(const float *, float *)", 4711, 13, 0, 20_500),
    ]
    kernels = tables["kernels"].select("grid_x", "grid_y", "block_x", "registers_per_thread").rows()
    assert kernels == [(1024, 1, 256, 16), (64, 2, 128, None)]
    values = dict(tables["metrics"].select(pl.col("metric").cast(pl.String), "value").rows())
    assert (values["memory_utilization"], values["dram_read_bytes"]) == (pytest.approx(0.714), pytest.approx(4.19e6))


def test_older_versions_say_when_a_kernel_ran_and_not_its_grid(tmp_path: Path) -> None:
    when = ", 2021-Mar-10 10:00:00, Context 1, Stream 7"
    older = re.sub(r" \(\d+, 1, 1\)x\(256, 1, 1\), Context 1, Stream 7.*", when, _PRINTED)
    (tmp_path / "ncu.txt").write_text(older, encoding="utf-8")
    spans = NCU_CSV.read(tmp_path / "ncu.txt", Options()).tables["spans"]
    assert spans["name"].to_list()[0] == "saxpy(float, const float *, float *)"


def test_a_printed_page_that_ends_in_a_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ncu.txt").write_text(_PRINTED[: _PRINTED.index("4.19") + 2], encoding="utf-8")
    with pytest.raises(XspError, match="its last row is not complete"):
        NCU_CSV.read(tmp_path / "ncu.txt", Options())
