"""Waits for the GPUs that a program uses: all of them, and none that it does not, as that would take memory there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["waits_for_all"]


def waits_for_all(torch: Any) -> Callable[[], None]:  # noqa: ANN401 (torch's types are not known without it)
    """A function that waits for every GPU in use by this process, whichever is the current one."""
    cuda = torch.cuda

    def wait() -> None:
        cuda.synchronize()
        count = cuda.device_count()
        if count > 1:
            current = cuda.current_device()
            for device in range(count):
                if device != current and _in_use(torch, device):
                    cuda.synchronize(device)

    return wait


def _in_use(torch: Any, device: int) -> bool:  # noqa: ANN401
    """Whether this process has a context there; where torch does not tell, whether it holds memory."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001 (no public name)
    if has_context is not None:
        try:
            return bool(has_context(device))
        except RuntimeError:  # a torch for the CPU has the name alone
            pass
    return bool(torch.cuda.memory_reserved(device))
