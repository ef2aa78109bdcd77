"""What XSP says, through its public Python: each function takes an open trace and gives what a fact states."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import polars as pl

import xsp
from xsp import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp import ComparedTraces, OpenTrace
    from xsp_analyze.core import Result

__all__ = ["OF_PATH", "OverSteps"]

OF_PATH = {
    "refusal_says",
    "compared_ratio",
    "surely_slower",
    "called_faster",
    "devices_differ",
    "layers_of_replays_us",
}  # take a path, not a trace


class OverSteps:
    """An open trace whose analyses are over the steps named, such as `all`."""

    def __init__(self, trace: OpenTrace, steps: str) -> None:
        self.trace, self.steps = trace, steps

    def analyze(self, analysis: str) -> Result:
        """As the trace's own."""
        return self.trace.analyze(analysis, steps=self.steps)


def _rows(trace: OpenTrace, analysis: str) -> pl.DataFrame:
    return trace.analyze(analysis).to_polars()


def _percent_of_time(part: pl.DataFrame, rows: pl.DataFrame) -> float:
    return 100 * float(part["duration_ns"].sum()) / float(rows["duration_ns"].sum())


def column(trace: OpenTrace, analysis: str, column_name: str, unit: float = 1.0, **where: object) -> list[Any]:
    """The values of a column, in the rows where other columns have these values; divided by the unit."""
    rows = _rows(trace, analysis)
    for name, value in where.items():
        rows = rows.filter(pl.col(name) == value)
    return [one / unit if isinstance(one, (int, float)) else one for one in rows[column_name].to_list()]


def first(trace: OpenTrace, analysis: str, column_name: str, unit: float = 1.0, **where: object) -> Any:  # noqa: ANN401 (whatever the column holds)
    """The first of `column`."""
    return column(trace, analysis, column_name, unit, **where)[0]


def total(trace: OpenTrace, analysis: str, column_name: str, unit: float = 1.0, **where: object) -> float:
    """The sum of `column`."""
    return float(sum(column(trace, analysis, column_name, unit, **where)))


def answerable(trace: OpenTrace, analysis: str) -> bool:
    """Whether the trace holds what the analysis needs."""
    try:
        trace.analyze(analysis)
    except XspError:
        return False
    return True


def step_latencies_ms(trace: OpenTrace) -> list[float]:
    """A01's latency of each step."""
    return [one / 1e6 for one in first(trace, "A01", "durations")]


def launches_by_step(trace: OpenTrace) -> list[int]:
    """How much device work each step launched."""
    work = trace.table("spans").filter(pl.col("level").cast(pl.String) == "kernel", pl.col("step").is_not_null())
    return work.group_by("step").len().sort("step")["len"].to_list()


def step_bases(trace: OpenTrace) -> list[str]:
    """A01's basis of the steps."""
    bases: list[str] = first(trace, "A01", "bases")
    return bases


def utilisation_percent(trace: OpenTrace) -> list[float]:
    """B03's busy time over its window, of each device."""
    rows = _rows(trace, "B03")
    return [100 * busy / window for busy, window in zip(rows["busy_ns"], rows["window_ns"], strict=True)]


def mean_utilisation_percent(trace: OpenTrace) -> float:
    """That of the only device."""
    (one,) = utilisation_percent(trace)
    return one


def idle_parts_add_up(trace: OpenTrace) -> bool:
    """Whether in B03 the causes of idle time sum to idle time, and idle and busy to the window, to the rounding."""
    rows = _rows(trace, "B03")
    causes = [name for name in rows.columns if name.startswith("idle_") and name.endswith("_ns") and name != "idle_ns"]
    return all(
        abs(sum(row[name] or 0 for name in causes) - row["idle_ns"]) < 2 * len(causes)
        and abs(row["idle_ns"] + row["busy_ns"] - row["window_ns"]) < 2 * len(causes)
        for row in rows.iter_rows(named=True)
    )


def kernel_percent(trace: OpenTrace, pattern: str) -> float:
    """A10: device time of names with the pattern, of all device time."""
    rows = _rows(trace, "A10")
    return _percent_of_time(rows.filter(pl.col("kernel_name").str.contains(pattern)), rows)


