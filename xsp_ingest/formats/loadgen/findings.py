"""What the ledger says of a LoadGen run: whether the test was valid, and which rules it broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model import Finding, LedgerKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.formats.loadgen.outcome import Outcome
    from xsp_ingest.formats.loadgen.queries import Queries

__all__ = ["findings"]

_QUEUED = ("Server", "Offline")


def findings(outcome: Outcome, queries: Queries | None, worked_out: Mapping[str, float]) -> Iterator[Finding]:
    """The entries; those that count nothing are left out of the ledger."""
    yield from _validity(outcome)
    yield Finding(LedgerKind.LOADGEN_ERROR, count=outcome.errors)
    yield Finding(LedgerKind.LOADGEN_WARNING, count=outcome.warnings)
    yield Finding(LedgerKind.LOADGEN_ACCURACY_RUN, count=int(outcome.mode == "AccuracyOnly"))
    yield Finding(LedgerKind.LOADGEN_QUEUED, count=int(outcome.scenario in _QUEUED))
    yield Finding(LedgerKind.NO_QUERY_LATENCIES, count=int(queries is None))
    if queries is not None:
        yield Finding(LedgerKind.UNREADABLE_SAMPLE, count=queries.unreadable)
    differ = sorted(name for name, value in worked_out.items() if outcome.figures.get(name, value) != value)
    yield Finding(
        LedgerKind.LOADGEN_PERCENTILE_DIFFERS,
        f"latencies worked out from the trace differ from those stated: {', '.join(differ)}",
        len(differ),
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
                LedgerKind.LOADGEN_INVALID,
                detail,
                1,
                Severity.WARNING if outcome.valid else Severity.ERROR,
                None,
                advice,
            )
