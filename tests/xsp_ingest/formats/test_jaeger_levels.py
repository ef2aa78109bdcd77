"""Jaeger files that hold the same work at several levels: what is told apart, how, and what is not merged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.make.jaeger import MlModelScope, leveled_traces
from tests.helpers.linked import ledger_counts
from xsp_ingest.convert import LeveledRuns, convert, convert_levels
from xsp_ingest.ingester import Options
from xsp_model import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_BATCH_US = 1_000
_Trace = dict[str, Any]


def _evaluated(
    number: int, tag: str | None, *, holds: str = "model", tags: Mapping[str, str] | None = None, at_us: int = 0
) -> MlModelScope:
    """A request in which a batch takes 1 ms; as far as the run `holds` them a layer of 400 us, a kernel of 300."""
    trace = MlModelScope(number)
    predict = trace.span("predict", at_us, 5_000, level="APPLICATION_TRACE")
    trace.span("preprocess", at_us + 5, 50, level="APPLICATION_TRACE", parent=predict)
    own = {"batch_size": "8", **({"evaluation_trace_level": tag} if tag else {}), **(tags or {})}
    model = trace.span("c_predict", at_us + 100, _BATCH_US, level="MODEL_TRACE", parent=predict, tags=own)
    if holds in {"layers", "kernels", "counters"}:
        layer = {"layer_sequence_index": "0", "op_name": "Relu"}
        trace.span("relu", at_us + 200, 400, level="FRAMEWORK_TRACE", parent=model, tags=layer)
    if holds in {"kernels", "counters"}:
        kernel = ("relu_kernel", "[1 1 1]", 300)
        common = {"correlation_id": "7", "grid_dim": "[1 1 1]", "block_dim": "[32 1 1]", "kernel": kernel[0]}
        fields = [("flop_count_sp", "64")] if holds == "counters" else ()
        level = "SYSTEM_LIBRARY_TRACE"
        trace.span("cuda_launch", at_us + 210, 5, level=level, parent=model, tags=common, fields=fields)
        trace.span("gpu_kernel", at_us + 220, 300, level=level, parent=model, tags={**common, "name": kernel[0]})
    return trace


def _file(folder: Path, *traces: _Trace) -> Path:
    path = folder / "jaeger.json"
    path.write_text(json.dumps({"data": traces}))
    return path


def _written(folder: Path, *traces: MlModelScope) -> Path:
    return _file(folder, *(trace.document() for trace in traces))


def _in_one(traces: Sequence[MlModelScope]) -> _Trace:
    """Their spans as those of one trace, inside of a span around all."""
    root = MlModelScope(99)
    root.span("evaluate", 0, 1_000_000, level="APPLICATION_TRACE")
    spans = list(root.spans)
    for trace in traces:
        for span in trace.spans:
            outer = [{"refType": "CHILD_OF", "spanID": spans[0]["spanID"]}]
            inner = [{"refType": "CHILD_OF", "spanID": f"{trace.trace_id}{r['spanID']}"} for r in _references(span)]
            spans.append({**span, "spanID": f"{trace.trace_id}{span['spanID']}", "references": inner or outer})
    return {**root.document(), "spans": spans}


def _references(span: Mapping[str, object]) -> list[dict[str, str]]:
    references = span["references"]
    assert isinstance(references, list)
    return references


def _levels(path: Path) -> list[tuple[str, str]]:
    """Role and deepest recorded level of each run to be merged; none of a file that is one trace."""
    runs = convert_levels([path], Options())
    traces = runs.traces if isinstance(runs, LeveledRuns) else []
    return [row for trace in traces for row in trace.frame("runs").select("role", "level_captured").rows()]


_ALL = (("MODEL_TRACE", "model"), ("FRAMEWORK_TRACE", "layers"), ("SYSTEM_LIBRARY_TRACE", "kernels"))
_ALL_COUNTED = (*_ALL, ("SYSTEM_LIBRARY_TRACE", "counters"))
_ROLES = [("model", "M"), ("layers", "ML"), ("kernels", "MLG"), ("counters", "MLG")]


def _set() -> list[MlModelScope]:
    return [_evaluated(n, tag, holds=held, at_us=10_000 * (n + 1)) for n, (tag, held) in enumerate(_ALL_COUNTED)]


def test_each_trace_is_a_run_of_its_level_whatever_the_order(tmp_path: Path) -> None:
    assert _levels(_written(tmp_path, *_set()[::-1])) == _ROLES


def test_the_ledger_says_what_was_split_and_how_the_levels_are_known(tmp_path: Path) -> None:
    runs = convert_levels([_written(tmp_path, *_set())], Options())
    assert isinstance(runs, LeveledRuns)
    (split,) = (finding for finding in runs.findings if finding.count)
    assert (split.kind, split.count) == ("levels_split", 4)
    assert split.detail.endswith(
        "model (evaluation_trace_level MODEL_TRACE); layers (evaluation_trace_level FRAMEWORK_TRACE); "
        "kernels (evaluation_trace_level SYSTEM_LIBRARY_TRACE); "
        "counters (evaluation_trace_level SYSTEM_LIBRARY_TRACE, counters in its logs)"
    )


def test_evaluations_of_one_trace_are_told_apart_by_their_tag_and_counters(tmp_path: Path) -> None:
    together = convert_levels([_file(tmp_path, _in_one(_set()))], Options())
    apart = convert_levels([_written(tmp_path, *_set())], Options())
    assert isinstance(together, LeveledRuns)
    assert isinstance(apart, LeveledRuns)
    assert [trace.frame("runs")["role"][0] for trace in together.traces] == [role for role, _ in _ROLES]
    names = [_names(trace) for trace in together.traces]
    assert names[0] == sorted([*_names(apart.traces[0]), "evaluate"])  # what is around all is in the first
    assert names[1:] == [_names(trace) for trace in apart.traces[1:]]
    assert "missing_reference" not in {kind for trace in together.traces for kind in ledger_counts(trace)}


def _names(trace: Trace) -> list[str]:
    return sorted(trace.frame("spans")["name"].to_list())


def test_what_hangs_under_no_evaluation_goes_with_the_one_before(tmp_path: Path) -> None:
    trace = _in_one(_set()[:2])
    for span in trace["spans"]:
        if span["operationName"] == "relu":
            span["references"] = []
    runs = convert_levels([_file(tmp_path, trace)], Options())
    assert isinstance(runs, LeveledRuns)
    assert ["relu" in _names(each) for each in runs.traces] == [False, True]


def test_a_level_is_what_was_recorded(tmp_path: Path) -> None:
    """Kernels were asked for where there was no GPU: a run of layers, of which the less profiled goes first."""
    traces = [_evaluated(0, "FULL_TRACE", holds="layers"), _evaluated(1, "FRAMEWORK_TRACE", holds="layers")]
    runs = convert_levels([_written(tmp_path, *traces)], Options())
    assert isinstance(runs, LeveledRuns)
    (split,) = (finding for finding in runs.findings if finding.count)
    assert split.detail.endswith(
        "layers (evaluation_trace_level FRAMEWORK_TRACE); layers (evaluation_trace_level FULL_TRACE)"
    )


def test_a_run_with_counters_gives_kernels_where_no_other_does(tmp_path: Path) -> None:
    traces = [_evaluated(0, "MODEL_TRACE"), _evaluated(1, "SYSTEM_LIBRARY_TRACE", holds="counters")]
    assert _levels(_written(tmp_path, *traces)) == [("model", "M"), ("kernels", "MLG")]


def test_a_trace_in_which_no_model_ran_is_left_out_and_counted(tmp_path: Path) -> None:
    download = MlModelScope(9)
    download.span("download", 0, 100, level="APPLICATION_TRACE")
    runs = convert_levels([_written(tmp_path, *_set(), download)], Options())
    assert isinstance(runs, LeveledRuns)
    assert [(str(finding.kind), finding.count) for finding in runs.findings if finding.count] == [
        ("levels_split", 4),
        ("run_not_used", 1),
    ]


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"batch_size": "1"}, {"batch_size": "8"}, "different batch sizes: 1, 8"),
        ({"model_name": "resnet"}, {"model_name": "vgg"}, "different models: resnet, vgg"),
        ({"framework_name": "mxnet"}, {"framework_name": "tensorflow"}, "different frameworks: mxnet, tensorflow"),
    ],
)
def test_runs_of_different_work_are_not_merged(
    first: Mapping[str, str], second: Mapping[str, str], why: str, tmp_path: Path
) -> None:
    traces = [_evaluated(0, "MODEL_TRACE", tags=first), _evaluated(1, "FRAMEWORK_TRACE", holds="layers", tags=second)]
    trace = convert_levels([_written(tmp_path, *traces)], Options())
    assert isinstance(trace, Trace)
    ledger = {row["kind"]: row for row in trace.frame("ledger").to_dicts()}
    assert ledger["levels_mixed"]["count"] == 2
    assert why in ledger["levels_mixed"]["detail"]


def test_without_tags_only_runs_of_a_named_model_are_merged(tmp_path: Path) -> None:
    untagged = [_evaluated(n, None, holds=held) for n, held in enumerate(("model", "kernels"))]
    assert _levels(_written(tmp_path, *untagged)) == []
    named = [_evaluated(n, None, holds=held, tags={"model_name": "vgg"}) for n, held in enumerate(("model", "kernels"))]
    assert _levels(_written(tmp_path, *named)) == [("model", "M"), ("kernels", "MLG")]


def test_repeated_runs_of_one_level_stay_one_trace(tmp_path: Path) -> None:
    trace = convert_levels([_written(tmp_path, *(_evaluated(n, "MODEL_TRACE") for n in range(2)))], Options())
    assert isinstance(trace, Trace)
    assert trace.frame("runs")["role"].to_list() == [None, None]


def test_beside_another_file_levels_are_not_merged_and_the_ledger_warns(tmp_path: Path) -> None:
    path = _written(tmp_path, *_set())
    other = tmp_path / "other.json"
    other.write_bytes(leveled_traces())
    trace = convert_levels([path, other], Options())
    assert isinstance(trace, Trace)
    assert ledger_counts(trace)["levels_mixed"] == 8
    assert ledger_counts(convert([path], Options()))["levels_mixed"] == 4
