"""From captures of two sides, or from two results of `xsp batch`, to comparisons and what became of rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp.cache.cache import Cache
from xsp.opening import load
from xsp.reading import LayerSource, Reading

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Compared, Rule, RuleOutcome, Several
    from xsp_analyze.trace.step_view import StepView
    from xsp_model import Trace

__all__ = ["ALONE", "Pairing", "Request", "comparisons", "is_batch", "of_traces", "pairing"]

# Two results of `xsp batch`: their models paired by name, each pair compared.
_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Names of models with their bundle before and after, in order, and names that only one side has."""

    pairs: Sequence[tuple[str, str, str]]
    only_before: Sequence[str]
    only_after: Sequence[str]


def is_batch(text: str) -> bool:
    """Whether the input is a folder that `xsp batch` wrote."""
    return (Path(text) / _SUMMARY).is_file()


def pairing(before: str, after: str) -> Pairing:
    """The pairs of two such folders; XspError where there are none."""
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    one, two = _bundles(Path(before)), _bundles(Path(after))
    pairs = [(name, path, two[name]) for name, path in one.items() if name in two]
    if not pairs:
        raise XspError(
            f"no model of {before} is in {after} too", advice="Models are paired by their names in the batch"
        )
    return Pairing(pairs, [name for name in one if name not in two], [name for name in two if name not in one])


