"""Facts of the project's own small files, of formats that no real file is of, or that need little reading."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sqlite3
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand import nsight

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_SUM = "select coalesce(sum(end - start), 0) from CUPTI_ACTIVITY_KIND_{}"


def _document(path: Path) -> Any:  # noqa: ANN401 (JSON)
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)


def _events(path: Path) -> list[dict[str, Any]]:
    document = _document(path)
    return document if isinstance(document, list) else document["traceEvents"]


def named_events_ms(path: Path, name: str) -> list[float]:
    """Durations of complete events of a name, in order."""
    return [one["dur"] / 1000 for one in _events(path) if one.get("ph") == "X" and one["name"] == name]


def category_ms(path: Path, category: str) -> float:
    """Durations of events of a category, added up."""
    return float(sum(one["dur"] for one in _events(path) if one.get("cat") == category) / 1000)


def begun_and_ended_ms(path: Path, category: str) -> list[float]:
    """What lies between each `B` and the next `E` of a category."""
    events = [one for one in _events(path) if one.get("cat") == category and one["ph"] in "BE"]
    return [(end["ts"] - begin["ts"]) / 1000 for begin, end in zip(events[::2], events[1::2], strict=True)]


def elapsed_ms(path: Path, phases: str) -> float:
    """First to last time of events of these phases."""
    times = [one["ts"] for one in _events(path) if one["ph"] in phases]
    return float((max(times) - min(times)) / 1000)


def stream_kernels_ms(path: Path) -> float:
    """A TensorFlow timeline's events on lanes of single streams, added up."""
    events = _events(path)
    lanes = {one["pid"]: one["args"]["name"] for one in events if one["ph"] == "M" and one["name"] == "process_name"}
    mine = [one["dur"] for one in events if one["ph"] == "X" and re.search(r"stream:\d", lanes[one["pid"]])]
    return float(sum(mine) / 1000)


def jaeger_durations_ms(path: Path, name: str) -> list[list[float]]:
    """Durations of spans of a name, by trace, in order of start."""
    traces = [
        sorted((one["startTime"], one["duration"]) for one in trace["spans"] if one["operationName"] == name)
        for trace in _document(path)["data"]
    ]
    return [[duration / 1000 for _, duration in spans] for spans in traces if spans]


def jaeger_model_level_ms(path: Path, name: str) -> float:
    """Their median at the outermost level: the trace that profiles least, whose times are the shortest."""
    return sorted(min(jaeger_durations_ms(path, name)))[1]


def snapshot_peak_bytes(path: Path) -> int:
    """The most allocated at once: today's amount, taken back event by event to where the history begins."""
    document = _document(path)
    sizes = {"alloc": 1, "free_completed": -1}
    changes = [sizes.get(one["action"], 0) * one["size"] for one in document["device_traces"][0]]
    now = sum(segment["allocated_size"] for segment in document["segments"])
    levels = [now - sum(changes[at:]) for at in range(len(changes) + 1)]
    return int(max(levels))


def timeline_peak_bytes(path: Path) -> int:
    """The largest sum over categories."""
    _, sizes = _document(path)
    return int(max(sum(row) for row in sizes))


def raw_timeline_peak_bytes(path: Path) -> int:
    """Actions 1 (there before), 2 (created) and 4 (destroyed, a negative size) change what is allocated; 3 does not."""
    allocated = peak = 0
    for _, action, size, _ in _document(path):
        allocated += size if action in (1, 2, 4) else 0
        peak = max(peak, allocated)
    return peak


def latency_ms(path: Path) -> list[float]:
    """Of a `trtexec --exportTimes`: from the earlier of enqueue and copy in to the end of the copy out."""
    out = []
    for one in _document(path):
        start = min(one[key] for key in ("startEnqMs", "startH2dMs", "startInMs") if key in one)
        out.append(one.get("endD2hMs", one.get("endOutMs")) - start)
    return out


def layer_average_ms(path: Path) -> float:
    """Of a `trtexec --exportProfile`: the layers' averages, added up."""
    return float(sum(one.get("averageMs", 0) for one in _document(path)))


