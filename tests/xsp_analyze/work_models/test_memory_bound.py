"""Bytes written by torch's memory-bound operators, against the tensors that real calls of them make and change."""

from __future__ import annotations

import json
import tomllib
import warnings
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from tests.xsp_analyze.work_models.memory_bound_cases import AT_LEAST, CASES, NOT_ON_CPU, PARTLY_WRITTEN
from xsp_analyze.work_models.call import call_of
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.torch

_FAMILIES = ("elementwise", "embedding", "normalisation", "optimizers", "pooling", "reductions", "views")


def test_what_real_calls_write_is_what_their_models_say(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    expected = {}
    with torch.profiler.profile(record_shapes=True) as profiler:
        for case, arguments in _calls():
            with (
                torch.profiler.record_function(f"case {case}"),
                torch.no_grad(),
                warnings.catch_warnings(action="ignore"),
            ):
                expected[case] = _written(_name(case), arguments)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    recorded = _recorded(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    modelled = {case: _modelled(recorded[case], case) for case in expected}
    unequal = {case: (modelled[case], size) for case, size in expected.items() if modelled[case] != size}
    below = {case for case, (ours, size) in unequal.items() if ours is not None and 0 < ours < size}
    assert {case: sizes for case, sizes in unequal.items() if case not in AT_LEAST} == {}
    assert below == AT_LEAST


def test_every_operator_of_the_tables_is_called() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    called = {_name(case) for case, _ in _calls()}
    assert sorted(_own_operators() - called - NOT_ON_CPU) == []
    assert sorted(NOT_ON_CPU & called) == []


def _own_operators() -> set[str]:
    """Those of torch in the tables of memory-bound families, views left out."""
    folder = resources.files("xsp_analyze.work_models").joinpath("models")
    tables = [tomllib.loads(folder.joinpath(f"{family}.toml").read_text()) for family in _FAMILIES]
    rows = [row for table in tables for row in table["model"] if row["formula"] != "view"]
    names = [name for row in rows for name in row["operators"] if name.startswith("aten::")]
    return {name.removeprefix("aten::") for name in names}


def _calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The calls, and of operators that have a twin in place the twin's too."""
    for case, arguments in CASES.items():
        yield case, arguments()
        if shipped_models().of(f"aten::{case}_") is not None and f"{case}_" not in CASES:
            yield f"{case}_", arguments()


def _name(case: str) -> str:
    return case.partition(" ")[0]


def _written(name: str, arguments: tuple[Any, ...]) -> int:
    """Bytes of the results, and of the arguments that changed without being among them."""
    torch = pytest.importorskip("torch")
    named = arguments[-1] if isinstance(arguments[-1], dict) else {}
    before = [(tensor, tensor.clone()) for tensor in _tensors(arguments)]
    results = list(_tensors(getattr(torch.ops.aten, name)(*arguments[: len(arguments) - bool(named)], **named)))
    changed = [tensor for tensor, old in before if not tensor.isnan().any() and not tensor.equal(old)]
    if name in PARTLY_WRITTEN:
        return sum(int((tensor != old).sum()) * tensor.element_size() for tensor, old in before)
    distinct = {tensor.data_ptr(): tensor for tensor in [*changed, *results] if tensor.numel()}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


def _tensors(values: object) -> Iterator[Any]:
    if hasattr(values, "data_ptr"):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _tensors(each)


def _recorded(events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each case the recorded arguments of its operator."""
    spans = sorted((e for e in events if e.get("ph") == "X" and "dur" in e), key=lambda e: (e["ts"], -e["dur"]))
    recorded: dict[str, dict[str, Any]] = {}
    case = None
    for span in spans:
        if span["name"].startswith("case "):
            case = span["name"].removeprefix("case ")
        elif case and case not in recorded and span["name"] == f"aten::{_name(case)}":
            recorded[case] = span["args"]
    return recorded


def _modelled(arguments: dict[str, Any], case: str) -> int | None:
    name = f"aten::{_name(case)}"
    texts = [json.dumps(arguments.get(k)) for k in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
    call, model = call_of(name, *texts, kernel_precision="fp32"), shipped_models().of(name)
    work = model.work(call) if model and call else None
    assert work is None or (work.flop == 0 and work.read_bytes is not None)
    return work.written_bytes if work else None
