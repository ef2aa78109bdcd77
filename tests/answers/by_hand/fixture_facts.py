"""Facts of the project's own small files, of formats that no real file is of, or that need little reading."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sqlite3
import statistics
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand import nsight

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def jaeger_kernels_a_batch(path: Path, model: str, kernel: str) -> int:
    """Executions of each trace over its batches, which the traces that have any agree on."""
    batches = len(jaeger_durations_ms(path, model)[0])
    (count,) = {len(durations) for durations in jaeger_durations_ms(path, kernel)}
    return count // batches


def jaeger_kernel_ms_a_batch(path: Path, model: str, kernel: str) -> float:
    """Their durations, added up, likewise."""
    batches = len(jaeger_durations_ms(path, model)[0])
    (total,) = {round(sum(durations), 6) for durations in jaeger_durations_ms(path, kernel)}
    return total / batches


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


def rocpd_ms(path: Path) -> float:
    """Kernels and copies in rocprofv3's database, added up by its own views; times may stand in a table of theirs."""
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = {row[0] for row in base.execute("select name from sqlite_master")}
    total = 0
    for table in ("rocpd_kernel_dispatch", "rocpd_memory_copy"):
        if "rocpd_timestamp" in tables:
            query = (
                f"select sum(e.value - s.value) from {table} k join rocpd_timestamp s on s.id = k.start_id "  # noqa: S608
                "join rocpd_timestamp e on e.id = k.end_id"
            )
        else:
            query = f'select sum("end" - start) from {table}'  # noqa: S608
        total += base.execute(query).fetchone()[0]
    base.close()
    return total / 1e6


def rocpd_counted(path: Path, counter: str, kernel: str, factor: float) -> float:
    """All values of a counter in rocprofv3's database, of kernels of a name, added up, times what one of it is."""
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    query = (
        "select sum(v.value) from rocpd_pmc_event v join rocpd_info_pmc i on i.id = v.pmc_id "
        "join rocpd_kernel_dispatch k on k.event_id = v.event_id join rocpd_info_kernel_symbol s on s.id = k.kernel_id "
        "where i.name = ? and s.kernel_name like ?"
    )
    total = float(base.execute(query, (counter, f"%{kernel}%")).fetchone()[0])
    base.close()
    return total * factor


def _wire(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a protobuf message: number, and whole number or bytes."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
            yield key >> 3, value
        else:
            size, at = (8, at) if key & 7 == 1 else varint(at)
            yield key >> 3, data[at : at + size]
            at += size


def pftrace_ms(path: Path) -> float:
    """What `delta_ns` says on slices of kernels and copies, added up; names are numbered as they come."""
    texts: dict[tuple[int, int], bytes] = {}
    total = 0
    for _, packet in _wire(path.read_bytes()):
        fields = dict(_wire(packet)) if isinstance(packet, bytes) else {}
        for table, entry in _wire(fields.get(12, b"")):
            numbered = dict(_wire(entry))
            texts[table, numbered[1]] = numbered[2]
        event = list(_wire(fields.get(11, b"")))
        categories = {texts.get((1, value)) for number, value in event if number == 3}
        annotations = [dict(_wire(value)) for number, value in event if number == 4]
        if categories & {b"kernel_dispatch", b"memory_copy"}:
            total += sum(a[3] for a in annotations if texts.get((3, a.get(1, 0))) == b"delta_ns")
    return total / 1e6


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


def net_median_ms(path: Path) -> float:
    """The median of the net's delays, of lines or of a report."""
    text = path.read_text()
    if path.suffix == ".json":
        return float(statistics.median(json.loads(text)["data"]["NET latency"]["values"]))
    entries = [json.loads(line.partition("Observer ")[2]) for line in text.splitlines() if line.endswith("}")]
    return statistics.median(float(one["value"]) for one in entries if one["type"] == "NET")


def answered_ms(path: Path) -> float:
    """The mean latency of a load test's requests that were answered, from their own times."""
    if path.is_dir():
        records = [json.loads(line) for line in (path / "profile_export.jsonl").read_text().splitlines()]
        where = [one["metadata"] for one in records if not one["error"]]
        return float(statistics.mean((one["request_end_ns"] - one["request_start_ns"]) / 1e6 for one in where))
    result = json.loads(path.read_text().splitlines()[0])
    if "experiments" in result:
        requests = result["experiments"][0]["requests"]
        return float(statistics.mean((one["response_timestamps"][-1] - one["timestamp"]) / 1e6 for one in requests))
    lists = zip(result["ttfts"], result["itls"], result["errors"], strict=True)
    return float(1000 * statistics.mean(first + sum(gaps) for first, gaps, error in lists if not error))


def evaluated_ms(path: Path) -> float:
    """Layers of all systems of a folder of documents, of a list of benchmarks or a table of latencies, in sum."""
    if path.is_dir():
        listed = json.loads((path / "layer_tree.json").read_text())
        layers = [layer for one in listed for layer in one.get("layer_informations", ())]
        return float(sum(sum(layer["durations"]) for layer in layers) / 1e3)
    if path.suffix == ".csv":
        return sum(float(line.split(",")[-2]) for line in path.read_text().splitlines()[1:] if not line.startswith(","))
    benchmarks = [one["benchmark"] for one in json.loads(path.read_text())]
    return float(sum(one["RealTime"] for one in benchmarks if one["Name"] != "Total") / 1e6)


def mean_cpu_percent(path: Path) -> float:
    """Mean of `cpu_utilization` in percent."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    shares = [one["cpu_utilization"] for one in lines if "cpu_utilization" in one]
    return float(100 * sum(shares) / len(shares))


def received_per_s(path: Path) -> float:
    """Bytes received between the first and the last sample, a second."""
    lines = [json.loads(line) for line in (path / "system.jsonl").read_text().splitlines()]
    first, *_, last = [one for one in lines if "time_ns" in one]
    lasted_s = (last["time_ns"] - first["time_ns"]) / 1e9
    return float(last["network_receive_bytes"] / lasted_s)


def relative_l2_percent(path: Path) -> float:
    """How far the recorded elements of ML's output are from M's, in percent of M's norm."""
    one, two = (
        next(t for t in json.loads((path / run / "run.json").read_text())["tensors"] if t["kind"] == "output")
        for run in ("M", "ML")
    )
    values = list(zip(one["sampled_values"], two["sampled_values"], strict=True))
    return float(100 * (sum((a - b) ** 2 for a, b in values) / sum(a * a for a, _ in values)) ** 0.5)


def numbered_names(path: Path, name: str) -> int:
    """How many different numbers stand behind the name in the bytes of the file."""
    return len(set(re.findall(name.encode() + rb"(\d+)", path.read_bytes())))


def otlp_milliseconds(path: Path, name: str) -> float:
    """The durations of the spans of this name, added up; the file has a document a line."""
    documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    scopes = [scope for one in documents for resource in one["resourceSpans"] for scope in resource["scopeSpans"]]
    spans = [span for scope in scopes for span in scope["spans"] if span["name"] == name]
    return sum(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) for span in spans) / 1e6


def chrome_microseconds(path: Path, name: str) -> float:
    """The durations of the complete events of this name, added up."""
    return sum(float(event["dur"]) for event in _events(path) if event["ph"] == "X" and event["name"] == name)
