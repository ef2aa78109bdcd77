"""Calls of operators of torch, on tensors without data too, as its profiler would record them.

`Recorder` sees what autograd dispatches, forward and backward, which is what `FlopCounterMode` counts; `profiled` is
what the profiler itself writes of calls that ran.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from xsp_analyze.work_models.call import Call, call_of
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from xsp_analyze.work_models.call import ModelledWork

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
_dispatch = pytest.importorskip("torch.utils._python_dispatch")

_TYPES = {
    torch.float64: "double", torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int8: "signed char", torch.uint8: "unsigned char",
    torch.bool: "bool", torch.float8_e4m3fn: "c10::Float8_e4m3fn",
}  # fmt: skip


def _described(value: Any) -> tuple[object, str, object, str]:  # noqa: ANN401
    """Dimensions, type, strides and text of one input, as the profiler writes them."""
    if isinstance(value, torch.Tensor):
        return list(value.shape), _TYPES[value.dtype], list(value.stride()), ""
    if isinstance(value, list) and value and all(isinstance(each, torch.Tensor) for each in value):
        return [list(t.shape) for t in value], "TensorList", [list(t.stride()) for t in value], ""
    if isinstance(value, list):
        return [], "ScalarList", [], str(value)
    return [], "" if value is None else "Scalar", [], "" if value is None else str(value)


def recorded(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:  # noqa: ANN401
    """The call as a trace would have it: one entry an argument, in the order of the schema."""
    names = [each.name for each in function._schema.arguments]
    defaults = {each.name: each.default_value for each in function._schema.arguments if each.has_default_value()}
    arguments = defaults | dict(zip(names, args, strict=False)) | kwargs
    columns = zip(*(_described(arguments.get(name)) for name in names), strict=True)
    shapes, types, strides, texts = (json.dumps(list(each)) for each in columns)
    call = call_of(str(function._schema.name), shapes, types, strides, texts)
    assert call is not None
    return call


def work_of(call: Call) -> ModelledWork | None:
    """By the models that are shipped."""
    model = shipped_models().of(call.name)
    return model.work(call) if model else None


class Recorder(_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
    """Collects the calls of the operators that torch counts, each with torch's own count of flop."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[Call, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        count = flop_counter.flop_registry.get(func._overloadpacket)
        if count is not None:
            self.counted.append((recorded(func, args, kwargs), int(count(*args, **kwargs, out_val=output))))
        return output

    def flop(self) -> int:
        """The flop of all calls by our models; a call that none tells fails."""
        works = [work_of(call) for call, _ in self.counted]
        assert None not in works
        return sum(work.flop or 0 for work in works if work)

    def torch_flop(self) -> int:
        """The flop of all calls by torch."""
        return sum(count for _, count in self.counted)


def profiled(run: Callable[[], object], folder: Path) -> list[Call]:
    """What the profiler writes of the operators that ran, in order of start."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        run()
    path = folder / "profiled.json"
    profile.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    columns = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    calls = (
        call_of(event["name"], *(json.dumps(event["args"].get(column)) for column in columns))
        for event in sorted(events, key=lambda event: event["ts"])
    )
    return [call for call in calls if call is not None]
