"""Integers from digits: what 64 bits hold and nothing else, wherever a file of strangers has digits."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_ingest.files.values import nanoseconds, natural
from xsp_ingest.formats.loadgen import statements
from xsp_ingest.formats.nsys.tables import nvtx
from xsp_ingest.formats.rocprofv3 import perfetto
from xsp_ingest.formats.xplane import host, wide
from xsp_ingest.formats.xplane.plane import Plane

_ENDLESS = ["9" * 20, "9" * 5_000]  # more than 64 bits hold; more than Python makes a number of


@given(st.integers(0, (1 << 63) - 1))
def test_what_fits_is_read(number: int) -> None:
    assert natural(str(number)) == natural(f"{number:019}") == number
    assert natural(str(number + (1 << 63)), bits=64) == number + (1 << 63)
    assert natural(str(number + (1 << 64)), bits=64) is None


@pytest.mark.parametrize("text", [*_ENDLESS, str(1 << 63), "", " 1", "1\n", "-1", "+1", "1_0", "\u0661", "1.0"])
def test_what_does_not_is_unknown(text: str) -> None:
    assert natural(text) is None


@pytest.mark.parametrize("digits", _ENDLESS)
def test_no_reader_of_digits_fails_on_more_than_fit(digits: str) -> None:
    assert nvtx._of_json(f'{{"{nvtx._COMMUNICATOR}": "{digits}"}}') == {}
    assert statements._COUNT.findall(f"{digits} warnings") == []
    assert perfetto._agent(f"GPU-{digits}") is None
    assert wide._INPUT.findall(f"f32[{digits}] f32[2,3]") == [("f32", "2,3")]
    assert nanoseconds(digits, 1) is None


@pytest.mark.parametrize("digits", _ENDLESS)
def test_a_plane_of_such_a_number_is_of_no_device(digits: str) -> None:
    plane = Plane.__new__(Plane)
    object.__setattr__(plane, "name", f"/device:GPU:{digits}")
    assert host.device_planes([plane]) == []


@pytest.mark.parametrize("cell", ["1e9999999", "1e-9999999", "9e99999999999999999999", "nan", "inf", "1e30", "", "-"])
def test_times_beyond_all_time_are_unknown(cell: str) -> None:
    assert nanoseconds(cell, 1_000_000_000) in {None, 0}
    assert pl.Series([nanoseconds(cell, 1)], dtype=pl.Int64).len() == 1