def nvprof_summary_ms(path: Path) -> float:
    """Time of `GPU activities` of a summary: the column `Time` in ms by its second line, or units as text."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    if '"Type"' in text:
        rows = list(csv.DictReader(io.StringIO(text[text.index('"Type"') :])))
        return sum(float(row["Time"]) for row in rows if row["Type"] == "GPU activities")
    body = text[text.index("GPU activities:") : text.index("API calls:")]
    return sum(float(number) for number in re.findall(r"%\s+([\d.]+)ms", body))


def nvprof_device_ms(path: Path) -> float:
    """Rows of a GPU trace in CSV that name a device: durations, in us by its second line."""
    text = path.read_text()
    rows = list(csv.DictReader(io.StringIO(text[text.index('"Start"') :])))
    assert rows[0]["Duration"] == "us"
    return sum(float(row["Duration"]) for row in rows[1:] if row.get("Device")) / 1000


def nvprof_text_ms(path: Path) -> float:
    """Second column of the rows of a GPU trace as text."""
    scale = {"us": 1e-3, "ms": 1.0}
    rows = [line.split() for line in path.read_text().splitlines() if re.match(r"\s*[\d.]+m?s\s+[\d.]", line)]
    parts = [re.fullmatch(r"([\d.]+)(us|ms)", row[1]) for row in rows]
    return sum(float(part[1]) * scale[part[2]] for part in parts if part)


def nvprof_calls(path: Path) -> int:
    """Rows of an API trace."""
    text = path.read_text()
    return len(list(csv.DictReader(io.StringIO(text[text.index('"Start"') :])))) - 1


def nvprof_database_ms(path: Path) -> float:
    """Kernels, copies and fills of the database, added up."""
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    total = sum(
        base.execute(_SUM.format(table)).fetchone()[0] for table in ("KERNEL", "CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
    )
    base.close()
    return float(total / 1e6)


def metric_percent(path: Path, kernel: str, metric: str) -> float:
    """The average of a metric of a kernel, without its sign."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("==")]
    rows = csv.DictReader(lines)
    return next(float(r["Avg"].rstrip("%")) for r in rows if r["Kernel"] == kernel and r["Metric Name"] == metric)


def dump_device_ms(path: Path) -> float:
    """Lines of a dump that are device work; where the file is Parquet, those of its twin in JSON lines."""
    twin = path if path.suffix == ".gz" else path.parents[1] / "training_synthetic" / "dump.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(twin.read_bytes()).decode().splitlines()]
    kinds = {"MEMCPY", "MEMCPY2", "MEMSET", "KERNEL", "CONCURRENT_KERNEL", "GRAPH_TRACE"}
    return float(sum(one["end"] - one["start"] for one in lines if one.get("kind") in kinds) / 1e6)


def export_lines_ms(path: Path) -> float:
    """Device work (`CudaEvent` with a kernel or a copy) of an export as lines of JSON."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [one["CudaEvent"] for one in lines if "CudaEvent" in one]
    return sum(int(one["endNs"]) - int(one["startNs"]) for one in mine) / 1e6


def stats_device_ms(path: Path) -> float:
    """Rows of the table of device activities that `nsys stats` printed."""
    total, inside = 0, False
    for line in path.read_text().splitlines():
        if line.startswith("Start (ns)"):
            inside = "CorrId" in line
        elif inside and re.match(r"\d+,\d+,", line):
            total += int(line.split(",")[1])
    return total / 1e6


def ranges_ms(path: Path, pattern: str) -> list[float]:
    """Durations of NVTX ranges of such names, in order of start."""
    mine = sorted((start, end) for text, start, end, _ in nsight.read(path).ranges if re.search(pattern, text or ""))
    return [(end - start) / 1e6 for start, end in mine]


def nsight_device_ms(path: Path) -> float:
    """Device work of the export, added up: kernels, copies, fills, and graphs that are recorded only as a whole."""
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = {row[0] for row in base.execute("select name from sqlite_master")}
    graphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    as_a_whole = base.execute(_SUM.format("GRAPH_TRACE")).fetchone()[0] if graphs in tables else 0
    base.close()
    return (sum(one.duration for one in nsight.read(path).device) + as_a_whole) / 1e6


def dispatch_ms(path: Path) -> float:
    """Kernels and copies of rocprofv3, as one JSON or as a folder of CSV, added up."""
    if path.is_dir():
        rows = [
            (int(row["Start_Timestamp"]), int(row["End_Timestamp"]))
            for name in ("7_kernel_trace.csv", "7_memory_copy_trace.csv")
            for row in csv.DictReader(io.StringIO((path / name).read_text()))
        ]
    else:
        records = _document(path)["rocprofiler-sdk-tool"][0]["buffer_records"]
        kinds = (records["kernel_dispatch"], records["memory_copy"])
        rows = [(one["start_timestamp"], one["end_timestamp"]) for kind in kinds for one in kind]
    return sum(end - start for start, end in rows) / 1e6


def timed_ms(path: Path) -> list[float]:
    """What the run without a profiler timed."""
    return [one / 1e6 for one in json.loads((path / "M" / "run.json").read_text())["step_durations_ns"]]


def ncu_duration_us(path: Path) -> float:
    """Durations of the kernels: by the raw page's column in ns, or the details page's metric in us."""
    text = path.read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text[text.index('"ID"') :])))
    if "Metric Name" in rows[0]:
        return sum(float(row["Metric Value"]) for row in rows if row["Metric Name"] == "Duration")
    mine = [row["gpu__time_duration.sum"] for row in rows if row["ID"].isdigit()]
    return sum(float(one.replace(",", "")) for one in mine) / 1000


def used_bytes(path: Path) -> int:
    """The most memory in use in any sample."""
    file = path if path.is_file() else path / "nvml.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return int(max(one.get("memory_used_bytes", 0) for one in lines))


def numbered_names(path: Path, name: str) -> int:
    """How many different numbers stand behind the name in the bytes of the file."""
    return len(set(re.findall(name.encode() + rb"(\d+)", path.read_bytes())))
