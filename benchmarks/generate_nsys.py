"""Makes an Nsight SQLite file of any size: eight devices, a thread each, nested ranges, kernels behind their launches.

Tables, columns, types and the order of rows (by time) are those of real exports; SQLite itself makes the rows.
"""

# ruff: noqa: S608 (SQL is put together of literals of this module)
from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["grow_nsys", "length_ns"]

_THREADS = 8
_PERIOD_NS = 20_000  # from one launch of a thread to its next
_DEEPEST = 8  # ranges of 4, 8, 16, ... kernels, each in the next
_STEP_KERNELS = 4_096
_KERNEL_NAMES = 60
_GLOBAL = f"({1 << 48} | ({4242} << 24))"

_WORK = (
    "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, greenContextId INT,"
    " streamId INT NOT NULL, correlationId INT, globalPid INT"
)
_SCHEMA = f"""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE ANALYSIS_DETAILS (globalVid INT, duration INT NOT NULL, startTime INT NOT NULL, stopTime INT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (
    vmId INT, id INT NOT NULL, name TEXT, busLocation TEXT, totalMemory INT, smCount INT, clockRate INT,
    memoryBandwidth INT, computeMajor INT, computeMinor INT, cuDevice INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    {_WORK}, demangledName INT NOT NULL, shortName INT NOT NULL, mangledName INT, launchType INT, cacheConfig INT,
    registersPerThread INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL, gridZ INT NOT NULL, blockX INT NOT NULL,
    blockY INT NOT NULL, blockZ INT NOT NULL, staticSharedMemory INT NOT NULL, dynamicSharedMemory INT NOT NULL,
    localMemoryPerThread INT NOT NULL, localMemoryTotal INT NOT NULL, gridId INT NOT NULL, sharedMemoryExecuted INT,
    graphNodeId INT, sharedMemoryLimitConfig INT, qmdBulkReleaseDone INT, qmdPreexitDone INT, qmdLastCtaDone INT,
    graphId INT, clusterX INT, clusterY INT, clusterZ INT, clusterSchedulingPolicy INT,
    maxPotentialClusterSize INT, maxActiveClusters INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INT NOT NULL, end INT NOT NULL, eventClass INT NOT NULL, globalTid INT, correlationId INT,
    nameId INT NOT NULL, returnValue INT NOT NULL, callchainId INT);
CREATE TABLE NVTX_EVENTS (
    start INT NOT NULL, end INT, eventType INT NOT NULL, rangeId INT, category INT, color INT, text TEXT,
    globalTid INT, endGlobalTid INT, textId INT, domainId INT, uint64Value INT, int64Value INT, doubleValue REAL,
    uint32Value INT, int32Value INT, floatValue REAL, jsonTextId INT, jsonText TEXT, binaryData TEXT);
"""
_LAUNCH, _RECORD, _STEP, _FIRST_RANGE, _FIRST_KERNEL = 1, 2, 3, 100, 1_000
_COUNTED = "WITH RECURSIVE each(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM each WHERE i + 1 < {count})"
# Thread t launches its n-th kernel at n periods; the kernel runs 30 us later and is never longer than a period.
_N, _T = f"(i / {_THREADS})", f"(i % {_THREADS})"
_TID = f"({_GLOBAL} | (5000 + {_T}))"
_AT = f"({_N} * {_PERIOD_NS} + {_T} * 100 + 1000)"
_KERNELS = f"""
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
{_COUNTED}
SELECT {_AT} + 30000, {_AT} + 38000 + ({_N} * 7919) % 10000, {_T}, 1, NULL, 7, i + 1, {_GLOBAL},
    {_FIRST_KERNEL} + {_N} % {_KERNEL_NAMES}, {_FIRST_KERNEL} + {_N} % {_KERNEL_NAMES}, NULL, 0, 0,
    32, 64 + {_N} % 7, 1, 1, 256, 1, 1, 0, 1024, 0, 0, 0, 8192, NULL, 0, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 0, 0
FROM each
"""
_CALLS = f"""
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
{_COUNTED}
SELECT {_AT} + 5000, {_AT} + 9000, 0, {_TID}, i + 1, {_LAUNCH}, 0, NULL FROM each
UNION ALL
SELECT {_AT} + 10000, {_AT} + 11000, 0, {_TID}, i + 1 + {{count}}, {_RECORD}, 0, NULL FROM each WHERE {_N} % 7 < 3
ORDER BY 1
"""
_RANGE = f"""
SELECT {_AT} + {{depth}}, {_AT} + ({{kernels}} - 1) * {_PERIOD_NS} + 18000 - {{depth}}, 59, NULL, NULL, NULL, NULL,
    {_TID}, NULL, {{name}}, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM each WHERE {_N} % {{kernels}} = 0
"""


def grow_nsys(target: Path, kernels: int) -> int:
    """Writes the file; returns its rows of kernels, calls and ranges."""
    target.unlink(missing_ok=True)
    depths = [(depth, 4 << (_DEEPEST - depth), f"{_FIRST_RANGE + depth}") for depth in range(1, _DEEPEST + 1)]
    ranges = [_RANGE.format(depth=depth, kernels=size, name=name) for depth, size, name in depths]
    steps = _RANGE.format(depth=0, kernels=_STEP_KERNELS, name=_STEP)
    nested = f"INSERT INTO NVTX_EVENTS {_COUNTED} {' UNION ALL '.join([steps, *ranges])} ORDER BY 1"
    with closing(sqlite3.connect(target)) as connection:
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_SCHEMA}")
        _describe(connection, kernels)
        for statement in (_KERNELS, _CALLS, nested):
            connection.execute(statement.format(count=kernels))
        connection.commit()
        names = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]
    return sum(counts)


def length_ns(kernels: int) -> int:
    """How long so many kernels take."""
    return kernels // _THREADS * _PERIOD_NS


def _describe(connection: sqlite3.Connection, kernels: int) -> None:
    """Names, devices and what the file says of itself."""
    strings = [(_LAUNCH, "cudaLaunchKernel_v7000"), (_RECORD, "cudaEventRecord_v3020"), (_STEP, "step")]
    strings += [(_FIRST_RANGE + depth, f"block of depth {depth}") for depth in range(1, _DEEPEST + 1)]
    strings += [(_FIRST_KERNEL + n, f"void kernel_{n}<float, {n}>(float const*, float*)") for n in range(_KERNEL_NAMES)]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
    facts = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": "2026.2.1.210"}
    facts["EXPORT_SCHEMA_VERSION"] = "3.25.0"
    connection.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", facts.items())
    length = length_ns(kernels) + 1_000_000
    connection.execute("INSERT INTO ANALYSIS_DETAILS VALUES (NULL, ?, 0, ?)", (length, length))
    gpu = (80 << 30, 132, 1_980_000_000, 3_352_320_000_000, 9, 0)
    rows = [(n, f"Device {n}", "", *gpu, n) for n in range(_THREADS)]
    connection.executemany("INSERT INTO TARGET_INFO_GPU VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
