"""Whether runs are of the same work on the same system, so that they may be merged at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_model import Trace

__all__ = ["check_comparable", "name_and_version", "name_of", "other_batch_sizes", "role_of"]

_SAME = {
    "model": "models",
    "batch_size": "batch sizes",
}
_ROLES = {"M": "model", "ML": "layers", "MLG": "kernels", "MLG+metrics": "counters"}


def role_of(trace: Trace) -> str:
    """What the run is taken for: as described, else by the deepest level that its profiler recorded."""
    run = trace.table("runs").slice(0, 1).to_pylist()[0]
    return str(run["role"] or _ROLES[run["level_captured"]])


def name_of(trace: Trace) -> str:
    """How messages name the run: its role and file."""
    run = trace.table("runs").slice(0, 1).to_pylist()[0]
    return f"the {role_of(trace)} run ({run['source_path']})"


def other_batch_sizes(traces: Sequence[Trace]) -> list[Trace]:
    """Runs without a profiler at other batch sizes than the rest: one a batch size, smallest first.

    Where there are no others, they are all but the first.
    """
    models = [trace for trace in traces if role_of(trace) == "model"]
    rest = [trace for trace in traces if role_of(trace) != "model"]
    own = next((size for trace in [*rest, *models] if (size := _fact(trace, "batch_size")) is not None), None)
    if len(rest) > 0 and not any(_fact(trace, "batch_size") == own for trace in models):
        return []  # none is of the work that was profiled: let the difference be told
    by_batch_size: dict[int, Trace] = {}
    for trace in models:
        size = _fact(trace, "batch_size")
        if isinstance(size, int) and size != own:
            by_batch_size.setdefault(size, trace)
    return [by_batch_size[size] for size in sorted(by_batch_size)]


def check_comparable(traces: Sequence[Trace], *, same_batch: bool = True) -> None:
    """XspError that names the two runs and what differs: model, batch size, framework, or device."""
    for column, label in _SAME.items():
        if column == "batch_size" and not same_batch:
            continue
        _agree(traces, [_fact(trace, column) for trace in traces], label)
    frameworks = [_fact(trace, "framework") for trace in traces]
    _agree(traces, frameworks, "frameworks", _framework_name)
    _agree(traces, frameworks, "frameworks", _framework_version)
    _agree(traces, [_device(trace) for trace in traces], "devices")


def _agree(
    traces: Sequence[Trace],
    values: Sequence[object],
    label: str,
    part: Callable[[object], object] = lambda value: value,
) -> None:
    """XspError unless this part of the values is the same wherever it is known."""
    recorded = [(trace, value) for trace, value in zip(traces, values, strict=True) if part(value) is not None]
    for trace, value in recorded[1:]:
        first, expected = recorded[0]
        if part(value) != part(expected):
            raise XspError(
                f"the runs are of different {label}: {expected} in {name_of(first)}, {value} in {name_of(trace)}",
                advice="Merge only runs of the same work on the same system",
            )


def _framework_name(framework: object) -> str | None:
    return None if framework is None else name_and_version(str(framework))[0].casefold()


def _framework_version(framework: object) -> str | None:
    """Not every profiler writes it: a file that names only the framework contradicts no version."""
    return None if framework is None else name_and_version(str(framework))[1]


def name_and_version(framework: str) -> tuple[str, str | None]:
    """`pytorch 2.11.0` as its two parts; the version is null where there is none."""
    name, _, last = framework.rpartition(" ")
    return (name, last) if name and last[:1].isdigit() else (framework, None)


def _fact(trace: Trace, column: str) -> object:
    values = {value for value in trace.table("runs").column(column).to_pylist() if value is not None}
    return min(values) if values else None


def _device(trace: Trace) -> object:
    """The device's name as described, else as the profiler wrote it."""
    described = _fact(trace, "device_name")
    if described is not None:
        return described
    used = set(trace.frame("spans")["device_id"].drop_nulls().to_list())
    rows = trace.frame("devices").select("device_id", "name").iter_rows()
    names = {name for device, name in rows if device in used and name is not None}
    return min(names) if names else None
