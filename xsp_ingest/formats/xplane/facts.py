"""What the planes of a profile say of the run as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.raw import RunFacts
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.xplane.plane import Plane

__all__ = ["process_of", "run_facts"]

_ENVIRONMENT = "Task Environment"
_UNIX_AT_LEAST_NS = 10**18  # 2001; a time that counts from the start of the profile is far smaller


def process_of(planes: Sequence[Plane]) -> int:
    """The process's number where the planes say it (since 2025), else 0: a profile is of one process."""
    for plane in planes:
        number = plane.stats.get("process_id")
        if isinstance(number, int) and number >= 0:
            return number
    return 0


def run_facts(planes: Sequence[Plane], spans: pl.DataFrame) -> RunFacts:
    """Profiler, framework and epoch: times count from `profile_start_time`, or as old versions wrote them from 1970."""
    stats = {name: value for plane in planes for name, value in plane.stats.items()}
    started = stats.get("profile_start_time")
    first = spans["start_ns"].min()
    epoch = 0 if isinstance(first, int) and first >= _UNIX_AT_LEAST_NS else None
    if epoch is None and isinstance(started, int) and 0 < started < LATEST_NS:
        epoch = started
    return RunFacts(profiler="TensorFlow/JAX profiler (XPlane)", framework=_framework(planes, stats), epoch_ns=epoch)


def _framework(planes: Sequence[Plane], stats: dict[str, int | float | str]) -> str | None:
    version = stats.get("jax_version")
    if version:
        return f"jax {version}"
    names = pl.concat([pl.Series(dtype=pl.String), *(plane.metadata["event_name"] for plane in planes)])
    if names.str.contains(r"^PjitFunction\(|^py_xla|^\$jax|PythonRefManager").any():
        return "jax"
    return "tensorflow" if names.str.contains(r"^(?:ExecutorState::Process|FunctionRun|SessionRun)$").any() else None
