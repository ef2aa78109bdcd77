"""A program of two layers in three steps under NVTX ranges, without a framework: what nsys records in tests.

Needs nvtx 0.2.11 (with later versions of the package nsys 2023.4 drops the events).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nvtx

_LAYERS = {"embedding": 0.002, "attention": 0.004}
_STEPS = 3


def main() -> None:
    """Sleeps in each layer, and leaves how long the steps took by the clock of the program itself."""
    nvtx.mark("ready")  # the first call loads nsys' library, which is no part of a step
    durations = []
    for step in range(_STEPS):
        begin = time.perf_counter_ns()
        with nvtx.annotate(f"iteration{step}"):
            for name, seconds in _LAYERS.items():
                with nvtx.annotate(name):
                    time.sleep(seconds)
        durations.append(time.perf_counter_ns() - begin)
    Path(sys.argv[1]).write_text("\n".join(map(str, durations)))


if __name__ == "__main__":
    main()
