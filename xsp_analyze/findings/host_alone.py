"""Rules on a run of which only the host was recorded: what its time goes to, by operators and calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.frames.host_calls import COMPILATIONS, INPUT_CALLS, SYNC_CALLS
from xsp_analyze.frames.host_ranges import calls_of_system, host_self_time
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count_of, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.facts import Facts

__all__ = ["host_dominant", "short_operators"]


class _Group(NamedTuple):
    """Operators and calls of one purpose: a pattern of their names, what they are, what to do."""

    pattern: re.Pattern[str]
    what: str
    do: str


_WAITS = "Waiting for a device whose work was not recorded"
_GROUPS: Sequence[_Group] = tuple(
    _Group(re.compile(pattern, re.IGNORECASE), what, do)
    for pattern, what, do in (
        (INPUT_CALLS.removeprefix("(?i)"), "Fetching input",
         "Prepare input ahead, in other threads or processes; decode it once and beforehand."),
        (SYNC_CALLS.removeprefix("(?i)"), _WAITS,
         "Record the device's work too: these waits are as long as that takes."),
        (r"_local_scalar_dense|::item\b|is_nonzero", "Reading single values",
         "Read them once in many steps. Where a few take long they wait for a device, whose work is to be recorded."),
        (r"^(?:cuda|hip|cu)\w*(?:malloc|free|memalloc|memfree|hostalloc)", "Reserving and freeing memory",
         "Keep memory and use it again: an allocator that caches, no empty_cache() in the loop."),
        (r"addcdiv|addcmul|lerp_?$|optimizer\.step|_foreach_|_fused_(?:adam|sgd)", "Updating parameters",
         "Update all parameters at once: foreach=True or fused=True of the optimizer."),
        (r"gloo:|c10d::|^mpi_|allreduce|all_reduce", "Communication",
         "See who waits for whom, with the traces of all ranks; send less, or while computing."),
        (r"scaled_dot_product|(?:flash|efficient|native_multi_head)_?attention|fmha", "Attention",
         "All cores, where some are idle; shorter or packed sequences, a narrower type (bfloat16), or a device."),
        (r"(?:batch|layer|group|instance)_?norm", "Normalisation apart from what is before it",
         "Fold it into the convolution before it (inference), or let a compiler fuse it: torch.compile."),
        (r"copy_?$|::to$|contiguous|::clone|memcpy", "Copies and conversions",
         "Keep one type and layout from input to output; look at what asks for each copy (with_stack=True)."),
        (r"conv|(?:^|::|/)(?:mm|bmm|addmm|baddbmm|matmul|linear|einsum)|gemm", "Products and convolutions",
         "All cores, where some are idle; a narrower type (bfloat16); or a device."),
    )
)  # fmt: skip
_OF_SYSTEM: Sequence[_Group] = tuple(
    _Group(re.compile(pattern), what, do)
    for pattern, what, do in (
        (r"^wait(?:3|4|id|pid)?$|^system$|^p(?:open|close)$", "Waiting for child processes",
         "See which programs it starts, and do without them, or start them once and beside other work."),
        (r"^(?:p|f)?read(?:v|64)?|^fgets|^fscanf|^getline|^recv", "Reading files or from others",
         "Read more at once and from a nearer place; many imports and small files: fewer, or a cache of them."),
        (r"^(?:p|f)?write(?:v|64)?|^f(?:data)?sync|^fflush|^fput|^send", "Writing",
         "Write less often and more at once, from a thread of its own."),
        (r"^pthread_|^sem_|futex|^mtx_|^cnd_|barrier", "Waiting for other threads",
         "See which thread it waits for and what that does; the wait itself is nothing to mend."),
        (r"^p?poll|^p?select|^epoll_|^accept|^sigwait", "Waiting for events",
         "See who is to answer: another process, the network, a driver; the wait itself is nothing to mend."),
        (r"sleep", "Sleeping", "See who sleeps, and wait for what it waits for instead."),
        (r"^open|^fopen|^stat|^access|^ioctl", "Opening files and asking drivers",
         "Open what is used again once; of drivers the first calls make contexts and load code."),
    )
)  # fmt: skip
"""Calls of the operating system, by what a thread that is in one does or waits for."""
_OTHER = "See who calls it, with which sizes; call it less often on more at once, or let a compiler fuse it."


def _mean_over_runs(facts: Facts) -> pl.DataFrame:
    """The account of a mean rank, as the latency is: they run side by side."""
    runs = max(len(facts.frames.of_trace.layer_runs), 1)
    return facts.frames.once(host_self_time).with_columns(pl.col("count", "self_ns") / runs)


@rule(
    "host-dominant",
    "Operators or calls of one kind take much of the host's time",
    fires=f"Without device work: what one kind of operators and calls, or one operator, does itself takes at least"
    f" {limit.HOST_SHARE:.0%} of the time.",
    why="Where no device works, or none was recorded, the time is the host's: what it does longest bounds the run.",
    gain="The time that these take themselves, without operators and calls within them, in sum over threads;"
    " of waits for a device, and of calls of the operating system, unknown. Of these the main thread's alone count.",
    do=_OTHER,
    source="Our choice.",
    needs=("host alone",),
)
def host_dominant(facts: Facts) -> Iterator[Observation]:
    """Kinds of operators, most time first."""
    own = _mean_over_runs(facts).filter(~pl.col("name").str.contains(COMPILATIONS))  # `recompilation` is on these
    if own.is_empty() or not facts.latency_ns:
        return
    of_system = facts.frames.once(calls_of_system)
    own = own.join(of_system, on="name", how="anti", maintain_order="left")
    yield from _blocking_calls(facts, of_system)
    groups = [next((g for g in _GROUPS if g.pattern.search(name)), None) for name in own["name"]]
    kinds = pl.Series("kind", [g.what if g else clean(n) for g, n in zip(groups, own["name"], strict=True)])
    advice = {group.what: group.do for group in _GROUPS}
    for (kind,), rows in own.with_columns(kinds).group_by("kind", maintain_order=True):
        time = float(rows["self_ns"].sum())
        if facts.share(time) < limit.HOST_SHARE:
            continue
        names = [
            Evidence(f"{clean(name)} ({count_of(round(calls), 'call', 'calls')})", ns)
            for name, calls, ns in rows.head(limit.MAX_EVIDENCE).select("name", "count", "self_ns").iter_rows()
        ]
        calls = count_of(round(rows["count"].sum()), "call", "calls")
        yield Observation(
            f"{kind}: {duration(time)} in {calls}, {share(min(facts.share(time), 1.0))} of the time on the host.",
            names,
            None if kind == _WAITS else time,
            "B40",
            do=advice.get(str(kind), _OTHER),
            is_for_any=True,
        )


def _blocking_calls(facts: Facts, calls: pl.DataFrame) -> Iterator[Observation]:
    """Kinds of calls of the operating system in which the main thread spends much, most first.

    A pool of threads that wait side by side has no cost that a sum over them tells; what is waited for is elsewhere.
    """
    groups = [next((g for g in _OF_SYSTEM if g.pattern.search(name)), None) for name in calls["name"]]
    what = pl.Series("kind", [g.what if g else clean(n) for g, n in zip(groups, calls["name"], strict=True)])
    advice = {group.what: group.do for group in _OF_SYSTEM}
    kinds = calls.with_columns(what).filter(pl.col("main_ns") > 0).sort(-pl.col("main_ns"), "name")
    for (kind,), rows in kinds.group_by("kind", maintain_order=True):
        time, number = float(rows["main_ns"].sum()), int(rows["main_count"].sum())
        if facts.share(time) < limit.HOST_SHARE:
            continue
        first = rows.head(limit.MAX_EVIDENCE).select("name", "main_count", "main_ns")
        yield Observation(
            f"{kind}: the main thread spends {duration(time)} in {count_of(number, 'call', 'calls')} of the operating"
            f" system, {share(min(facts.share(time), 1.0))} of the time on the host.",
            [Evidence(f"{clean(n)} ({count_of(calls, 'call', 'calls')})", ns) for n, calls, ns in first.iter_rows()],
            None,
            "B40",
            do=advice.get(str(kind), _OTHER),
            is_for_any=True,
            about_ns=time,
        )


@rule(
    "short-operators",
    "Many operators are too short for what a call costs",
    fires=f"Without device work: at least {limit.MANY_SHORT} operators of less than {limit.SHORT_NS // 1000} µs on"
    f" average take at least {limit.HOST_SHARE:.0%} of the time.",
    why="Each call of an operator costs a microsecond or several, whatever it computes, and Python between calls more.",
    gain="The time of these operators; what Python takes between them is not counted.",
    do="Do more with each call: vectorise loops, batch small tensors, or compile (torch.compile, torch.jit).",
    source="Our choice. Dispatching an operator takes about a microsecond.",
    needs=("host alone",),
)
def short_operators(facts: Facts) -> Iterator[Observation]:
    """Operators called often that do little."""
    own = _mean_over_runs(facts)
    short = own.filter(pl.col("is_operator"), pl.col("self_ns") < limit.SHORT_NS * pl.col("count"))
    number, time = float(short["count"].sum()), float(short["self_ns"].sum())
    if number < limit.MANY_SHORT or facts.share(time) < limit.HOST_SHARE:
        return
    names = short.head(limit.MAX_EVIDENCE).select("name", "count", "self_ns")
    yield Observation(
        f"{count_of(round(number), 'operator', 'operators')} of {duration(time / number)} on average take"
        f" {duration(time)}, {share(min(facts.share(time), 1.0))} of the time on the host.",
        [Evidence(f"{clean(name)} ({count_of(round(n), 'call', 'calls')})", ns) for name, n, ns in names.iter_rows()],
        time,
        "B40",
    )
