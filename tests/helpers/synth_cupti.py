"""Builds CUPTI dumps for tests and fixtures, a record a call."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_ingest.staging.cupti import TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROCESS", "THREAD", "CuptiDump"]

PROCESS, THREAD = 4242, 140_000_000_000_001
OS_THREAD = 4243  # as a framework numbers the same thread
_GEMM = "_Z4gemmIfLi128EEvPKT_S2_PS0_i"  # void gemm<float, 128>(float const*, float const*, float*, int)


@dataclass
class CuptiDump:
    """Records in the order of the calls; times in ns."""

    header: dict[str, object] = field(default_factory=dict)
    records: list[dict[str, object]] = field(default_factory=list)

    def add(self, kind: str, **fields: object) -> None:
        """A record of any kind."""
        self.records.append({"kind": kind, **fields})

    def call(self, start: int, end: int, name: str, correlation: int, **fields: object) -> None:
        """A runtime call (or by `kind` a driver call)."""
        shared = {"correlationId": correlation, "processId": PROCESS, "threadId": THREAD}
        values: dict[str, object] = {**shared, **fields}
        self.add(str(values.pop("kind", "RUNTIME")), start=start, end=end, name=name, **values)

    def kernel(self, start: int, end: int, correlation: int, **fields: object) -> None:
        """A kernel on device 0, stream 7."""
        shared = {"name": _GEMM, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
        self.add("CONCURRENT_KERNEL", start=start, end=end, **{**shared, **fields})

    def operator(self, start: int | None, end: int | None, name: str, external: int, **fields: object) -> None:
        """An operator of the framework, on the thread as the framework numbers it."""
        shared = {"processId": PROCESS, "threadId": OS_THREAD, "externalId": external, "externalKind": 3}
        self.add("FRAMEWORK_OPERATOR", start=start, end=end, name=name, **{**shared, **fields})

    def external(self, external: int, correlation: int) -> None:
        """Says that the call with this correlation id was made under this external id."""
        self.add("EXTERNAL_CORRELATION", externalKind=3, externalId=external, correlationId=correlation)

    def launch(self, start: int, name: str, number: int, busy: tuple[int, int], **fields: object) -> None:
        """An operator of 9 us, its cudaLaunchKernel, and its kernel at `busy`; `number` is both ids."""
        self.operator(start, start + 9_000, name, number)
        self.call(start + 2_000, start + 6_000, "cudaLaunchKernel_v7000", number)
        self.external(number, number)
        self.kernel(busy[0], busy[1], number, **fields)

    def _head(self) -> dict[str, object]:
        usual = {"format": "xsp cupti dump", "version": 1, "pid": PROCESS, "clock": "CLOCK_REALTIME", "epoch_ns": 0}
        return {**usual, **self.header}

    def lines(self, *, dropped: int = 0, end: bool = True) -> bytes:
        """The dump as JSON lines."""
        rows: list[Mapping[str, object]] = [self._head(), *self.records]
        if end:
            rows.append({"kind": "END", "records": len(self.records), "dropped": dropped})
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    def parquet(self, *, dropped: int = 0) -> bytes:
        """The dump as Parquet."""
        used = dict.fromkeys(key for record in self.records for key in record)
        kinds = {name: pa.string() if TYPES.get(name) == pl.String else pa.int64() for name in used}
        schema = pa.schema(list(kinds.items()), {b"xsp cupti dump": json.dumps({**self._head(), "dropped": dropped})})
        target = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self.records, schema), target, row_group_size=20)
        return target.getvalue()