def leading_kernel(trace: OpenTrace) -> str:
    """A10's first name, without return type and template arguments."""
    name = str(first(trace, "A10", "kernel_name")).removeprefix("void ")
    return re.split(r"[<(]", name)[0].split("::")[-1].strip()


def attributed(trace: OpenTrace, attribution: str) -> list[int]:
    """Device activities that are counted in this place of attribution, and all."""
    rows = trace.table("spans").filter(pl.col("level").cast(pl.String) == "kernel")
    return [rows.filter(pl.col("attribution").cast(pl.String) == attribution).height, rows.height]


def attributed_percent(trace: OpenTrace, attribution: str) -> float:
    """Device time in places of attribution whose name begins so, of all."""
    rows = trace.table("spans").filter(pl.col("level").cast(pl.String) == "kernel")
    mine = rows.filter(pl.col("attribution").cast(pl.String).str.starts_with(attribution))
    return _percent_of_time(mine, rows)


def finding(trace: OpenTrace, rule: str) -> bool:
    """Whether the finding is there."""
    return rule in trace.findings().to_polars()["id"].to_list()


def findings(trace: OpenTrace, rules: list[str]) -> list[bool]:
    """Which of the findings are there."""
    there = trace.findings().to_polars()["id"].to_list()
    return [rule in there for rule in rules]


def first_finding(trace: OpenTrace) -> str:
    """The first that is worth doing: doubts about the numbers come before it."""
    rows = trace.findings().to_polars().filter(~pl.col("on_trust"))
    return str(rows["id"][0])


def findings_say(trace: OpenTrace, pattern: str) -> bool:
    """Whether any finding's sentence or advice holds the pattern."""
    rows = trace.findings().to_polars()
    text = " ".join(str(one) for name in ("title", "sentence", "do") for one in rows[name])
    return bool(re.search(pattern, text))


def steps_count(trace: OpenTrace) -> int:
    """How many steps A01's latency stands for."""
    return len(first(trace, "A01", "durations"))


def largest(trace: OpenTrace, analysis: str, column_name: str, unit: float = 1.0, **where: object) -> float:
    """The largest of `column`."""
    return float(max(column(trace, analysis, column_name, unit, **where)))


def idle_cause_percent(trace: OpenTrace, cause: str) -> float:
    """Part of B03's idle time with the cause."""
    return 100 * total(trace, "B03", f"idle_{cause}_ns") / total(trace, "B03", "idle_ns")


def exposed_percent(trace: OpenTrace) -> float:
    """Part of B03's communication that nothing hides."""
    return 100 * total(trace, "B03", "exposed_communication_ns") / total(trace, "B03", "communication_ns")


def collectives_with_bytes(trace: OpenTrace) -> list[int]:
    """B08's rows whose bytes are known, and all."""
    sizes = column(trace, "B08", "bytes")
    return [sum(one is not None for one in sizes), len(sizes)]


def collective_ms(trace: OpenTrace, operation: str) -> list[float]:
    """B08's duration and waiting of a collective, a rank's mean in a step."""
    return [first(trace, "B08", name, 1e6, operation=operation) for name in ("duration_ns", "wait_ns")]


def straggler(trace: OpenTrace, operation: str) -> list[float]:
    """B08's rank that comes last, and in how many percent of the calls."""
    rank, share = (first(trace, "B08", name, operation=operation) for name in ("straggler", "straggler_share"))
    return [rank, 100 * share]


def kernel_percent_of_trace(trace: OpenTrace, pattern: str) -> float:
    """Device time of names with the pattern, of all device time of the trace, in its steps and outside."""
    rows = trace.table("spans").filter(pl.col("level").cast(pl.String) == "kernel")
    mine = rows.filter(pl.col("name").cast(pl.String).str.contains(pattern))
    return _percent_of_time(mine, rows)


def working_devices(trace: OpenTrace) -> list[int]:
    """Devices with activities."""
    return sorted(device["device_id"] for device in trace.info().summary.devices)


def dram_gb_per_s(trace: OpenTrace) -> float:
    """A15's bytes over A15's duration."""
    row = _rows(trace, "A15").row(0, named=True)
    return float((row["dram_read_bytes"] + row["dram_write_bytes"]) / row["kernel_duration_ns"])


