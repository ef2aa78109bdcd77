"""A comparison as JSON; docs/compare.md describes every key."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from xsp_analyze.render.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_analyze.compare.comparison import Comparison, Expected
    from xsp_analyze.compare.parts import Waterfall
    from xsp_analyze.compare.results import Results
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.rules import Compared, Outcome, Several

__all__ = ["document", "render", "render_several"]

_OF_MODEL = ("before_ns", "after_ns", "difference_ns", "ratio", "low", "high", "p_value", "rank_p_value",
             "significant", "conclusion")  # fmt: skip


def document(c: Comparison, outcomes: Sequence[Outcome] = ()) -> dict[str, object]:
    """The comparison in JSON's own types; null is unknown, times are ns."""
    one, two = c.throughput
    latency, *others = c.model
    return {
        "comparable": c.comparable,
        "same_content": c.same_content,
        "reasons": list(c.reasons),
        "differences": [_with_document_keys(asdict(d), kind="sort") for d in c.differences],
        "before": {"name": c.before.name, **asdict(c.before.facts)},
        "after": {"name": c.after.name, **asdict(c.after.facts)},
        "per": "input" if c.per_input else "step",
        "serving_phase": c.before.views[0].serving_phase,
        "match": {"layer": c.layer_match, "kernel": c.kernel_match, "layers_by": c.layer_pairing},
        "statistics": {
            "rows_tested": c.test_count,
            "rows_significant": sum(bool(row.significant) for row in c.rows),
            "false_discovery_rate": 0.05,
            "run_noise": c.run_noise,
            "run_noise_source": c.run_noise_source,
            "operator_times": c.operator_basis,
        },
        "model": {
            **_of_model(latency),
            **{row.name: _of_model(row) for row in others},
            "throughput_per_s": {"before": one, "after": two, "ratio": two / one if one and two else None},
        },
        "results": _results(c.results),
        "expected": _expected_ratios(c.expected),
        "waterfall": _waterfall(c.waterfall),
        "waterfalls": [_waterfall(falls) for falls in c.waterfalls],
        "rows": [asdict(row) for row in c.rows],
        "moves": [asdict(one) for one in c.moves],
        "kernel_changes": [_with_document_keys(asdict(change), count="places") for change in c.changes],
        "regrouped_kernels": c.regrouped,
        "rules": [{"rule": o.rule.text, "verdict": str(o.verdict), "told": list(o.sentences)} for o in outcomes],
    }


def render(c: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """The document with one row a line."""
    parts = (f"{json.dumps(key)}: {_value(plain(value))}" for key, value in document(c, outcomes).items())
    return "{" + ",\n ".join(parts) + "}\n"


def render_several(several: Several) -> str:
    """`{"pairs": [a comparison's document with its `name`], "only_before": [...], "only_after": [...]}`."""
    documents = ",\n".join(_json_with_name(c) for c in several.compared)
    rest = {"only_before": list(several.only_before), "only_after": list(several.only_after)}
    return f'{{"pairs": [\n{documents}],\n {json.dumps(rest, ensure_ascii=False)[1:]}\n'


def _json_with_name(one: Compared) -> str:
    return f'{{"name": {json.dumps(one.name, ensure_ascii=False)},\n {render(one.comparison, one.outcomes)[1:]}'


def _of_model(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in _OF_MODEL}


def _results(came_to: Results) -> dict[str, object]:
    """Accuracies, and outputs with the distance from before to after."""
    return {
        "input_match": str(came_to.input_match),
        "accuracies": [{**asdict(p), "difference": p.difference, "is_worse": p.is_worse} for p in came_to.accuracies],
        "outputs": [
            {"name": p.name, **asdict(p.distance), "before_step": p.before.step, "after_step": p.after.step}
            for p in came_to.outputs
        ],
        "unmatched": list(came_to.unmatched),
    }


def _expected_ratios(one: Expected | None) -> dict[str, object] | None:
    """The ratios that the devices' peaks let expect."""
    if one is None:
        return None
    bounds = {
        name: None if bound is None else {**asdict(bound), "ratio": bound.ratio}
        for name, bound in (("memory", one.memory), ("compute", one.compute))
    }
    return {**bounds, "by_class": {"ratio": one.by_class, "modelled_share": one.modelled_share}}


def _waterfall(falls: Waterfall | None) -> dict[str, object] | None:
    if falls is None:
        return None
    parts = [_with_document_keys(asdict(part), kind="sort") for part in falls.parts]
    return {**asdict(falls), "parts": parts, "difference_ns": falls.difference_ns}


def _with_document_keys(values: Mapping[str, object], **key_of: str) -> dict[str, object]:
    """The values under the keys that the document has always had for these fields."""
    return {key_of.get(name, name): value for name, value in values.items()}


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[\n  {_lines(value)}\n ]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(values: Iterable[object]) -> str:
    return ",\n  ".join(json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values)
