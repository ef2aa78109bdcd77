"""Keeps the spans that can be used, and counts the others under the reason why they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.formats.jaeger.levels import DEVICE_WORK
from xsp_model import Finding, LedgerKind, Severity
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan

__all__ = ["sound_spans"]

_LONGEST_US = 24 * 3600 * 10**6  # no window of a profiler's is a day long
_LATEST_US = LATEST_NS // 1000


def sound_spans(spans: Sequence[JaegerSpan]) -> tuple[list[JaegerSpan], list[Finding]]:
    """Spans with a start and a duration, each once; negative and absurd durations become 0."""
    once: dict[tuple[str, str, int | None, int | None], JaegerSpan] = {}
    for span in spans:
        once.setdefault((span.spanID, span.operationName, span.startTime, span.duration), span)
    absurd = [span for span in once.values() if span.duration is not None and span.duration > _LONGEST_US]
    for span in absurd:
        span.duration = 0
    for span in once.values():
        if span.startTime is not None and abs(span.startTime) > _LATEST_US:
            span.startTime = None
    started = [span for span in once.values() if span.startTime is not None]
    timed = [span for span in started if span.duration is not None]
    negative = [span for span in timed if span.duration is not None and span.duration < 0]
    for span in negative:
        span.duration = 0
    detail = "spans that stand in the file more than once, with the same times, were read once"
    return timed, [
        Finding(LedgerKind.DUPLICATE_EVENT, detail, len(spans) - len(once)),
        *_missing("start", [span for span in once.values() if span.startTime is None]),
        *_missing("duration", [span for span in started if span.duration is None]),
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            "spans with a negative duration were taken as 0 ns long",
            len(negative),
            Severity.ERROR,
            advice="Their time is missing from every sum",
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "spans longer than a day were taken as 0 ns long",
            len(absurd),
            advice="Their time is missing from every sum",
        ),
    ]


def _missing(field: str, lost: Sequence[JaegerSpan]) -> list[Finding]:
    work = sum(span.operationName in DEVICE_WORK for span in lost)
    return [
        Finding(
            LedgerKind(f"missing_{field}"), f"device activities without a {field} were left out", work, Severity.ERROR
        ),
        Finding(
            LedgerKind(f"missing_{field}"),
            f"host spans without a {field} were left out",
            len(lost) - work,
            severity=Severity.WARNING,
        ),
    ]
