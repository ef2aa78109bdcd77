"""Whether runs are of the same work on the same system, so that they may be merged at all, and for which batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.formulas import first_saturating_batch
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_model import Trace

__all__ = ["by_batch_size", "check_comparable", "main_batch_size", "name_and_version", "name_of", "role_of", "size_of"]

_ROLES = {"M": "model", "ML": "layers", "MLG": "kernels", "MLG+metrics": "counters"}


def role_of(trace: Trace) -> str:
    """What the run is taken for: as described, else by the deepest level that its profiler recorded."""
    run = trace.table("runs").slice(0, 1).to_pylist()[0]
    return str(run["role"] or _ROLES[run["level_captured"]])


def name_of(trace: Trace) -> str:
    """How messages name the run: its role and file."""
    run = trace.table("runs").slice(0, 1).to_pylist()[0]
    return f"the {role_of(trace)} run ({run['source_path']})"


def by_batch_size(traces: Sequence[Trace], batch_size: int | None = None) -> dict[int | None, list[Trace]]:
    """The runs of each batch size, smallest first; those that do not tell theirs are of `batch_size` or the only one.

    XspError where it stays open of which they are, or where a batch size has no run of the level that others have: what
    differs is then no sweep, but other work.
    """
    sizes = [size_of(trace) for trace in traces]
    distinct = sorted({size for size in sizes if size is not None})
    assumed = distinct[0] if len(distinct) == 1 else batch_size
    if None in sizes and len(distinct) > 1 and assumed not in distinct:
        raise XspError(
            f"{name_of(traces[sizes.index(None)])} does not tell its batch size, and others are of"
            f" {', '.join(map(str, distinct))}",
            advice="Say which it is of, and so which to analyse, with --batch-size, or in its run.json",
        )
    keys: list[int | None] = [*distinct] or [None]
    groups: dict[int | None, list[Trace]] = {size: [] for size in keys}
    for trace, size in zip(traces, sizes, strict=True):
        groups[assumed if size is None else size].append(trace)
    base = next(role for role in _ROLES.values() if any(role_of(trace) == role for trace in traces))
    lacking = [size for size, group in groups.items() if not any(role_of(trace) == base for trace in group)]
    if lacking and len(groups) - len(lacking) > 1:
        level = next(level for level, role in _ROLES.items() if role == base)
        raise XspError(
            f"no run of level {level} is of batch size {', '.join(map(str, lacking))}, and others have one",
            advice="Add it, or leave out the other runs of that batch size",
        )
    if lacking:
        _agree(traces, sizes, "batch sizes")
    return groups


def size_of(trace: Trace) -> int | None:
    """Inputs per step of the run; None where it does not tell."""
    size = _fact(trace, "batch_size")
    return size if isinstance(size, int) else None


def check_comparable(traces: Sequence[Trace]) -> None:
    """XspError that names the two runs and what differs: model, framework, or device."""
    _agree(traces, [_fact(trace, "model") for trace in traces], "models")
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


# Which batch size a profile of several is for.

_NS_PER_S = 1e9
_LATENCY_FROM = ("model", "layers", "kernels")
_RunsByRole = dict[str, list["Trace"]]


def main_batch_size(by_size: Mapping[int | None, _RunsByRole], requested: int | None = None) -> int | None:
    """The one requested; else, of those with most kinds of runs, the optimal one, or that of most inputs a second.

    The optimal one is A01's, over all batch sizes. XspError where there is none of the one requested.
    """
    if requested is not None and requested not in by_size:
        sizes = ", ".join(str(size) for size in by_size if size is not None) or "not known"
        raise XspError(f"no run is of batch size {requested}", advice=f"The batch sizes of the runs are: {sizes}")
    if requested is not None or len(by_size) == 1:
        return requested if requested is not None else next(iter(by_size))
    deepest = max(map(len, by_size.values()))
    rates = {size: _inputs_per_s(size, by_role) for size, by_role in by_size.items() if size is not None}
    optimal = first_saturating_batch({size: rate for size, rate in rates.items() if rate is not None})
    candidates = [size for size in rates if len(by_size[size]) == deepest]
    return optimal if optimal in candidates else max(candidates, key=lambda size: rates[size] or 0.0)


def _inputs_per_s(size: int, by_role: _RunsByRole) -> float | None:
    runs: Sequence[Trace] = next(by_role[role] for role in _LATENCY_FROM if role in by_role)
    frames = StepView.of(runs[0])
    latency = frames.once(latency_of_model)["latency_ns"].to_list() if frames.steps.height else []
    return size * _NS_PER_S / latency[0] if latency and latency[0] else None
