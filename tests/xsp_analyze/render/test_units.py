"""One number format: what a person reads is worked out by hand here, and pages and Python agree on it."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.core import Column
from xsp_analyze.text import units
from xsp_analyze.text.units import Scale

if TYPE_CHECKING:
    from tests.helpers.browser import Browser

_SOURCE = files("xsp_analyze.pages") / "assets" / "units.js"
T = "\u202f"


def _thin(text: str) -> str:
    return text.replace("_", T)


@pytest.mark.parametrize(
    ("value", "unit", "read"),
    [
        (177_905_000, "ns", "178_ms"),
        (12_300, "ns", "12.3_µs"),
        (999, "ns", "999_ns"),
        (999_500, "ns", "1.00_ms"),  # would read 1000 µs once rounded
        (999_499, "ns", "999_µs"),
        (0, "ns", "0_ns"),
        (512.4, "ns", "512_ns"),
        (-1_234.5, "ns", "-1.23_µs"),
        (12_345e9, "ns", "12_345_s"),
        (1 << 30, "byte", "1.00_GiB"),
        (1010 << 10, "byte", "0.986_MiB"),
        (17, "byte", "17_B"),
        (3.35e12, "byte/s", "3.35_TB/s"),
        (53.6e9, "flop", "53.6_GFLOP"),
        (989.4e12, "flop/s", "989_TFLOP/s"),
        (1.41e9, "Hz", "1.41_GHz"),
        (0.5, "share", "50.0_%"),
        (1.0, "share", "100_%"),
        (0.000_123, "share", "0.0123_%"),
        (1e-9, "share", "<0.0001_%"),
        (-1e-9, "share", ">-0.0001_%"),
        (None, "ns", "-"),
    ],
)
def test_a_single_number_has_three_digits_and_the_unit_that_suits(value: float | None, unit: str, read: str) -> None:
    assert units.quantity(value, unit) == _thin(read)


@pytest.mark.parametrize(
    ("value", "read"),
    [(1230, "1_230"), (1_234_567, "1_234_567"), (17.46, "17.5"), (0.5, "0.5"), (2.0, "2"), (0, "0"), (None, "-")],
)
def test_things_are_counted_whole(value: float | None, read: str) -> None:
    assert units.count(value) == _thin(read)


def test_one_thing_is_not_many() -> None:
    read = [units.count_of(n, "kernel", "kernels") for n in (0, 1, 1230)]
    assert read == [
        "0 kernels",
        "1 kernel",
        f"1{T}230 kernels",
    ]


@pytest.mark.parametrize(
    ("values", "unit", "read"),
    [
        ((177_905_000, 178_200_000), "ns", ("177.91_ms", "178.20_ms")),  # a difference of 0.295 ms shows as 0.29
        ((1_230_000, 4_560_000), "ns", ("1.23_ms", "4.56_ms")),
        ((178_000_000, 12_345_678), "ns", ("178_ms", "12.3_ms")),
        ((5e9, 5e9), "ns", ("5.00_s", "5.00_s")),
        ((1_000_000_000, 1_000_000_001), "ns", ("1.000000000_s", "1.000000001_s")),
        ((0.5, 0.5012), "share", ("50.00_%", "50.12_%")),
        ((None, 3e6), "ns", ("-", "3.00_ms")),
        ((7, 5), "ns", ("7_ns", "5_ns")),
    ],
)
def test_compared_numbers_have_the_digits_that_tell_them_apart(
    values: tuple[float | None, ...], unit: str, read: tuple[str, ...]
) -> None:
    assert units.apart(values, unit) == list(map(_thin, read))


def test_a_column_keeps_one_unit_and_three_digits_a_cell() -> None:
    column = Column("time_ns", pl.Int64(), "", "ns")
    values = [1_234_567, 45_678, 3_210, 12]
    scale = units.scale_of(column, values)
    assert [units.number(v, scale) for v in values] == [f"1{T}235", "45.7", "3.21", "0.0120"]
    assert scale.unit == "µs"


def test_a_column_of_whole_numbers_stays_whole() -> None:
    scale = units.scale_of(Column("calls", pl.Int64(), ""), [3, 1230])
    assert [units.number(v, scale) for v in (3, 1230)] == ["3", f"1{T}230"]
    assert units.number(3, units.scale_of(Column("calls", pl.Float64(), ""), [3.0, 0.5])) == "3.00"


def test_the_exact_value_is_not_rounded() -> None:
    assert units.exact(1_234_567, "ns") == _thin("1_234_567_ns")
    assert units.exact(-0.123456789, "") == "-0.123456789"
    assert units.exact(None, "ns") == "unknown"


def test_a_terminal_gets_plain_spaces_in_numbers_and_names_keep_theirs() -> None:
    assert units.plain_spaces(_thin("took 1_230_ms, 5_%, a_b")) == f"took 1 230 ms, 5 %, a{T}b"


_VALUES = (0, 1, 5, 12, 17.5, 99.95, 999, 999.4, 999.5, 1000, 1023, 1024, 1010 << 10, 1230, 12_300, 123_456, 999_500,
           1_234_567, 177_905_000, 12_345_678_901, 1 << 40, 9_876_543_210_123, 0.5, 0.125, 0.1235, 0.99995, 0.0123,
           0.00456, 0.000049, 0.00012, 1.005, 2.5, -3, -0.0625, -1234.5, None)  # fmt: skip
_UNITS = ("ns", "byte", "flop", "flop/s", "byte/s", "Hz", "%", "share")
_SCALES = (("ms", 1e6, None), ("", 1, None), ("", 1, 0), ("%", 0.01, 1), ("x", 1, 3))


@pytest.mark.browser
def test_pages_and_python_write_every_number_alike(browser: Browser) -> None:
    pairs = [(a, b) for a in _VALUES for b in (_VALUES[7], _VALUES[18], a)]
    inputs = {"values": _VALUES, "units": _UNITS, "scales": _SCALES, "pairs": pairs}
    script = f"""({{ values, units, scales, pairs }}) => {{
      {_SOURCE.read_text("utf-8")}
      return {{
        quantity: units.map((unit) => values.map((value) => quantity(value, unit))),
        apart: units.map((unit) => pairs.map((pair) => apart(pair, unit))),
        count: values.map((value) => count(value)),
        shown: scales.map(([, divisor, decimals]) => values.map((value) => numberText(value, {{ divisor, decimals }}))),
        exact: values.map((value) => exact(value, "ns")),
        short: values.map((value) => `${{time(value)}} ${{percent(value)}}`),
      }};
    }}"""
    page = browser.new_page()
    in_page = page.evaluate(script, inputs)
    page.close()
    assert in_page == {
        "quantity": [[units.quantity(v, unit) for v in _VALUES] for unit in _UNITS],
        "apart": [[units.apart(pair, unit) for pair in pairs] for unit in _UNITS],
        "count": [units.count(v) for v in _VALUES],
        "shown": [[units.number(v, Scale(*scale)) for v in _VALUES] for scale in _SCALES],
        "exact": [units.exact(v, "ns") for v in _VALUES],
        "short": [f"{units.duration(v)} {units.share(v)}" for v in _VALUES],
    }
