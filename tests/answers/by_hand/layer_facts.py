"""Facts on layers and steps where device time is spent today: captured graphs, compiled code, servers' steps."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand.intervals import clipped, length
from tests.answers.by_hand.kineto import Event, Trace, read

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_CALL = "## Call CompiledFxGraph "


def _innermost_module(trace: Trace, call: Event) -> str:
    around = [one for one in trace.python if one.start <= call.start and call.end <= one.end]
    return min(around, key=lambda one: one.duration).name.removeprefix("nn.Module: ")


def _captures(trace: Trace) -> list[list[str]]:
    """Of each capture, in order, the module around each launch between its begin and its end."""
    out: list[list[str]] = []
    for call in trace.calls:
        if "BeginCapture" in call.name:
            out.append([])
        elif "LaunchKernel" in call.name:
            out[-1].append(_innermost_module(trace, call))
    return out


def captured_modules_us(path: Path) -> list[float]:
    """What each module's call took the host while it was captured."""
    return [one.duration / 1000 for one in read(path).python]


def captured_kernels(path: Path) -> list[int]:
    """Launches that were captured, and activities that ran on a device."""
    trace = read(path)
    return [sum(map(len, _captures(trace))), len(trace.device)]


def replayed_layers_us(path: Path, capture: str) -> list[float]:
    """Device time of each module in a mean step, in order: captured modules by replay, others by what launched it.

    The n-th graph launch of a step replays the n-th capture, whose kernels are in the order of the launches in it.
    """
    captures = _captures(read(path.parent / capture))
    trace = read(path)
    steps = [one for one in trace.annotations if one.name.startswith("execute_context")]
    times: Counter[str] = Counter()
    for step in steps:
        calls = [one for one in trace.calls if step.start <= one.start < step.end]
        replays = [one for one in calls if "GraphLaunch" in one.name]
        modules = {one.args["correlation"]: names for one, names in zip(replays, captures, strict=True)}
        for call in calls:
            mine = [one for one in trace.device if one.args["correlation"] == call.args["correlation"]]
            names = modules.get(call.args["correlation"]) or [_innermost_module(trace, call)]
            for kernel, name in zip(mine, names, strict=True):
                times[name] += kernel.duration
    return [time / len(steps) / 1000 for time in times.values()]


def _decoding(trace: Trace) -> list[Event]:
    """Steps without a prefill in which as many requests decode as in any: neither ramp-up nor drain."""
    pattern = r"execute_context_(\d+)\(\d+\)_generation_(\d+)\(\d+\)"
    named = ((one, re.fullmatch(pattern, one.name)) for one in trace.annotations)
    steps = [(one, int(match[1]), int(match[2])) for one, match in named if match]
    full = max(decoding for _, _, decoding in steps)
    return [one for one, prefilling, decoding in steps if not prefilling and decoding == full]


def decoded_token_per_s(path: Path) -> float:
    """A token a request in each step, over the time of these steps."""
    steps = _decoding(read(path))
    tokens = [int(one.name.rpartition("(")[2].rstrip(")")) for one in steps]
    return sum(tokens) / (sum(one.duration for one in steps) / 1e9)


def decoding_busy_percent(path: Path) -> float:
    """Of the time of these steps, that in which the device worked."""
    trace = read(path)
    work = [one.interval for one in trace.device]
    steps = _decoding(trace)
    busy = sum(length(clipped(work, one.interval)) for one in steps)
    return 100 * busy / sum(one.duration for one in steps)


def _outermost(events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for one in sorted(events, key=lambda event: (event.start, -event.end)):
        if not out or one.start >= out[-1].end:
            out.append(one)
    return out


def _operator(kernel: str) -> str:
    """What a kernel's name in generated code is called in a trace, without the number of its graph."""
    library = re.fullmatch(r"extern_kernels\.(\w+)|torch\.ops\.aten\.(\w+)\.\w+", kernel)
    return f"aten::{library[1] or library[2]}" if library else kernel


def compiled_layer_us(path: Path, layer: str) -> float:
    """A layer's time in a mean step, a call of the forward graph and of the backward: kernels' times by weights.

    The n-th call of a kernel's name in the code is the n-th outermost operator of that name in the graph's call.
    """
    noted = json.loads((path / "compiled_code.json").read_text())
    number = next(at for at, one in enumerate(noted["modules"]) if one["name"] == layer)
    graphs = {one["region"]: one for one in noted["graphs"]}
    trace = read(path / "trace.json.gz")
    steps, time = 0, 0.0
    for region in (one for one in trace.annotations if one.name.startswith(_CALL)):
        graph = graphs[region.name.split()[3]]
        inside = [one for one in trace.operators if region.start < one.start and one.end < region.end]
        steps += graph["direction"] == "forward"
        time += _share(graph["kernels"], _outermost(inside), number)
    return time / steps


def _share(kernels: list[dict[str, Any]], operators: list[Event], module: int) -> float:
    called: defaultdict[str, list[int]] = defaultdict(list)
    for one in operators:
        called[re.sub(r"^graph_\d+_", "", one.name)].append(one.duration)
    total: float = sum(
        called[_operator(kernel["name"])][kernel["call"]] * part["weight"] / 1000
        for kernel in kernels
        for part in kernel["modules"]
        if part["module"] == module
    )
    return total


def logged_linear_us(path: Path, layer: str) -> float:
    """The time of the matrix product that the layer's linear became: the graph calls them in the order of the log."""
    log = (path / "compiler.log").read_text()
    linears: list[str] = re.findall(r"linear\(.*?self_modules_(\w+?)_parameters_weight", log)
    names = [one.replace("_modules_", ".") for one in linears]
    products = [one for one in read(path / "trace.json").operators if one.name == "aten::mm"]
    duration_us: float = dict(zip(names, products, strict=True))[layer].duration / 1000
    return duration_us


def host_ms_a_step(path: Path, pattern: str) -> float:
    """What operators and ranges of these names take of a mean `ProfilerStep#N`, those in each other once."""
    trace = read(path)
    steps = [one.interval for one in trace.host_steps()]
    named = [one.interval for one in (*trace.operators, *trace.annotations) if re.match(pattern, one.name)]
    return sum(length(clipped(named, step)) for step in steps) / len(steps) / 1e6
