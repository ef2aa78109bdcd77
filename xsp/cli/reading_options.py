"""The options of reading inputs, which a command has by its decorator."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from xsp.cache.cache import cache_of
from xsp.cli.arguments import (
    CacheFolder,
    DeviceFile,
    DeviceIds,
    Format,
    LayerRanges,
    LayerSource,
    LayerSources,
    ModelRanges,
    NoCache,
    Nsys,
    OsRuntime,
    ProcessIds,
    TimeRange,
)
from xsp.opening import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["reads_input"]

_T = TypeVar("_T")


def reads_input(**fixed: Any) -> Callable[[Callable[..., _T]], Callable[..., _T]]:  # noqa: ANN401 (options of any type)
    """Gives a command the options of `_reading` in place of its parameter `reading`, which gets what they say.

    `fixed`: options that the command does not have, and what holds instead.
    """
    shared = inspect.signature(_reading, eval_str=True).parameters
    offered = {name: option for name, option in shared.items() if name not in fixed}

    def decorate(command: Callable[..., _T]) -> Callable[..., _T]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "reading"]

        @wraps(command)
        def run(**given: Any) -> _T:  # noqa: ANN401 (options of any type)
            options = {name: given.pop(name) for name in offered}
            return command(**given, reading=_reading(**fixed, **options))

        described: Any = run
        described.__signature__ = signature.replace(parameters=[*own, *offered.values()])
        described.__annotations__ = {p.name: p.annotation for p in (*own, *offered.values())}
        return run

    return decorate


def _reading(
    *,
    format: Format = None,  # noqa: A002 (the option's name)
    layer_source: LayerSource = LayerSources.AUTO,
    model_range: ModelRanges = None,
    layer_range: LayerRanges = None,
    nsys: Nsys = None,
    os_runtime: OsRuntime = False,
    range: TimeRange = None,  # noqa: A002 (the option's name)
    pid: ProcessIds = None,
    device_id: DeviceIds = None,
    device: DeviceFile = None,
    no_cache: NoCache = False,
    cache_dir: CacheFolder = None,
) -> Reading:
    return Reading(
        format,
        str(layer_source),
        tuple(model_range or ()),
        tuple(layer_range or ()),
        nsys=nsys,
        os_runtime=os_runtime,
        device=device,
        cache=cache_of(cache_dir, unwanted=no_cache),
        time_range=range,
        process_ids=tuple(pid or ()),
        device_ids=tuple(device_id or ()),
    )
