"""What NCCL says beside its NVTX ranges, as JSON and in memory's own form."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth_nsys import NsightFile
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_FIELDS = {  # schema: (name, type, offset) of each field
    11: (("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12)),
    12: (("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)),
}
_COMMUNICATOR = 0xFEDC_BA98_7654_3210  # beyond 63 bits, as hashes are


def _in_memory(schema: int, payload: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(payload), 32 + len(payload)) + payload


_INIT = _in_memory(11, struct.pack("<Qii", _COMMUNICATOR, 4, 0))


def _reduce(size: int) -> bytes:
    return _in_memory(12, struct.pack("<QQ", _COMMUNICATOR, size))


def _export(tmp_path: Path, *calls: tuple[str, bytes | str | None]) -> Path:
    """Ranges of NCCL one after the other, each with a launch in it and its kernel."""
    export = NsightFile("3.25")
    export.domain(1, "NCCL")
    for number, (name, _) in enumerate(calls):
        start = 1_000 * (number + 1)
        export.range(start, start + 100, name, domain=1)
        export.launch((start + 10, start + 20), (start + 50, start + 90), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    path = export.write(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        columns = "domainId INT, schemaId INT, type INT, name TEXT, offset INT"
        connection.execute(f"CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES ({columns})")
        entries = [(schema, kind, name, at) for schema, fields in _FIELDS.items() for name, kind, at in fields]
        connection.executemany(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, ?, ?)", 2 * entries
        )  # by process
        for number, (_, payload) in enumerate(calls):
            column = "jsonText" if isinstance(payload, str) else "binaryData"
            connection.execute(f"UPDATE NVTX_EVENTS SET {column} = ? WHERE start = ?", (payload, 1_000 * (number + 1)))  # noqa: S608
        connection.commit()
    return path


def _collectives(trace: Trace) -> list[tuple[object, ...]]:
    return trace.frame("collectives").drop("span_id", "group_ranks", "input_split", "output_split", "peer_rank").rows()


_GROUP = "0xfedcba9876543210"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclAllReduce", ("all_reduce", _GROUP, 4, 4096, 4096)),
        ("ncclAllGather", ("all_gather", _GROUP, 4, 4096, 4 * 4096)),
        ("ncclReduceScatter", ("reduce_scatter", _GROUP, 4, 4 * 4096, 4096)),
        ("ncclRecv", ("recv", _GROUP, 4, None, 4096)),
        ("ncclGroupEnd", (None, _GROUP, 4, None, None)),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_payload_says_communicator_and_size(
    name: str,
    expected: tuple[object, ...],
    as_json: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    text = f'{{"NCCL communicator ID": {_COMMUNICATOR}, "Message size [bytes]": "4,096"}}'
    path = _export(tmp_path, ("ncclCommInitRank", _INIT), (name, text if as_json else _reduce(4096)))
    assert _collectives(convert([path], Options())) == [(None, _GROUP, 4, None, None), expected]


def test_kernels_have_what_the_call_around_their_launch_says(tmp_path: Path) -> None:
    path = _export(tmp_path, ("ncclCommInitRank", _INIT), ("ncclAllReduce", _reduce(4096)))
    table = run(find("B08"), StepView.of(convert([path], Options()), "all")).table
    row = table.filter(pl.col("bytes").is_not_null()).row(0, named=True)
    assert (row["process_group"], row["group_size"], row["bytes"]) == (_GROUP, 4, 4096)
    assert row["bus_byte_per_s"] == pytest.approx(4096 / 40e-9 * 2 * 3 / 4)


@pytest.mark.parametrize(
    "payload",
    [
        b"short",
        _reduce(4096)[:-1],  # cut off
        _in_memory(99, struct.pack("<QQ", 1, 2)),  # a schema that is not listed
        _in_memory(12, struct.pack("<Q", 1)),  # shorter than its fields
        "{",
        "[1]",
    ],
)
def test_a_payload_of_another_form_is_counted_and_left_out(payload: bytes | str, tmp_path: Path) -> None:
    trace = convert([_export(tmp_path, ("ncclAllReduce", payload))], Options())
    assert _collectives(trace) == []
    ledger = trace.frame("ledger").filter(pl.col("kind") == "payload_unreadable")
    assert ledger["count"].to_list() == [1]


def test_ranges_without_a_payload_say_nothing(tmp_path: Path) -> None:
    trace = convert([_export(tmp_path, ("ncclAllReduce", None))], Options())
    assert _collectives(trace) == []
    assert trace.frame("ledger").filter(pl.col("kind") == "payload_unreadable").is_empty()
