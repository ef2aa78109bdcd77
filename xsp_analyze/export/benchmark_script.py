"""Runs one operator of torch alone, on inputs of the recorded shapes, strides and types; needs torch and nothing else.

Written by `xsp export --to benchmark`. Usage: python FILE [--device cuda|cpu] [--calls N] [--repeats N]. What inputs
held was not recorded: floating point numbers are random, all others 0.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED: dict[str, Any] = {}
_DTYPE_OF_RANDOM = "float32"


def main() -> None:
    """Prints the recorded time beside what is measured."""
    torch: Any = importlib.import_module("torch")
    options = _options("cuda" if torch.cuda.is_available() else "cpu")
    operator = getattr(getattr(torch.ops, RECORDED["namespace"]), RECORDED["operator"])
    torch.manual_seed(0)
    arguments = [_input(torch, one, options.device) for one in RECORDED["inputs"]]
    with torch.inference_mode():
        times = _times(torch, _call(operator, arguments), options)
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "the host"
    print(f"{RECORDED['namespace']}::{RECORDED['operator']} on {RECORDED['shapes']}")
    for note in RECORDED["notes"]:
        print(f"note      {note}")
    print(f"recorded  {RECORDED['microseconds']:12.3f} us  median of {RECORDED['calls']} calls: {RECORDED['what']}")
    shown = f"median of {len(times)} times {options.calls} calls on {name}, torch {torch.__version__}"
    print(f"measured  {statistics.median(times):12.3f} us  {shown}; least {min(times):.3f}, most {max(times):.3f}")


def _options(device: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs one recorded operator alone.")
    parser.add_argument("--device", default=device, help="where to run it; default: cuda where there is one")
    parser.add_argument("--calls", type=int, default=20, help="calls in a row that are timed together")
    parser.add_argument("--repeats", type=int, default=10, help="how often they are timed")
    return parser.parse_args()


def _call(operator: Any, arguments: list[object]) -> Callable[[], object]:  # noqa: ANN401
    """A call of the first overload that takes the inputs, which were recorded in the order of its schema."""
    refusals = []
    for name in operator.overloads():
        overload = getattr(operator, name)
        schema = overload._schema.arguments  # noqa: SLF001 (torch has no other way to it)
        if len(arguments) > len(schema) or any(one.is_out for one in schema):
            continue
        pairs = list(zip(schema, arguments, strict=False))
        positional = [value for one, value in pairs if not one.kwarg_only]
        named = {one.name: value for one, value in pairs if one.kwarg_only}
        try:
            overload(*positional, **named)
        except (RuntimeError, TypeError, ValueError) as error:
            refusals.append(f"{overload}: {error}")
        else:
            return lambda: overload(*positional, **named)
    raise SystemExit("no overload of the operator takes the recorded inputs\n" + "\n".join(refusals))


def _input(torch: Any, recorded: tuple[Any, ...], device: str) -> object:  # noqa: ANN401
    if recorded[0] == "tensor":
        _, dtype, shape, strides = recorded
        return _tensor(torch, dtype, shape, strides, device)
    kind, value = recorded
    return float(value) if kind == "float" else value


def _tensor(torch: Any, dtype: str, shape: list[int], strides: list[int], device: str) -> object:  # noqa: ANN401
    """A view of as many elements as the strides reach, so that those that share memory do so here."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else -1
    of = getattr(torch, dtype)
    if of.is_floating_point or of.is_complex:
        held = torch.randn(last + 1, dtype=getattr(torch, _DTYPE_OF_RANDOM), device=device).to(of)
    else:
        held = torch.zeros(last + 1, dtype=of, device=device)
    return held.as_strided(shape, strides)


def _times(torch: Any, call: Any, options: argparse.Namespace) -> list[float]:  # noqa: ANN401
    """Microseconds of a call: on a device between two events of its stream, else by the clock."""
    for _ in range(options.calls):
        call()
    timed = _on_device if options.device.startswith("cuda") else _on_host
    return [timed(torch, call, options.calls) / options.calls for _ in range(options.repeats)]


def _on_device(torch: Any, call: Any, calls: int) -> float:  # noqa: ANN401
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(calls):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3


def _on_host(torch: Any, call: Any, calls: int) -> float:  # noqa: ANN401
    del torch
    began = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - began) / 1e3


if __name__ == "__main__":
    main()
