"""What a load generator says of its test, for the first screen: is it valid, how fast, within its latency target?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import duration, exact, quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.frames.model_time import LoadTest

__all__ = ["tiles_of"]

_PERCENTILES = ("p50_00", "p99_00")
_Parts = tuple[str, str, str, str, str, str]  # identity, label, value, exact value, note, link


def tiles_of(test: LoadTest) -> Iterator[_Parts]:
    """Validity with its reason, the rate, the latency target, and percentiles of latency."""
    by = f"LoadGen says so of its {clean(test.test)} test."
    if test.valid is not None:
        yield "test", "Test", "valid" if test.valid else "INVALID", "", f"{by}{_why(test)}", "A01"
    if test.samples_per_s is not None:
        rate = test.samples_per_s
        yield "samples", "Throughput", quantity(rate, "samples/s"), f"{rate} samples/s", by, "A01"
    yield from _target(test)
    queue = " It counts from when a query was due, and holds its time in the queue." if test.has_queueing else ""
    for name in _PERCENTILES:
        if (latency := test.percentiles_ns.get(name)) is not None:
            label = f"Latency, {name.partition('_')[0]}"
            yield name, label, duration(latency), exact(latency, "ns"), f"{by}{queue}", "A01"


def _why(test: LoadTest) -> str:
    """Which rules the test broke, and what LoadGen adds to that."""
    rules = f" Not met: {', '.join(test.broken_rules)}." if test.broken_rules else ""
    return f"{rules} {clean(test.reason)}".rstrip()


def _target(test: LoadTest) -> Iterator[_Parts]:
    """Whether the percentile that counts was within the target, and how many queries were not."""
    target = test.target_latency_ns
    if target is None:
        return
    value = {True: "met", False: "MISSED", None: "not judged"}[test.meets_target]
    note = f"{_aim(test)} within {duration(target)}.{_percentile_sentence(test)}{_over(test)}"
    yield "target", f"Latency target {duration(target)}", value, exact(target, "ns"), note, "A01"


def _aim(test: LoadTest) -> str:
    return "Queries" if test.target_share is None else f"{share(test.target_share)} of queries are to be answered"


def _percentile_sentence(test: LoadTest) -> str:
    latency = test.percentiles_ns.get(test.target_name or "")
    return "" if latency is None else f" That percentile is {duration(latency)}."


def _over(test: LoadTest) -> str:
    part = test.over_target_share
    if part is None:
        return ""
    return f" {test.over_target_count:,} of {test.query_count:,} queries took longer ({share(part)})."
