"""Rules on compiled code and captured graphs: code made anew, functions compiled in parts, replays without layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.findings.phrases import RECORD_NODES, give_captures, times
from xsp_analyze.needs import holds
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count, count_of, duration, share
from xsp_model import Attribution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["graph_breaks", "graph_replays", "recompilation"]

_MAX_EVIDENCE = 3


@rule(
    "recompilation",
    "Code is compiled or loaded in the middle of the run",
    fires=f"Devices are idle for at least {limit.COMPILE_SHARE:.0%} of the steps after the first (of the trace, without"
    " steps) while the host compiles, captures or loads code for them; without device work, the step is that long in"
    " compilation.",
    why="A program is compiled for the shapes it meets. New shapes, or a guard that fails, compile it anew, and the"
    " device waits for that as in the first step.",
    gain="Idle device time while a span of compilation or of loading is open.",
    do="TORCH_LOGS=recompiles (jax_log_compiles in JAX) says what changed. Keep shapes the same (pad, bucket), mark"
    " those that vary: torch._dynamo.mark_dynamic, or dynamic=True; keep numbers that change out of what is compiled,"
    " or make them tensors. What is compiled once only: warm up before recording.",
    source="Our choice; spans are those of TorchDynamo, Inductor, graph capture, NVRTC, HIPRTC, XLA and Triton, and"
    " calls that load modules. Versions are those that TorchDynamo numbers in `Torch-Compiled Region: F/V` (PyTorch 2.5"
    " and later).",
    explains=("gpu-idle", "uneven-steps", "dominant-layer"),
)
def recompilation(facts: Facts) -> Iterator[Observation]:
    """Idle time inside spans of compilation, but those of each run's first step."""
    if facts.frames.of_trace.is_one_by_one:
        return
    spans = _after_first_steps(facts, facts.host.compilations)
    lost = facts.host.idle_within(spans)
    if spans.is_empty() or facts.share(lost) < limit.COMPILE_SHARE:
        return
    names = spans.group_by("name").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "name")
    averaged = facts.frames.averaged
    where = f" in {count_of(spans.select('run_id', 'step').n_unique(), 'step', 'steps')}" if averaged else ""
    waits = "devices are idle for" if holds(facts.frames.of_trace, "kernel") else "the rest waits for"
    yield Observation(
        f"While code is compiled or loaded{where}, {waits} {duration(lost)}{' a step on average' if where else ''},"
        f" {share(facts.share(lost))} of the time.{_versions(facts)}",
        [Evidence(clean(name), time / facts.step_count) for name, time in names.head(_MAX_EVIDENCE).iter_rows()],
        lost,
        "timeline",
    )


def _after_first_steps(facts: Facts, spans: pl.DataFrame) -> pl.DataFrame:
    """The spans, without those in each run's first step where steps are averaged."""
    if not facts.frames.averaged:
        return spans
    first = facts.frames.of_trace.all_steps.group_by("run_id").agg(pl.col("step").min().alias("first"))
    return spans.join(first, on="run_id", maintain_order="left").filter(pl.col("step") > pl.col("first"))


def _versions(facts: Facts) -> str:
    """How many versions ran of the function that ran in most, as a sentence; empty where each ran in one."""
    versions = facts.host.regions.calls.group_by("run_id", "function").agg(pl.col("version").n_unique())
    several = versions.filter(pl.col("version") > 1)["version"].to_list()
    if not several:
        return ""
    functions = count_of(len(several), "compiled function", "compiled functions")
    return f" {functions} ran in {'up to ' if len(several) > 1 else ''}{count(max(several))} versions."


