"""Has every layer's row hold its own work on the GPU, by waiting for the device around each module's call.

A profiler's row of a module is the frame of `Module.__call__`. What runs on the device when a module is called is its
parent's (attention between two projections, a sum of residuals), so it is waited for before that frame begins; what
the module launched is waited for in a forward hook, which is called inside of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["waiting_layers"]


class _WaitingCall:
    """`Module.__call__` after a wait. Profilers ask it for the code by which they know a module's frame."""

    def __init__(self, call: Any, wait: Callable[[], None]) -> None:  # noqa: ANN401
        self._call = call
        self._wait = wait
        self.__code__ = call.__code__

    def __get__(self, module: object, _owner: object = None) -> Any:  # noqa: ANN401
        return self if module is None else MethodType(self, module)

    def __call__(self, module: object, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        self._wait()
        return self._call(module, *args, **options)


@contextmanager
def waiting_layers(torch: Any) -> Iterator[None]:  # noqa: ANN401 (torch's types are not known without it)
    """Every module, whoever made it, begins and ends with nothing left to do on the device.

    While a program captures a graph or compiles, nothing waits: the one may not, the other would record it.
    """

    def wait(*_: object) -> None:
        if not torch.compiler.is_compiling() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

    module = torch.nn.Module
    call = module.__call__
    module.__call__ = _WaitingCall(call, wait)
    hook = torch.nn.modules.module.register_module_forward_hook(wait)
    try:
        yield
    finally:
        hook.remove()
        module.__call__ = call
