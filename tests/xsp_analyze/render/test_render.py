"""What each format makes of a result."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import Analysis, Column, FigureSpec, Result, Role
from xsp_analyze.render import FORMATS, Screen, render, render_one, terminal
from xsp_analyze.render.parquet import METADATA_KEY
from xsp_analyze.text.units import Scale, duration, fit_names, number, scales_of, share, size
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.ledger import to_frame

_LONG = "void at::native::elementwise_kernel<(int)128, at::native::AddFunctor<float>>(int, T1)"


def _result(
    table: pl.DataFrame, columns: list[Column], *, findings: tuple[Finding, ...] = (), identity: str = "A10"
) -> Result:
    summed = ("count", "duration_ns", "model_share")
    analysis = Analysis(identity, "Kernels by name", (), columns, lambda _: pl.LazyFrame(), additive=summed)
    return Result(
        analysis, table, columns, lambda: to_frame(findings), lambda: {"sources": ["a.json"], "basis": "device_span_ns"}
    )


def _kernels(*names: str, durations: tuple[int, ...] = (), findings: tuple[Finding, ...] = ()) -> Result:
    table = pl.DataFrame(
        {
            "kernel_name": list(names),
            "count": [1234] * len(names),
            "duration_ns": list(durations) or [2_500_000] * len(names),
            "model_share": [0.125] * len(names),
            "flop_count": pl.Series([None] * len(names), dtype=pl.Float64),
        }
    )
    columns = [
        Column("kernel_name", pl.String(), "Its name.", role=Role.KEY),
        Column("count", pl.Int64(), "Executions per step."),
        Column("duration_ns", pl.Int64(), "Time on the device.", "ns"),
        Column("model_share", pl.Float64(), "Share of the model's latency."),
        Column("flop_count", pl.Float64(), "Work.", "flop"),
    ]
    return _result(table, columns, findings=findings)


def _nsys() -> Result:
    table = pl.DataFrame({"s": [52.75], "t": [301652956], "a": [229918.44], "b": [8_046_134_000], "n": ["f(int, int)"]})
    columns = [
        Column("s", pl.Float64(), "", "%", header="Time (%)", decimals=1),
        Column("t", pl.Int64(), "", "ns", header="Total Time (ns)"),
        Column("a", pl.Float64(), "", "ns", header="Avg (ns)", decimals=1),
        Column("b", pl.Int64(), "", "byte", header="Total (MB)", decimals=3),
        Column("n", pl.String(), "", role=Role.KEY, header="Name"),
    ]
    return _result(table, columns, identity="cuda_api_sum")


def test_a_column_takes_one_unit_that_suits_its_largest_value() -> None:
    text = terminal.render(_kernels("a", "b", durations=(25_000_000, 1_000)))
    assert "ms" in text
    assert "25.0" in text
    assert "0.0010" in text


def _times(**largest: float | None) -> list[str]:
    """The units that columns of times with these largest values are shown in, side by side."""
    columns = [(Column(name, pl.Float64(), "", "ns"), [value]) for name, value in largest.items()]
    return [scale.unit for scale in scales_of(columns)]


def test_columns_of_a_unit_are_shown_in_one_so_that_rows_compare() -> None:
    assert _times(latency=712_982.0, rest=9_400.0) == ["\u00b5s", "\u00b5s"]
    assert _times(baseline=45_355_006.0, overhead=1_428_418.0) == ["\u00b5s", "\u00b5s"]
    assert _times(window=2_604_240.0, communication=0.0) == ["\u00b5s", "\u00b5s"]
    assert _times(window=2_604_240.0, unknown=None) == ["\u00b5s", "\u00b5s"]


def test_a_column_that_would_vanish_keeps_its_own_unit() -> None:
    assert _times(total=1_200_000_000.0, mean=30_000.0) == ["ms", "\u00b5s"]


def test_units_of_other_columns_are_their_own_matter() -> None:
    bytes_column = (Column("read", pl.Float64(), "", "byte"), [2.0e6])
    share_column = (Column("model_share", pl.Float64(), ""), [0.5])
    time_column = (Column("latency_ns", pl.Float64(), "", "ns"), [5.0e7])
    assert [s.unit for s in scales_of([bytes_column, share_column, time_column])] == ["MiB", "%", "ms"]


def test_a_heading_that_ends_in_its_units_letters_still_has_a_unit() -> None:
    table = pl.DataFrame({"busy_ns": [2_249_397]})
    lines = terminal.render(_result(table, [Column("busy_ns", pl.Int64(), "", "ns")])).splitlines()
    assert [line.strip() for line in lines[1:3]] == ["busy", "\u00b5s"]


def test_what_rounds_to_nothing_is_not_shown_as_nothing() -> None:
    assert number(3, Scale("ms", 1e6, 3)) == "<0.001"
    assert number(-3, Scale("ms", 1e6, 3)) == ">-0.001"
    assert number(0, Scale("ms", 1e6, 3)) == "0.000"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (999, "999\u202fns"),
        (2_500_000, "2.50\u202fms"),
        (12_000_000_000, "12.0\u202fs"),
        (1_500, "1.50\u202f\u00b5s"),
    ],
)
def test_single_durations(value: int | None, text: str) -> None:
    assert duration(value) == text


def test_sizes_and_shares_read_in_mebibytes_and_percent() -> None:
    assert size(3 << 19) == "1.50\u202fMiB"
    assert share(0.1234) == "12.3\u202f%"
    assert share(None) == "-"


def test_a_table_says_what_it_could_not_know() -> None:
    text = terminal.render(_kernels("a"))
    assert "Unknown in this trace: flop_count." in text


def test_warnings_stand_beneath_in_one_line_each_and_infos_do_not() -> None:
    findings = (
        Finding(
            LedgerKind.MISSING_START, "Kernels without a launch", 7, duration_ns=2_000_000, advice="Start earlier."
        ),
        Finding(LedgerKind.CUT_NAME, "Nothing to see"),
    )
    lines = terminal.render(_kernels("a", findings=(findings[0],))).splitlines()
    assert "warning: Kernels without a launch (7, 2.00 ms). Start earlier." in lines
    assert lines[-1] == "sources: a.json; basis: device span" or lines[-1].startswith("sources: a.json")


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    lines = terminal.render(_kernels(_LONG, "short"), Screen(width)).splitlines()
    assert max(len(line) for line in lines) <= width


def test_a_name_too_long_for_the_terminal_loses_what_says_least_and_then_its_middle() -> None:
    assert "elementwise_kernel<(int)128, AddFunctor<float>>  " in terminal.render(_kernels(_LONG), Screen(80))
    text = terminal.render(_kernels(_LONG), Screen(60))
    assert "elementwise_" in text
    assert "float>>" in text
    assert "…" in text


def test_a_table_in_a_pipe_holds_text_to_a_width_that_can_be_read() -> None:
    name = "gemm_" + "x" * 600 + "_nt"
    lines = terminal.render(_kernels(name), Screen(text=100)).splitlines()
    assert max(len(line) for line in lines) < 160


def test_names_that_part_in_their_middle_are_told_apart() -> None:
    names = [f"void at::native::apply<4, {functor}<c10::BFloat16, float, long>, 3ul>(int)" for functor in "ABC"]
    cells = fit_names(names, 24)
    assert len(set(cells)) == 3
    assert all(cell_len(cell) <= 24 and functor in cell for cell, functor in zip(cells, "ABC", strict=True))


@given(st.lists(st.text(alphabet="ab:<>() ,_\u4e2d", max_size=60), max_size=6), st.integers(4, 40))
def test_no_name_is_wider_than_its_column(names: list[str], width: int) -> None:
    cells = fit_names(names, width)
    assert len(cells) == len(names)
    assert all(cell_len(cell) <= width for cell in cells)
    assert all(cell == name for cell, name in zip(cells, names, strict=True) if cell_len(name) <= width)


def test_what_is_no_name_of_c_plus_plus_keeps_its_words() -> None:
    assert fit_names(["Memcpy DtoD (Device -> Device)", "aten::convolution"], 40) == [
        "Memcpy DtoD (Device -> Device)",
        "aten::convolution",
    ]


def test_rows_that_are_not_shown_stand_in_sum() -> None:
    line = next(
        line
        for line in terminal.render(
            _kernels("a", "b", "c", durations=(5_000_000, 2, 3)), Screen(80, rows=1)
        ).splitlines()
        if line.startswith("and 2 more")
    )
    assert line.split()[3:] == ["2", "468", "0.0050", "25.0"]


def test_a_sum_over_what_is_not_known_is_not_known() -> None:
    result = _kernels("a", "b", "c")
    table = result.table.with_columns(pl.Series("count", [1, 2, None]))
    text = terminal.render(replace(result, table=table), Screen(80, rows=1))
    assert next(line for line in text.splitlines() if line.startswith("and 2 more")).split()[3] == "-"


def test_sums_are_of_columns_that_are_there() -> None:
    for analysis in all_analyses():
        columns = {c.name: c for c in analysis.columns}
        assert set(analysis.additive) <= set(columns), analysis.id
        assert {columns[name].unit for name in analysis.additive} <= {"", "ns", "byte", "flop", "share"}


def test_units_stand_on_a_line_of_their_own() -> None:
    title, *heading = terminal.render(_kernels("a")).splitlines()[:4]
    assert title == "A10  Kernels by name"
    assert [line.split() for line in heading] == [
        ["kernel", "model"],
        ["name", "count", "duration", "share"],
        ["\u00b5s", "%"],
    ]


def test_numbers_are_shown_before_lists_and_paths() -> None:
    table = pl.DataFrame({"layer_index": [0], "path": ["Model_0.Block_0.Linear_0" * 3], "count": [3]})
    columns = [
        Column("layer_index", pl.Int64(), "", role=Role.KEY),
        Column("path", pl.String(), "", role=Role.LABEL),
        Column("count", pl.Int64(), ""),
    ]
    text = terminal.render(_result(table, columns), Screen(24))
    assert "count" in text.splitlines()[2]
    assert "Too narrow for: path." in text


def test_what_an_analysis_draws_is_shown_before_its_other_columns() -> None:
    result = _kernels(_LONG)
    drawn = replace(result.analysis, figure=FigureSpec("bars", "kernel_name", ("model_share",)))
    assert "share" in terminal.render(replace(result, analysis=drawn), Screen(30)).splitlines()[2]


def test_columns_that_do_not_fit_are_named() -> None:
    assert "Too narrow for:" in terminal.render(_kernels(_LONG), Screen(30))


def test_where_room_is_short_names_and_the_first_time_stay() -> None:
    text = terminal.render(_kernels(_LONG), Screen(28))
    assert "kernel name" in text
    assert "duration" in text
    assert "Too narrow for: count, model share." in text.replace("\n", " ")


def test_where_nobody_set_a_width_nothing_is_cut() -> None:
    assert _LONG in terminal.render(_kernels(_LONG))


def test_rows_beyond_the_most_are_counted() -> None:
    text = terminal.render(_kernels("a", "b", "c"), Screen(80, rows=1))
    assert "2 more rows" in text


def test_a_name_cannot_steer_the_terminal() -> None:
    text = terminal.render(_kernels("evil\x1b[2Jname\nline"))
    assert "\x1b" not in text
    assert "evil\\x1b[2Jname line" in text


def test_markup_in_a_name_is_text() -> None:
    assert "[bold]x[/bold]" in terminal.render(_kernels("[bold]x[/bold]"))


def test_an_empty_table_says_so() -> None:
    assert "No rows." in terminal.render(_kernels())


def test_csv_has_our_names_and_full_precision() -> None:
    result = _kernels("a,b")
    assert render_one(result, "csv").decode() == (
        'kernel_name,count,duration_ns,model_share,flop_count\n"a,b",1234,2500000,0.125,\n'
    )


def test_csv_rounds_a_half_up_as_sqlite_does() -> None:
    table = pl.DataFrame({"a": [4639.95, 0.25, 2.0, None, float("inf")]})
    columns = [Column("a", pl.Float64(), "", "ns", header="Avg (ns)", decimals=1)]
    assert render_one(_result(table, columns), "csv").decode() == "Avg (ns)\n4640.0\n0.3\n2.0\n\n\n"


def test_csv_holds_lists_as_json_and_no_infinities() -> None:
    table = pl.DataFrame({"grid": [[1, 2], None], "x": [float("inf"), 0.1]})
    columns = [Column("grid", pl.List(pl.Int64()), ""), Column("x", pl.Float64(), "")]
    assert render_one(_result(table, columns), "csv").decode() == 'grid,x\n"[1, 2]",\n,0.1\n'


def test_csv_of_another_tools_report_has_that_tools_heads_and_rounding() -> None:
    assert render_one(_nsys(), "csv").decode() == (
        'Time (%),Total Time (ns),Avg (ns),Total (MB),Name\n52.8,301652956,229918.4,8046.134,"f(int, int)"\n'
    )


def test_several_results_in_csv_are_told_apart_by_a_title_line() -> None:
    lines = render([_kernels("a"), _nsys()], "csv").decode().splitlines()
    assert lines[0] == "# A10 Kernels by name"
    assert lines[4] == "# cuda_api_sum Kernels by name"


def test_json_is_the_documented_object() -> None:
    document = json.loads(render([_kernels("a", findings=(Finding(LedgerKind.MISSING_START, "gone", 2),))], "json"))
    assert list(document) == ["analysis", "title", "columns", "rows", "ledger", "provenance"]
    assert document["columns"][2] == {
        "name": "duration_ns",
        "dtype": "Int64",
        "unit": "ns",
        "role": "measure",
        "doc": "Time on the device.",
    }
    assert document["rows"] == [
        {"kernel_name": "a", "count": 1234, "duration_ns": 2500000, "model_share": 0.125, "flop_count": None}
    ]
    assert document["ledger"][0]["count"] == 2
    assert document["provenance"] == {"sources": ["a.json"], "basis": "device_span_ns"}


def test_json_holds_no_nan() -> None:
    table = pl.DataFrame({"x": [float("nan"), float("inf"), 1.0]})
    text = render_one(_result(table, [Column("x", pl.Float64(), "")]), "json").decode()
    assert [row["x"] for row in json.loads(text)["rows"]] == [None, None, 1.0]


def test_several_results_in_json_are_an_array() -> None:
    assert [r["analysis"] for r in json.loads(render([_kernels("a"), _nsys()], "json"))] == ["A10", "cuda_api_sum"]


def test_json_says_the_type_that_the_rows_have() -> None:
    table = pl.DataFrame({"count": [2]})
    document = json.loads(render_one(_result(table, [Column("count", pl.Float64(), "")]), "json"))
    assert document["columns"][0]["dtype"] == "Int64"
    assert document["rows"] == [{"count": 2}]


def test_whole_counts_of_a_mean_step_read_as_whole_numbers() -> None:
    table = pl.DataFrame({"count": [1234.0], "rank": [0.5]})
    text = terminal.render(_result(table, [Column("count", pl.Float64(), ""), Column("rank", pl.Float64(), "")]))
    assert "1 234  0.500" in text


def test_provenance_names_files_and_leaves_digests_to_programs() -> None:
    result = _kernels("a")
    with_sources = Result(
        result.analysis,
        result.table,
        result.columns,
        result.ledger_of,
        lambda: {"sources": [{"file": "a.gz", "sha256": "00ff"}]},
    )
    assert terminal.render(with_sources).endswith("sources: a.gz\n")


def test_markdown_escapes_what_would_break_its_table() -> None:
    text = render_one(_kernels("a|b<script>*"), "md").decode()
    assert "| a\\|b\\<script\\>\\* | 1\u202f234 |" in text


def test_parquet_keeps_types_and_description() -> None:
    table = pq.read_table(BytesIO(render_one(_kernels("a"), "parquet")))
    assert table.column("duration_ns").to_pylist() == [2_500_000]
    assert json.loads(table.schema.metadata[METADATA_KEY])["analysis"] == "A10"


def test_parquet_refuses_several_results_in_one_stream() -> None:
    with pytest.raises(XspError, match="one analysis a file"):
        render([_kernels("a"), _nsys()], "parquet")


@pytest.mark.parametrize("name", list(FORMATS))
def test_the_same_result_gives_the_same_bytes(name: str) -> None:
    if name == "xlsx":
        pytest.importorskip("xlsxwriter")
    assert render_one(_kernels("a"), name) == render_one(_kernels("a"), name)