@rule(
    "graph-breaks",
    "Compiled code is left in the middle of a function",
    fires=f"A step has on average at least {limit.BREAKS} calls of a compiled region within that of another.",
    why="What TorchDynamo cannot follow (a value read on the host, a print, a call into C) ends the graph. The rest of"
    " the function is compiled by itself: nothing is fused across the break, the operators in it run one by one, and"
    " guards are checked again. Where a value is read, the host waits too.",
    gain="Idle device time in the breaks, and device time of what is launched in them; unknown where calls of compiled"
    " graphs are not recorded. What fusion across them would save is not in a trace.",
    do="TORCH_LOGS=graph_breaks names each with its line, and fullgraph=True makes it an error. Keep values on the"
    " device (torch.where instead of if; torch._dynamo.config.capture_scalar_outputs=True for .item()), move printing"
    " and logging out of the compiled function, and make a custom operator of a call that cannot be traced.",
    source="`Torch-Compiled Region` of PyTorch 2.1 and later, one within the other. Several compiled graphs in one"
    " region are none: backends split on purpose (vLLM at attention, DDP at its buckets). Where TorchDynamo gives a"
    " function up as a whole (a break in a loop), its callees are regions of their own, as if each had been compiled"
    " alone: of that this rule is silent.",
)
def graph_breaks(facts: Facts) -> Iterator[Observation]:
    """Breaks in the steps chosen, what runs in them, and how long devices have nothing to do meanwhile."""
    breaks = facts.host.graph_breaks
    number = breaks.height / facts.step_count
    if number < limit.BREAKS:
        return
    eager = facts.host.inside(facts.host.regions.eager)
    by_name = eager.group_by("name").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "name")
    evidence = [Evidence(clean(name), ns / facts.step_count) for name, ns in by_name.head(_MAX_EVIDENCE).iter_rows()]
    gain = None
    if breaks["from_graph"].all():
        idle, launched = facts.host.idle_within(breaks), facts.longest(_launched_in(facts, breaks))
        evidence += [Evidence("idle meanwhile", idle), Evidence("device time of what is launched there", launched)]
        gain = idle + launched
    a_step, operators = " a step" if facts.frames.averaged else "", round(eager.height / facts.step_count)
    spent = duration(facts.per_step(eager["duration_ns"]))
    ran = (
        f"; {count_of(operators, 'operator runs', 'operators run')} there, not compiled, for {spent}"
        if operators
        else ""
    )
    yield Observation(
        f"A function is left in the middle of its compiled code {times(number)}{a_step}{ran}.",
        [one for one in evidence if one.value],
        gain,
        "timeline",
    )


def _launched_in(facts: Facts, breaks: pl.DataFrame) -> pl.DataFrame:
    """The device activities whose launch lies in a break."""
    windows = breaks.select("run_id", pl.col("start_ns").alias("from_ns"), "duration_ns").sort("from_ns")
    work = facts.work.drop_nulls("call_start_ns").sort("call_start_ns").drop("duration_ns")
    joined = work.join_asof(windows, left_on="call_start_ns", right_on="from_ns", by="run_id", check_sortedness=False)
    return joined.filter(pl.col("call_start_ns") < pl.col("from_ns") + pl.col("duration_ns"))


@rule(
    "graph-replays",
    "Replays of graphs have no layers",
    fires=f"At least {limit.REPLAY_SHARE:.0%} of device time is replays of graphs that no layer is known of.",
    why="A replay is one call for thousands of kernels: the trace says neither which layer nor which operator each was"
    " captured from. Tables over layers, operators and phases leave them out.",
    gain="None: this is about the numbers.",
    do="Record the capture of the graphs too, and pass it: --graph-capture PATH. vLLM: --profiler-config with"
    " capture_torch_profiler (it writes capture_traces/ beside the trace). SGLang: --enable-profile-cuda-graph with"
    " SGLANG_GRAPH_BATCH_CAPTURE=1. A program of your own: capture them under torch.profiler. xsp info"
    " names captures that lie beside the trace.",
    source="Our choice. vllm/config/profiler.py (vLLM pull request 37524), SGLang pull request 24370.",
    needs=("kernel",),
    on_trust=True,
)
def graph_replays(facts: Facts) -> Iterator[Observation]:
    """Device time attributed to replays, over the whole trace."""
    replayed, total = facts.attributed.get(str(Attribution.GRAPH_REPLAY), 0.0), sum(facts.attributed.values())
    if not total or replayed / total < limit.REPLAY_SHARE:
        return
    is_of_torch = "torch_profiler" in facts.context.runs["format"].to_list()
    yield Observation(
        f"{share(replayed / total)} of device time is replays of graphs, of which no layer is known.",
        (Evidence("replayed", replayed), Evidence("all device time", total)),
        None,
        "ledger",
        do=f"{RECORD_NODES}." if not is_of_torch else give_captures(facts.captures) if facts.captures else "",
    )
