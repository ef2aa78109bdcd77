"""A small trace with all that a report shows: modules, two steps, backward work, a hostile name, a lost launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["HOSTILE", "US", "small_trace"]

US = 1_000
HOSTILE = "<script>document.title='owned'</script>"
_STEP_US = 1_000


def small_trace(folder: Path, *, kernels: int = 3) -> Trace:
    """Two steps of Net_0 > (Linear_0, ReLU_0); in the second each kernel takes twice as long.

    Per step: `kernels` kernels of 40 us together in Linear_0, a hostile one of 20 us in ReLU_0. One kernel of 7 us
    has no launch.
    """
    kineto = KinetoTrace()
    for step in range(2):
        _add_step(kineto, step, (1 + step * 2 * _STEP_US) * US, kernels)
    kineto.kernel("left over", 10, 7 * US, correlation=9_999)
    return convert([kineto.write(folder / "small.json")], Options())


def _add_step(kineto: KinetoTrace, step: int, start: int, kernels: int) -> None:
    kineto.step(step, start, _STEP_US * US)
    kineto.module("Net_0", start + 10 * US, 900 * US)
    kineto.module("Linear_0", start + 20 * US, 500 * US)
    kineto.operator("aten::linear", start + 30 * US, 480 * US, shapes=[[4, 8]])
    kineto.operator("aten::addmm", start + 40 * US, 460 * US, shapes=[[4, 8]])
    for i in range(kernels):
        launch = start + (50 + i * 400 // kernels) * US
        kineto.launch(f"gemm_{i}", launch, launch + 60 * US, 40 * (1 + step) * US // kernels)
    kineto.module("ReLU_0", start + 600 * US, 100 * US)
    kineto.operator("aten::relu", start + 610 * US, 80 * US)
    kineto.launch(HOSTILE, start + 620 * US, start + 700 * US, 20 * (1 + step) * US)
