"""The schema as declared: every column explained, time in ns, orders that exist."""

from __future__ import annotations

import pyarrow as pa
import pytest

from xsp_model import XspError
from xsp_model.schema import TABLES
from xsp_model.vocabulary import DEVICE_KINDS, LEVELS, Kind, Level


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_has_a_sentence_and_ns_are_int64(name: str) -> None:
    for column in TABLES[name].columns:
        assert column.doc.endswith("."), column.name
        if column.name.endswith("_ns"):
            assert column.type == pa.int64()
            assert column.unit in {"ns", ""}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_declared_order_names_columns(name: str) -> None:
    spec = TABLES[name]
    assert set(spec.order) <= {c.name for c in spec.columns}


def test_levels_run_from_the_application_to_the_kernel() -> None:
    assert LEVELS[0] == Level.APPLICATION
    assert LEVELS[-1] == Level.KERNEL
    assert Kind.SYNC not in DEVICE_KINDS


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = XspError("the file is empty", path="trace.json", advice="Copy it again")
    assert str(error) == "trace.json: the file is empty. Copy it again"
