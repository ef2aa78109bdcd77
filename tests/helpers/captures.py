"""Captures of a model with noise of known kinds, and with changes planted in them, for tests of comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.helpers.hand import Hand
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model import Trace
    from xsp_model.columns.arrays import Floats

__all__ = ["Noise", "Work", "capture", "view"]

_LAUNCH_NS = 2_000
_GAP_NS = 1_000


@dataclass(frozen=True)
class Work:
    """A model of so many layers; `slower` multiplies the work of a layer, `kernels` names kernels in a layer anew."""

    layers: int = 12
    steps: int = 10
    batch: int = 8
    slower: Mapping[int, float] = field(default_factory=dict)
    kernels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    device: str = "a device"
    model: str | None = "net"
    idle_ns: int = 50_000


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms: of each kernel, of all of a step together, and of the whole run."""

    kernel: float = 0.02
    step: float = 0.01
    carried_over: float = 0.0  # how much of a step's disturbance the next step has: an autoregression
    run: float = 0.0
    run_of_layer: float = 0.0


_QUIET = Noise(0.0, 0.0)


def view(work: Work | None = None, seed: int = 0, noise: Noise = _QUIET) -> StepView:
    """A capture as analyses see it."""
    return StepView.of(capture(work or Work(), seed, noise))


def capture(work: Work, seed: int, noise: Noise = _QUIET, **order: int) -> Trace:
    """One run: in every step each layer launches its kernels one after the other; layer i takes (i + 1) x 20 us."""
    random = np.random.default_rng(seed)
    hand = Hand()
    hand.run(0, batch_size=work.batch, model=work.model, device_name=work.device, framework="pytorch 2.11.0")
    factors = _factors(work, noise, random)
    names = {i: work.kernels.get(i, (f"gemm_{i}", "add")) for i in range(work.layers)}
    start = 0
    for step in range(work.steps):
        now = start
        step_id = hand.step(step, start, 0)
        for i in (i for i in range(work.layers) if i not in work.left_out):
            mean_length = 20_000 * (i + 1) * work.slower.get(i, 1.0) / len(names[i])
            lengths = [max(round(mean_length * factors[step, i, k % 2]), 1) for k in range(len(names[i]))]
            spent = sum(lengths) + _GAP_NS
            layer = hand.module(f"Net_0.Linear_{i}", now, spent, i, step=step, parent_id=step_id)
            for name, length in zip(names[i], lengths, strict=True):
                hand.work(name, now + _GAP_NS, length, launch=now, parent=layer, layer=layer, step=step,
                          phase="forward", grid=i + 1)  # fmt: skip
                now += length
            now += _GAP_NS
        now += work.idle_ns
        hand.rows["spans"][step_id]["duration_ns"] = now - start
        start = now + _LAUNCH_NS
    return hand.build(**order)


def _factors(work: Work, noise: Noise, random: np.random.Generator) -> Floats:
    """Steps x layers x 2 (kernels in turn)."""
    common = np.zeros(work.steps)
    before = random.normal() * noise.step
    own = np.sqrt(1 - noise.carried_over**2)
    for step in range(work.steps):
        before = noise.carried_over * before + own * random.normal() * noise.step
        common[step] = before
    run = random.normal() * noise.run + random.normal(size=(work.layers, 1)) * noise.run_of_layer
    each = random.normal(size=(work.steps, work.layers, 2)) * noise.kernel
    factors: Floats = np.exp(common[:, None, None] + run[None, :, :] + each)
    return factors