def known_device_time(trace: OpenTrace) -> bool:
    """Whether A15 states a device time; a 0 is a statement."""
    return first(trace, "A15", "kernel_duration_ns") is not None


def leading_layer_type(trace: OpenTrace) -> list[Any]:
    """A06's first type and its percent."""
    row = _rows(trace, "A06").row(0, named=True)
    return [row["layer_type"], 100 * row["share"]]


def load_test(trace: OpenTrace, metric: str) -> float:
    """What a load test says of itself, by LoadGen's metrics."""
    rows = trace.table("metrics").filter(pl.col("metric").cast(pl.String) == metric)
    return float(rows["value"][0])


def device_sum_ms(trace: OpenTrace) -> float:
    """Device time of the whole trace, as `xsp info` states it."""
    return (trace.info().device_time_ns or 0) / 1e6


def device_sum_ms_as_us(trace: OpenTrace) -> float:
    """That in us."""
    return (trace.info().device_time_ns or 0) / 1e3


def device_sum_of_steps_ms(trace: OpenTrace) -> float:
    """A15's device time."""
    return float(first(trace, "A15", "kernel_duration_ns", 1e6))


def collective_ms_of_two_steps(trace: OpenTrace, operation: str) -> list[float]:
    """`collective_ms` of a mean step, twice."""
    return [2 * one for one in collective_ms(trace, operation)]


def refusal_says(path: Path, pattern: str) -> bool:
    """Whether the file is refused with a sentence that holds the pattern, where no profiler's tool is installed."""
    bare = {name: value for name, value in os.environ.items() if name not in ("PATH", "XSP_NCU", "XSP_NSYS")}
    try:
        with patch.dict(os.environ, bare, clear=True), patch.dict(sys.modules, {"ncu_report": None}):
            xsp.open(path, cache=False)
    except XspError as error:
        return bool(re.search(pattern, str(error)))
    return False


@lru_cache(maxsize=1)
def _compared(folder: Path, before: str, after: str) -> ComparedTraces:
    return xsp.open(folder / before, cache=False).compare(xsp.open(folder / after, cache=False))


def compared_ratio(path: Path, before: str, after: str) -> float:
    """How long a step takes after, over before."""
    return float(_compared(path, before, after).ratio or 0.0)


def surely_slower(path: Path, before: str, after: str) -> bool:
    """Whether the change of the model's latency is told to be more than noise."""
    document: dict[str, Any] = _compared(path, before, after).to_dict()
    model = document["model"]
    return bool(model["significant"]) and model["ratio"] > 1


def called_faster(path: Path, before: str, after: str, operator: str) -> bool:
    """Whether a row says of an operator that it surely became faster, and not that its time moved elsewhere."""
    rows = _compared(path, before, after).to_polars()
    mine = rows.filter((pl.col("name") == operator) & (pl.col("level") == "operator") & (pl.col("change") == "same"))
    faster = pl.col("significant") & (pl.col("ratio") < 1) & (pl.col("moved_to").list.len() == 0)
    return bool(mine.filter(faster).height)


def devices_differ(path: Path, before: str, after: str) -> bool:
    """Whether the comparison says that the devices differ."""
    document: dict[str, Any] = _compared(path, before, after).to_dict()
    return any(one["what"] == "device" for one in document["differences"])


def class_percent(trace: OpenTrace, kernel_class: str) -> float:
    """B17: device time of a class of kernels, of all."""
    return 100 * float(first(trace, "B17", "device_share", kernel_class=kernel_class))


def idle_call_percent(trace: OpenTrace, call: str) -> float:
    """B16: idle time that is named after a call, of all idle time of B03."""
    return 100 * total(trace, "B16", "idle_ns", call=call) / total(trace, "B03", "idle_ns")


def layers_of_replays_us(path: Path, capture: str) -> list[float]:
    """A11's device time of each layer, where the capture of the replayed graphs is given."""
    return column(xsp.open(path, cache=False, graph_captures=[path.parent / capture]), "A11", "kernel_duration_ns", 1e3)
