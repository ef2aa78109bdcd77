"""Facts of files of text: ncu and nvprof CSV, LoadGen logs, rocprofv3 and TensorFlow JSON."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand.intervals import length

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_SCALE = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


def _ncu(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8-sig")
    table = text[text.index('"ID"') :]
    return {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO(table))}


def ncu_metric(path: Path, name: str) -> float:
    """A metric of the one kernel; thousands are split by commas."""
    return float(_ncu(path)[name].replace(",", ""))


def ncu_gb_per_s(path: Path) -> float:
    """DRAM bytes read and written over the kernel's duration."""
    moved = ncu_metric(path, "dram__bytes_op_read.sum") + ncu_metric(path, "dram__bytes_op_write.sum")
    return moved / ncu_metric(path, "gpu__time_duration.sum")


def _nvprof(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith('"Start"'))
    names, units = next(csv.reader([lines[head]])), next(csv.reader([lines[head + 1]]))
    unit = dict(zip(names, units, strict=True))
    rows = [dict(zip(names, row, strict=True)) for row in csv.reader(lines[head + 2 :]) if row]
    return [
        {
            "name": row["Name"],
            "start": float(row["Start"]) * _SCALE[unit["Start"]],
            "end": float(row["Start"]) * _SCALE[unit["Start"]] + float(row["Duration"]) * _SCALE[unit["Duration"]],
            "stream": row["Stream"],
        }
        for row in rows
    ]


def nvprof_busy_percent(path: Path) -> float:
    """Union of all streams over first start to last end."""
    rows = [(round(row["start"]), round(row["end"])) for row in _nvprof(path)]
    return float(100 * length(rows) / (max(end for _, end in rows) - min(start for start, _ in rows)))


def nvprof_share_percent(path: Path, pattern: str) -> float:
    rows = _nvprof(path)
    mine = sum(row["end"] - row["start"] for row in rows if re.search(pattern, row["name"]))
    return float(100 * mine / sum(row["end"] - row["start"] for row in rows))


def nvprof_metric_kernels(path: Path) -> list[Any]:
    """Kernels of a metrics file, their calls, and whether any column is a duration."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("==")]
    rows = list(csv.DictReader(lines))
    kernels = {row["Kernel"]: int(row["Invocations"]) for row in rows}
    return [len(kernels), sum(kernels.values()), any("Duration" in name for name in rows[0])]


def loadgen_summary(path: Path, key: str) -> str:
    """What stands behind the key in the summary."""
    text = (path / "mlperf_log_summary.txt").read_text()
    return next(line.split(":", 1)[1].strip() for line in text.splitlines() if line.strip().startswith(key))


def loadgen_number(path: Path, key: str) -> float:
    return float(loadgen_summary(path, key))


def _dispatches(path: Path) -> list[tuple[str, int, int, int]]:
    with gzip.open(path, "rt") as file:
        tool = json.load(file)["rocprofiler-sdk-tool"][0]
    names = {one["kernel_id"]: one["formatted_kernel_name"] for one in tool["kernel_symbols"] if "kernel_id" in one}
    return [
        (
            names[one["dispatch_info"]["kernel_id"]],
            one["start_timestamp"],
            one["end_timestamp"],
            one["dispatch_info"]["agent_id"]["handle"],
        )
        for one in tool["buffer_records"]["kernel_dispatch"]
    ]


def rocprof_busy_percent(path: Path) -> float:
    rows = [(start, end) for _, start, end, _ in _dispatches(path)]
    return 100 * length(rows) / (max(end for _, end in rows) - min(start for start, _ in rows))


def rocprof_share_percent(path: Path, pattern: str) -> float:
    rows = _dispatches(path)
    mine = sum(end - start for name, start, end, _ in rows if re.search(pattern, name))
    return 100 * mine / sum(end - start for _, start, end, _ in rows)


def timeline_leading(path: Path) -> list[Any]:
    """The type of operator with most time and its percent of the time of all operators."""
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]
    times: Counter[str] = Counter()
    for one in events:
        times[one["args"]["op"]] += one["dur"]
    name, time = times.most_common(1)[0]
    return [name, 100 * time / sum(times.values())]


def timeline_elapsed_ms(path: Path) -> float:
    """First start to last end of what ran."""
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]
    return float((max(one["ts"] + one["dur"] for one in events) - min(one["ts"] for one in events)) / 1000)


def first_bytes(path: Path, count: int) -> str:
    """The file's first bytes, as text where they are."""
    return path.read_bytes()[:count].decode("ascii")


def nvprof_busy_ms(path: Path) -> list[float]:
    """Union of all streams of the one device."""
    return [length((round(row["start"]), round(row["end"])) for row in _nvprof(path)) / 1e6]


def rocprof_busy_ms(path: Path) -> list[float]:
    """Union of all dispatches of the one device."""
    return [length((start, end) for _, start, end, _ in _dispatches(path)) / 1e6]