def _bundles(folder: Path) -> dict[str, str]:
    from xsp_model import XspError  # noqa: PLC0415

    file = folder / _SUMMARY
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        rows = [row for row in content["traces"] if row["bundle"]]
        return {str(row["name"]): str(folder / row["bundle"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise XspError("is no summary of xsp batch", path=file, advice="Run xsp batch again") from error


# From captures of two sides to a comparison and what became of rules; or to those of the models of two batches.
ALONE = "xsp compare"
"""The name of a comparison that is not one of a batch."""
_TWO = 2


@dataclass(frozen=True, slots=True)
class Request:
    """How the user wants comparisons made."""

    reading: Reading = field(default_factory=Reading)
    cache: Cache | None = None
    steps: str | None = None
    per_input: bool = False
    run_noise: float | None = None
    rules: Sequence[Rule] = ()
    strict: bool = False
    serving_phase: str | None = None


def comparisons(
    before: Sequence[str], after: Sequence[str], baseline: str | None, request: Request, progress: Callable[[str], None]
) -> Several:
    """The comparison, as the only one, or those of each model of two batches; XspError where there can be none."""
    from xsp_analyze.compare.rules import Several  # noqa: PLC0415 (--help must not wait for polars)

    batches = _of_batches(before, after, request, progress)
    return batches or Several([_one(before, after, baseline, request, progress)])


def _of_batches(
    before: Sequence[str], after: Sequence[str], request: Request, progress: Callable[[str], None]
) -> Several | None:
    """The comparisons of two batches, model by model; null where the inputs are none."""
    from xsp_analyze.compare.rules import Several  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    batches = [text for text in (*before, *after) if is_batch(text)]
    if not batches:
        return None
    if len(before) != 1 or len(after) != 1 or len(batches) != _TWO:
        raise XspError(
            "a batch is compared with one other batch", path=batches[0], advice="Give two results of xsp batch"
        )
    models = pairing(before[0], after[0])
    pairs = [_one([one], [two], None, request, progress, name=name) for name, one, two in models.pairs]
    for rule in request.rules:
        if not any(outcome.rule is rule for pair in pairs for outcome in pair.outcomes):
            raise XspError(f"{rule.text!r}: no model of the batches has such a {rule.subject}")
    return Several(pairs, models.only_before, models.only_after)


def _one(
    before: Sequence[str],
    after: Sequence[str],
    baseline: str | None,
    request: Request,
    progress: Callable[[str], None],
    *,
    name: str = ALONE,
) -> Compared:
    _check_steps(request.steps)
    for side in (before, after):
        _check_other_captures(side)
    before_traces, after_traces = (
        [load([text], request.reading, progress, cache=request.cache) for text in side] for side in (before, after)
    )
    progress("comparing")
    names = _names((before[0], after[0]), baseline)
    return of_traces(before_traces, after_traces, names, request, name=name)


def _check_other_captures(side: Sequence[str]) -> None:
    """XspError where a further capture of a side is a copy: captures that do not differ hide how much others do."""
    from xsp_ingest.distinct import first_alike  # noqa: PLC0415 (imports polars)
    from xsp_model import XspError  # noqa: PLC0415
    from xsp_model.errors import readable  # noqa: PLC0415

    paths = [path for text in side if (path := Path(text)).exists()]
    for position, first in enumerate(first_alike(paths) if len(paths) > 1 else ()):
        if first != position:
            raise XspError(
                f"holds what {readable(paths[first].name)} does, and tells nothing of how captures of this side differ",
                path=paths[position],
                advice="Leave it out, or give another capture of the same work",
            )


def of_traces(
    before: Sequence[Trace], after: Sequence[Trace], names: tuple[str, str], request: Request, *, name: str = ALONE
) -> Compared:
    """The comparison of traces that are open, with what became of the rules."""
    from xsp_analyze.compare.comparison import compare  # noqa: PLC0415
    from xsp_analyze.compare.rules import Compared  # noqa: PLC0415

    views = _of_one_source([[_view(trace, request) for trace in side] for side in (before, after)], request)
    noise = None if request.run_noise is None else request.run_noise / 100
    comparison = compare(*views, names=names, per_input=request.per_input, run_noise=noise)
    return Compared(name, comparison, _outcomes(comparison, request, name))


def _view(trace: Trace, request: Request) -> StepView:
    from xsp_analyze.trace.step_view import StepView  # noqa: PLC0415

    return StepView.of(trace, request.steps, request.serving_phase)


def _check_steps(steps: str | None) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    if steps not in {None, "mean", "all"}:
        raise XspError(f"{steps!r} is no way to compare steps", advice="Give mean or all with --steps")


def _of_one_source(views: Sequence[Sequence[StepView]], request: Request) -> Sequence[Sequence[StepView]]:
    """The traces with layers of one source: operators, where these differ and the user did not choose.

    Else a layer of one side, a range say, would stand against nothing on the other.
    """
    from xsp_analyze.trace.step_view import StepView  # noqa: PLC0415
    from xsp_ingest.convert import relayer  # noqa: PLC0415

    sources = {source for side in views for frames in side for source in _layer_sources(frames)}
    is_leveled = any(frames.of_trace.is_leveled for side in views for frames in side)
    operators = all(frames.trace.height("operators") for side in views for frames in side)
    if len(sources) < _TWO or request.reading.layer_source != LayerSource.AUTO or is_leveled or not operators:
        return views
    return [
        [
            frames
            if _layer_sources(frames) == [LayerSource.OPERATOR]
            else StepView.of(relayer(frames.trace, LayerSource.OPERATOR), request.steps, request.serving_phase)
            for frames in side
        ]
        for side in views
    ]


def _layer_sources(frames: StepView) -> Sequence[str]:
    return [s for s in frames.trace.frame("runs")["layer_source"].drop_nulls().unique() if s != "none"]


def _names(inputs: tuple[str, str], baseline: str | None) -> tuple[str, str]:
    from xsp_model.errors import readable  # noqa: PLC0415

    before, after = (readable(Path(text).name or text) for text in inputs)
    if before == after:
        before, after = (readable(str(Path(text))) for text in inputs)
    return (before if baseline is None else f"baseline {baseline}"), after


def _outcomes(comparison: Comparison, request: Request, name: str) -> list[RuleOutcome]:
    """What became of the rules; in a batch, a rule on what a model does not have is not held against it."""
    from xsp_analyze.compare.rules import absent, check  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if request.rules and not comparison.comparable:
        which = "" if name == ALONE else f"{name}: "
        raise XspError(
            f"{which}no rule can be held against different work: {'; '.join(comparison.reasons)}",
            advice="Compare captures of the same model and batch size (--per-input evens out batch sizes)",
        )
    rules = [rule for rule in request.rules if name == ALONE or not absent(rule, comparison)]
    return [check(rule, comparison, strict=request.strict) for rule in rules]
