"""What the ledger says of a LoadGen run: whether the test was valid, and which rules it broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.formats.loadgen.outcome import Outcome
    from xsp_ingest.formats.loadgen.queries import Queries

__all__ = ["findings"]


def findings(outcome: Outcome, queries: Queries | None, worked_out: Mapping[str, float]) -> Iterator[Finding]:
    """The entries; those that count nothing are left out of the ledger."""
    yield from _validity(outcome)
    yield Finding("loadgen_error", "errors in LoadGen's log", outcome.errors, Severity.ERROR)
    yield Finding("loadgen_warning", "warnings in LoadGen's log", outcome.warnings)
    yield Finding(
        "loadgen_accuracy_run",
        "the test was for accuracy; its latencies are not performance",
        int(outcome.mode == "AccuracyOnly"),
    )
    yield Finding(
        "no_query_latencies",
        "there is no trace: the latencies of single queries are unknown, only their percentiles are",
        int(queries is None),
        Severity.INFO,
        advice="Set enable_trace in LoadGen's LogSettings, and give mlperf_log_trace.json as well",
    )
    if queries is not None:
        yield Finding("unreadable_sample", "samples of the trace lack a query, a time or a latency", queries.unreadable)
    differ = sorted(name for name, value in worked_out.items() if outcome.figures.get(name, value) != value)
    yield Finding(
        "loadgen_percentile_differs",
        f"latencies worked out from the trace differ from those stated: {', '.join(differ)}",
        len(differ),
        advice="Are the logs of one test?",
    )


def _validity(outcome: Outcome) -> Iterator[Finding]:
    violated = sorted(rule for rule, kept in outcome.rules.items() if not kept)
    advice = outcome.reason.strip() or "LoadGen's own summary says what to change"
    if outcome.valid is False or violated:
        for rule in violated or ["not said which"]:
            detail = f"by LoadGen's rules the test is invalid: {rule}"
            if outcome.valid:
                detail = f"the test is valid, though one of LoadGen's rules was not kept: {rule}"
            yield Finding(
                "loadgen_invalid", detail, 1, Severity.WARNING if outcome.valid else Severity.ERROR, None, advice
            )
